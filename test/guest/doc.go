// Package guest boots disks of ostree systems in QEMU, by KVM where the machine has it and else by
// emulation, and talks to what runs there.
//
// QEMU has no boot loader here: at each boot the newest boot loader entry (BLS) is read out of the
// disk, as a boot loader would, and its kernel is started with its command line. A reboot ends
// QEMU, and [Machine.Run] starts it again from what is then the newest entry.
//
// Rule: what a machine leaves behind is in its folder. QEMU dies with the process that started it.
package guest
