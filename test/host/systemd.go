//go:build containers_image_openpgp

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/layerwright/layerwright/test/host/power"
)

// errNoInit is what systemctl says where systemd does not run.
var errNoInit = errors.New("System has not been booted with systemd as init system (PID 1). Can't operate.") //nolint:revive,staticcheck // its own words

// unitFolders are where systemd looks for units.
var unitFolders = []string{"/etc/systemd/system", "/run/systemd/system", "/usr/lib/systemd/system"}

// systemctl knows reboot, and lets ostree start its units, which do what the reboot does here. No
// unit runs here: of one that has a file it is written down what was asked for.
func (h *host) systemctl(_ context.Context, args []string) error {
	if len(args) > 0 && args[0] == "show" {
		return h.showLoadState(args[1:])
	}
	// Flags say why, and that no one is asked.
	args = slices.DeleteFunc(slices.Clone(args), func(a string) bool { return strings.HasPrefix(a, "-") })
	switch {
	case slices.Equal(args, []string{"reboot"}):
		return h.line.Ask(power.Reboot)
	case len(args) == 2 && args[0] == "start" && strings.HasPrefix(args[1], "ostree-finalize-staged"):
		return nil
	case slices.Equal(args, []string{"daemon-reload"}):
		return h.line.Note("daemon-reload")
	case len(args) == 2 && (args[0] == "reload" || args[0] == "restart"):
		if !isUnit(args[1]) {
			return fmt.Errorf("Failed to %s %s: Unit %s not found.", args[0], args[1], args[1]) //nolint:revive,staticcheck // its own words
		}
		return h.line.Note(strings.Join(args, " "))
	default:
		return errNoInit
	}
}

// showLoadState prints whether a unit has a file.
func (h *host) showLoadState(args []string) error {
	if len(args) != 4 || args[0] != "--property=LoadState" || args[1] != "--value" || args[2] != "--" {
		return fmt.Errorf("systemctl show: %w", errUsage)
	}
	state := "not-found"
	if isUnit(args[3]) {
		state = "loaded"
	}
	_, err := fmt.Fprintln(h.out, state)
	return err
}

func isUnit(name string) bool {
	return slices.ContainsFunc(unitFolders, func(dir string) bool {
		_, err := os.Stat(filepath.Join(dir, name))
		return err == nil
	})
}

// systemdRun runs a command at once that it should run as a unit.
func (h *host) systemdRun(ctx context.Context, args []string) error {
	command := args
	for len(command) > 0 && strings.HasPrefix(command[0], "-") {
		command = command[1:]
	}
	if len(command) == 0 || command[0] != "systemctl" {
		return fmt.Errorf("systemd-run %s: %w", strings.Join(command, " "), errUsage)
	}
	return h.systemctl(ctx, command[1:])
}
