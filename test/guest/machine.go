package guest

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"syscall"
	"time"
)

const (
	// emulator is QEMU's program, and emulatorPackage Debian's package that has it.
	emulator        = "qemu-system-x86_64"
	emulatorPackage = "qemu-system-x86"

	controlPort = "control"
	stopGrace   = 10 * time.Second
	// connectEvery is how often a socket is tried that QEMU is about to make.
	connectEvery = 50 * time.Millisecond
)

// Machine is a machine to boot. All fields are required but Forwards.
type Machine struct {
	// Dir is the machine's folder, for its sockets and for what is read out of its disk.
	Dir string `json:"dir"`
	// Disk is a raw ext4 image, which the machine writes to.
	Disk string `json:"disk"`
	// Console is the file that what it prints is appended to.
	Console string `json:"console"`
	// Memory is in MiB.
	Memory int `json:"memory"`
	CPUs   int `json:"cpus"`
	// Forwards are ports of this network namespace that lead into the machine. The other way
	// everything is open.
	Forwards []Forward `json:"forwards,omitempty"`
}

// Forward leads connections to an address into the machine.
type Forward struct {
	Address string `json:"address"`
	Port    int    `json:"port"`
}

// MissingError says what a machine lacks to run guests.
type MissingError struct{ Program, Package string }

// Error names the package to install.
func (e *MissingError) Error() string {
	return fmt.Sprintf("%s is not on this machine: install the Debian package %s", e.Program, e.Package)
}

// Check returns a *[MissingError] if a program is missing that guests need.
func Check() error {
	for _, need := range []MissingError{{emulator, emulatorPackage}, {"ostree", "ostree"}, {"debugfs", "e2fsprogs"}, {"mke2fs", "e2fsprogs"}} {
		if _, err := look(need.Program); err != nil {
			return &need
		}
	}
	return nil
}

// look finds a program also where only root's path leads.
func look(program string) (string, error) {
	if found, err := exec.LookPath(program); err == nil {
		return found, nil
	}
	return exec.LookPath(filepath.Join("/usr/sbin", program))
}

// Run boots the machine, and boots it again whenever it reboots. It returns nil when the machine is
// powered off, and ends it when ctx ends.
func (m *Machine) Run(ctx context.Context) error {
	accelerator, err := accelerate(ctx, m.Dir)
	if err != nil {
		return err
	}
	for {
		entry, err := bootFiles(ctx, m.Disk, m.Dir)
		if err != nil {
			return fmt.Errorf("reading what to boot from %s: %w", m.Disk, err)
		}
		if err := m.note(entry); err != nil {
			return err
		}
		again, err := m.boot(ctx, entry, accelerator)
		if err != nil || !again {
			return err
		}
	}
}

// note says on the console what a boot loader would.
func (m *Machine) note(entry Entry) (err error) {
	f, err := os.OpenFile(m.Console, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	_, err = fmt.Fprintf(f, "\r\n[%s] Booting %s (entry %d)\r\n  %s\r\n", time.Now().UTC().Format(time.TimeOnly), entry.Title, entry.Version, entry.Options)
	return err
}

// boot runs QEMU until the machine ends, and reports whether that was to boot again.
func (m *Machine) boot(ctx context.Context, entry Entry, accelerator []string) (again bool, err error) {
	for _, socket := range []string{m.monitor(), m.control()} {
		if err := os.Remove(socket); err != nil && !errors.Is(err, os.ErrNotExist) {
			return false, err
		}
	}
	program, err := look(emulator)
	if err != nil {
		return false, &MissingError{emulator, emulatorPackage}
	}
	log, err := os.OpenFile(filepath.Join(m.Dir, "qemu.log"), os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return false, err
	}
	defer func() { _ = log.Close() }()
	cmd := exec.CommandContext(ctx, program, m.arguments(entry, accelerator)...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = stopGrace
	// The signal is for the death of the thread, not of the process.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := cmd.Start(); err != nil {
		return false, err
	}
	watching, stop := context.WithCancel(ctx)
	reason := make(chan string, 1)
	go func() { reason <- m.watch(watching) }()
	err = cmd.Wait()
	stop()
	ended := <-reason
	if ctx.Err() != nil {
		return false, context.Cause(ctx)
	}
	if err != nil {
		said, _ := os.ReadFile(log.Name())
		return false, fmt.Errorf("running %s: %w: %s", emulator, err, said)
	}
	return ended == "guest-reset", nil
}

func (m *Machine) monitor() string { return filepath.Join(m.Dir, "monitor") }

func (m *Machine) control() string { return filepath.Join(m.Dir, controlPort) }

// arguments are QEMU's.
func (m *Machine) arguments(entry Entry, accelerator []string) []string {
	network := "user,id=net"
	for _, f := range m.Forwards {
		network += fmt.Sprintf(",hostfwd=tcp:%s:%d-:%d", f.Address, f.Port, f.Port)
	}
	return append(slices.Clone(accelerator),
		"-machine", "pc", "-m", strconv.Itoa(m.Memory), "-smp", strconv.Itoa(m.CPUs), "-nodefaults", "-display", "none", "-no-reboot",
		"-kernel", filepath.Join(m.Dir, "kernel"), "-initrd", filepath.Join(m.Dir, "initrd"), "-append", entry.Options,
		"-chardev", "file,id=console,append=on,path="+m.Console, "-serial", "chardev:console",
		// What a power cut would lose is not the subject, and waiting for disks takes long. Without
		// werror, QEMU would pause the machine silently when the disk that holds it is full.
		"-drive", "file="+m.Disk+",format=raw,if=none,id=disk,cache=unsafe,discard=unmap,werror=report", "-device", "virtio-blk-pci,drive=disk",
		"-netdev", network, "-device", "virtio-net-pci,netdev=net,romfile=",
		"-object", "rng-random,filename=/dev/urandom,id=random", "-device", "virtio-rng-pci,rng=random",
		"-device", "virtio-serial-pci", "-chardev", "socket,id=control,server=on,wait=off,path="+m.control(),
		"-device", "virtserialport,chardev=control,name="+controlPort,
		"-qmp", "unix:"+m.monitor()+",server=on,wait=off",
	)
}

// watch returns why the machine ended, as QEMU's monitor tells it; empty if it did not.
func (m *Machine) watch(ctx context.Context) string {
	conn, err := dial(ctx, m.monitor())
	if err != nil {
		return ""
	}
	defer func() { _ = conn.Close() }()
	stop := context.AfterFunc(ctx, func() { _ = conn.SetReadDeadline(time.Now().Add(time.Second)) })
	defer stop()
	if _, err := io.WriteString(conn, `{"execute":"qmp_capabilities"}`+"\n"); err != nil {
		return ""
	}
	reason := ""
	lines := bufio.NewScanner(conn)
	for lines.Scan() {
		if r := shutdownReason(lines.Bytes()); r != "" {
			reason = r
		}
	}
	return reason
}

// shutdownReason is why a machine shut down, if a line of the monitor says that it did.
func shutdownReason(line []byte) string {
	var event struct {
		Event string
		Data  struct{ Reason string }
	}
	if json.Unmarshal(line, &event) != nil || event.Event != "SHUTDOWN" {
		return ""
	}
	return event.Data.Reason
}

// dial connects to a socket that QEMU is about to make.
func dial(ctx context.Context, socket string) (net.Conn, error) {
	for {
		conn, err := new(net.Dialer).DialContext(ctx, "unix", socket)
		if err == nil || ctx.Err() != nil {
			return conn, err
		}
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(connectEvery):
		}
	}
}
