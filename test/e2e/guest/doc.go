// Package guest tests that what Layerwright builds boots: on a node that is a virtual machine, with
// a kernel, systemd and a shutdown of its own. It needs root and QEMU.
package guest
