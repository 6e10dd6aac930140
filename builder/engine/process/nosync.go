//go:build cgo && containers_image_openpgp && exclude_graphdriver_btrfs

package process

import (
	"fmt"
	"os"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The part of a system call's data that the filter looks at.
const (
	numberOffset = 0
	archOffset   = 4
)

// audited are the kernel's numbers of the architectures that builds run on.
var audited = map[string]uint32{
	"amd64": unix.AUDIT_ARCH_X86_64, "arm64": unix.AUDIT_ARCH_AARCH64,
	"ppc64le": unix.AUDIT_ARCH_PPC64LE, "s390x": unix.AUDIT_ARCH_S390X,
}

// syncs are the system calls that wait for the disk.
var syncs = []uint32{unix.SYS_FSYNC, unix.SYS_FDATASYNC, unix.SYS_SYNCFS, unix.SYS_SYNC}

// dontWaitForDisk makes the calls that wait for the disk do nothing, for this process and for all
// that it starts. What a build writes is thrown away with its pod, and a pod whose node lost power
// is not continued; waiting is a good part of a pull.
func dontWaitForDisk() error {
	arch, isKnown := audited[runtime.GOARCH]
	if !isKnown {
		return nil
	}
	const load = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS
	const equal, end = unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, unix.BPF_RET | unix.BPF_K
	last := uint8(len(syncs)) //nolint:gosec // a few
	program := []unix.SockFilter{
		{Code: load, K: archOffset},
		{Code: equal, Jf: last + 1, K: arch}, // a 32-bit program's numbers mean other calls
		{Code: load, K: numberOffset},
	}
	for i, number := range syncs {
		program = append(program, unix.SockFilter{Code: equal, Jt: last - uint8(i), K: number})
	}
	program = append(program, unix.SockFilter{Code: end, K: unix.SECCOMP_RET_ALLOW}, unix.SockFilter{Code: end, K: unix.SECCOMP_RET_ERRNO})
	filter := unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]}                                                                      //nolint:gosec // a few
	_, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&filter))) //nolint:gosec // the kernel takes a pointer
	runtime.KeepAlive(program)
	if errno != 0 {
		return fmt.Errorf("leaving out waits for the disk: %w", os.NewSyscallError("seccomp", errno))
	}
	return nil
}
