// Package owner says which MachineOSConfig a MachineOSImage was made for.
//
// Rule: it reads, and writes nothing. What it means that an image has no owner, or one that is
// gone, is for the caller to say.
package owner
