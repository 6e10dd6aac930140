package guest

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// How QEMU runs a machine's instructions.
var (
	byKVM       = []string{"-accel", "kvm", "-cpu", "host"}
	byEmulation = []string{"-accel", "tcg,thread=multi,tb-size=512", "-cpu", "max"}
)

// trialTimeout is for a few instructions, on a machine that is busy.
const trialTimeout = 10 * time.Second

// accelerate chooses KVM where it works. That the device can be opened does not say so: a machine
// that is virtual itself may have one on which no guest starts. The folder is for a file.
func accelerate(ctx context.Context, dir string) ([]string, error) {
	kvm, err := os.OpenFile("/dev/kvm", os.O_RDWR, 0)
	if err != nil {
		return byEmulation, nil //nolint:nilerr // most machines have none
	}
	if err := kvm.Close(); err != nil {
		return nil, err
	}
	cpu, err := os.ReadFile("/proc/cpuinfo")
	if err != nil || !virtualizes(string(cpu)) {
		return byEmulation, err
	}
	works, err := try(ctx, dir, byKVM)
	if err != nil || !works {
		return byEmulation, err
	}
	return byKVM, nil
}

// virtualizes reports whether a processor runs guests, by /proc/cpuinfo. Some clouds have a KVM
// without it: the trial's few instructions run there, and Linux hangs.
func virtualizes(cpuinfo string) bool {
	for line := range strings.Lines(cpuinfo) {
		if name, flags, _ := strings.Cut(line, ":"); strings.TrimSpace(name) == "flags" {
			all := strings.Fields(flags)
			return slices.Contains(all, "vmx") || slices.Contains(all, "svm")
		}
	}
	return false
}

const (
	// trialPort is where the trial's program says that it runs, and trialCode how QEMU then ends.
	trialPort = "0xf4"
	trialCode = 0x10<<1 | 1
)

// firmware is a ROM whose first instructions end QEMU with [trialCode].
func firmware() []byte {
	const size, reset = 64 << 10, 64<<10 - 16
	rom := bytes.Repeat([]byte{0xf4}, size)           // hlt
	copy(rom[reset:], []byte{0xb0, 0x10, 0xe6, 0xf4}) // mov al, 0x10; out 0xf4, al
	return rom
}

// try reports whether a machine starts that is run so.
func try(ctx context.Context, dir string, accelerator []string) (works bool, err error) {
	program, err := look(emulator)
	if err != nil {
		return false, &MissingError{emulator, emulatorPackage}
	}
	rom := filepath.Join(dir, "trial.rom")
	if err := os.WriteFile(rom, firmware(), 0o600); err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, os.Remove(rom)) }()
	limited, cancel := context.WithTimeout(ctx, trialTimeout)
	defer cancel()
	cmd := exec.CommandContext(limited, program, append(accelerator[:len(accelerator):len(accelerator)],
		"-machine", "pc", "-m", "16", "-nodefaults", "-display", "none", "-bios", rom, "-device", "isa-debug-exit,iobase="+trialPort+",iosize=4")...)
	err = cmd.Run()
	if ctx.Err() != nil {
		return false, context.Cause(ctx)
	}
	exit := (*exec.ExitError)(nil)
	return errors.As(err, &exit) && exit.ExitCode() == trialCode, nil
}
