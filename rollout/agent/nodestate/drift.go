package nodestate

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/coreos/ignition/v2/config/v3_5/types"

	"github.com/layerwright/layerwright/machineconfigs"
	"github.com/layerwright/layerwright/machineconfigs/layer/systemd"
)

// imagePath is where ostree keeps what the booted image has at a path of /etc.
func imagePath(at string) string { return "/usr" + at }

// Drift says, in words, what of the configuration's files in /etc is not as the booted image has
// it: each begins with the path. What is not in the image, such as content of nodeOnly
// MachineConfigs, is no part of it, and neither is the temporary policy. live, which may be nil,
// is what has been written of an image that is not booted yet.
func (h *Host) Drift(cfg *machineconfigs.Config, live *Live) ([]string, error) {
	temporary, err := h.temporaryPolicy().record()
	if err != nil {
		return nil, err
	}
	var out []string
	for _, written := range pathsOf(cfg) {
		at, err := h.tree.resolve(written)
		if err != nil || !strings.HasPrefix(at, "/etc/") {
			continue
		}
		if _, isTemporary := temporary.Entries[at]; isTemporary {
			continue
		}
		wanted, err := h.given(at, live)
		if err != nil {
			return nil, fmt.Errorf("looking at the image of the host: %w", err)
		}
		if wanted.Kind != File && wanted.Kind != Link {
			continue
		}
		has, err := h.tree.look(at)
		if err != nil {
			return nil, fmt.Errorf("looking at the host: %w", err)
		}
		if difference := describe(wanted, has); difference != "" {
			out = append(out, at+" "+difference)
		}
	}
	return out, nil
}

// given is what a path of /etc was given: by an image that is not booted yet, or by the booted one.
func (h *Host) given(at string, live *Live) (Entry, error) {
	if live != nil {
		if entry, is := live.Entries[at]; is {
			return entry, nil
		}
	}
	return h.tree.look(imagePath(at))
}

// Paths are those of the host where what a configuration wants may change: what Drift and Plan look
// at.
func (h *Host) Paths(cfg *machineconfigs.Config) []string {
	out := []string{shadowPath}
	for _, written := range pathsOf(cfg) {
		if at, err := h.tree.resolve(written); err == nil {
			out = append(out, at)
		}
	}
	return out
}

// describe says how an entry is not as it should be; empty where it is.
func describe(wanted, has Entry) string {
	switch {
	case has == wanted:
		return ""
	case has.Kind == Missing:
		return "was removed"
	case has.Kind != wanted.Kind:
		return fmt.Sprintf("is a %s and not a %s", has.Kind, wanted.Kind)
	case has.Sum != wanted.Sum:
		return "has other content"
	case has.Target != wanted.Target:
		return "leads elsewhere"
	case has.Mode != wanted.Mode:
		return fmt.Sprintf("has mode %04o and not %04o", has.Mode, wanted.Mode)
	default:
		return fmt.Sprintf("belongs to %d:%d and not %d:%d", has.UID, has.GID, wanted.UID, wanted.GID)
	}
}

// pathsOf are the paths of files and links, and those of units, of a configuration, sorted.
func pathsOf(cfg *machineconfigs.Config) []string {
	var out []string
	for i := range cfg.Ignition.Storage.Files {
		out = append(out, cfg.Ignition.Storage.Files[i].Path)
	}
	for i := range cfg.Ignition.Storage.Links {
		out = append(out, cfg.Ignition.Storage.Links[i].Path)
	}
	for i := range cfg.Ignition.Systemd.Units {
		out = append(out, unitPaths(&cfg.Ignition.Systemd.Units[i])...)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func unitPaths(u *types.Unit) []string {
	at := path.Join(systemd.ConfigDir, u.Name)
	out := []string{at}
	for _, d := range u.Dropins {
		out = append(out, path.Join(at+".d", d.Name))
	}
	return out
}
