// Package objects reads what the objects of builds say, as the plain data that plan and maker take:
// the settings of MachineOSConfigs, and the stage, decision and annotations of MachineOSBuilds.
//
// Rule: nothing is decided here. What a build was asked is read by MachineOSBuild.Asked and
// plan.RecordOf.
package objects
