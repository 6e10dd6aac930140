package power

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// Dir is where a host sees the folder.
const Dir = "/run/layerwright-host"

// Fault is how a host fails.
type Fault string

// The faults.
const (
	// DiskFull: nothing more fits into the repository. The error is ostree's own.
	DiskFull Fault = "disk-full"
	// PullCut: the connection to the registry breaks in the middle of a layer.
	PullCut Fault = "pull-cut"
	// NoBoot: the host does not come back from its next reboot, until it is switched on.
	NoBoot Fault = "no-boot"
	// OldImage: what is staged gets lost at shutdown, so that the host comes back with what it had.
	OldImage Fault = "old-image"
)

// Line is the folder.
type Line struct{ Dir string }

func (l Line) pipe() string   { return filepath.Join(l.Dir, "power") }
func (l Line) notes() string  { return filepath.Join(l.Dir, "systemd") }
func (l Line) faults() string { return filepath.Join(l.Dir, "faults") }

// Make makes the folder, unless it is there.
func (l Line) Make() error {
	if err := os.MkdirAll(l.Dir, 0o755); err != nil {
		return err
	}
	if err := unix.Mkfifo(l.pipe(), 0o600); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("making %s: %w", l.pipe(), err)
	}
	return nil
}

// What is asked for.
const (
	Reboot   = "reboot"
	SwitchOn = "on"
)

// Ask asks for a reboot, or to be switched on.
func (l Line) Ask(what string) error {
	f, err := os.OpenFile(l.pipe(), os.O_WRONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return fmt.Errorf("asking for %q: no one watches over this host: %w", what, err)
	}
	_, err = f.WriteString(what + "\n")
	return errors.Join(err, f.Close())
}

// Wait hands on what is asked for, until do returns an error or the pipe breaks.
func (l Line) Wait(do func(what string) error) error {
	// A reader that can write too never sees the end.
	f, err := os.OpenFile(l.pipe(), os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		if err := do(lines.Text()); err != nil {
			return err
		}
	}
	return lines.Err()
}

// Note writes down what was asked of systemd, until the host boots.
func (l Line) Note(what string) error {
	f, err := os.OpenFile(l.notes(), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteString(what + "\n")
	return errors.Join(err, f.Close())
}

// Has reports whether the host has to fail in a way. What can't be read is no fault.
func (l Line) Has(fault Fault) bool {
	text, err := os.ReadFile(l.faults())
	return err == nil && slices.Contains(strings.Fields(string(text)), string(fault))
}

// Set makes the host fail in these ways, and in no others.
func (l Line) Set(faults ...Fault) error {
	var text strings.Builder
	for _, f := range faults {
		text.WriteString(string(f) + "\n")
	}
	return os.WriteFile(l.faults(), []byte(text.String()), 0o600)
}
