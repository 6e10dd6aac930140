// Package machines installs, boots and reboots the machines of nodes that have a root of their own.
// Such a machine is a disk and a mount namespace, and no virtual machine.
package machines
