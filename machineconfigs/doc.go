// Package machineconfigs joins the MachineConfigs of a pool into one rendered MachineConfig, and
// reads rendered ones.
//
// Rule: pure. The same inputs give the same rendered MachineConfig, with the same name, on every
// machine: no clock, no host state, no network, and no order of maps. Files, units and users are
// Ignition's own types, merged by Ignition's own rules. What becomes of a rendered configuration in
// an image is said by the package layer below.
package machineconfigs
