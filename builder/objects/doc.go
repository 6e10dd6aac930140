// Package objects reads what the objects of builds say, as the plain data that plan and maker take:
// the settings of MachineOSConfigs, and the stage, keys and annotations of MachineOSBuilds.
//
// Rule: nothing is decided here, and what an annotation means is read here alone.
package objects
