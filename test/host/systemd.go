//go:build containers_image_openpgp

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/layerwright/layerwright/test/host/power"
)

// errNoInit is what systemctl says where systemd does not run.
var errNoInit = errors.New("System has not been booted with systemd as init system (PID 1). Can't operate.") //nolint:revive,staticcheck // its own words

// systemctl knows reboot, and lets ostree start its units, which do what the reboot does here.
func (h *host) systemctl(_ context.Context, args []string) error {
	// Flags say why, and that no one is asked.
	args = slices.DeleteFunc(slices.Clone(args), func(a string) bool { return strings.HasPrefix(a, "-") })
	switch {
	case slices.Equal(args, []string{"reboot"}):
		return h.line.Ask(power.Reboot)
	case len(args) == 2 && args[0] == "start" && strings.HasPrefix(args[1], "ostree-finalize-staged"):
		return nil
	default:
		return errNoInit
	}
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
