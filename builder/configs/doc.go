// Package configs sees to it that one build makes the image that each MachineOSConfig wants, and
// says in the status of MachineOSConfigs and pools what became of it.
//
// Rule: it asks (wanted), has decided (plan) and writes objects. It makes no image, and ends a
// build only through the reconciler of builds, which package builder hands in.
package configs
