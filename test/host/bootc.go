//go:build containers_image_openpgp

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"

	"github.com/layerwright/layerwright/test/host/deployments"
)

// bootcVersion is the one whose command line and JSON this is.
const bootcVersion = "1.16.9"

func (h *host) bootc(ctx context.Context, args []string) error {
	command, rest := first(args)
	switch command {
	case "--version":
		_, err := fmt.Fprintln(h.out, "bootc "+bootcVersion)
		return err
	case "status":
		return h.bootcStatus(ctx, rest)
	case "switch":
		return h.bootcSwitch(ctx, rest)
	case "upgrade":
		return h.change(ctx, func() error { return h.bootcUpgrade(ctx, rest) })
	case "loader-entries":
		return h.loaderEntries(ctx, rest)
	case "rollback":
		return h.change(ctx, func() error { return h.rollBack(ctx) })
	default:
		return fmt.Errorf("bootc %s: %w", command, errUsage)
	}
}

func first(args []string) (string, []string) {
	if len(args) == 0 {
		return "", nil
	}
	return args[0], args[1:]
}

func (h *host) bootcSwitch(ctx context.Context, args []string) error {
	verification := unverified
	images := slices.DeleteFunc(slices.Clone(args), func(a string) bool {
		if a == "--enforce-container-sigpolicy" {
			verification = signed
		}
		return strings.HasPrefix(a, "-")
	})
	if len(images) != 1 {
		return fmt.Errorf("bootc switch: one image is needed: %w", errUsage)
	}
	return h.change(ctx, func() error {
		f, err := h.find(ctx)
		if err != nil {
			return err
		}
		spec := f.booted
		if f.staged != nil {
			spec = f.staged
		}
		if spec.Reference == verification+images[0] {
			_, err := fmt.Fprintln(h.out, "Image specification is unchanged.")
			return err
		}
		return h.stage(ctx, verification+images[0])
	})
}

// bootcUpgrade stages what the booted image's name stands for now, downloads it alone, or unlocks
// what was downloaded.
func (h *host) bootcUpgrade(ctx context.Context, flags []string) error {
	has := func(flag string) bool { return slices.Contains(flags, flag) }
	f, err := h.find(ctx)
	switch {
	case err != nil:
		return err
	case has("--from-downloaded") && (has("--download-only") || has("--check")):
		return errors.New("the argument '--from-downloaded' cannot be used with '--check' or '--download-only'")
	case has("--from-downloaded") && f.staged == nil:
		return errors.New("No staged deployment found") //nolint:staticcheck // the program's own words
	case has("--from-downloaded"):
		said := "Staged deployment is already set to apply on reboot"
		if h.sysroot.IsLocked() {
			said = "Staged deployment will now be applied on reboot"
		}
		return errors.Join(h.sysroot.Lock(false), h.print(said))
	}
	if err := h.upgrade(ctx); err != nil || !has("--download-only") {
		return err
	}
	if f, err = h.find(ctx); err != nil || f.staged == nil {
		return err
	}
	return h.sysroot.Lock(true)
}

func (h *host) print(line string) error {
	_, err := fmt.Fprintln(h.out, line)
	return err
}

// upgrade stages what the booted image's name stands for now. A name with a digest stands for the
// same.
func (h *host) upgrade(ctx context.Context) error {
	f, err := h.find(ctx)
	if err != nil {
		return err
	}
	if strings.Contains(f.booted.Reference, "@") {
		_, err := fmt.Fprintln(h.out, "No update available.")
		return err
	}
	return h.stage(ctx, f.booted.Reference)
}

// bootcHost is what `bootc status --format=json` prints.
type bootcHost struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Metadata   struct {
		Name string `json:"name"`
	} `json:"metadata"`
	Spec struct {
		Image     *bootcReference `json:"image"`
		BootOrder string          `json:"bootOrder"`
	} `json:"spec"`
	Status struct {
		Staged         *bootcEntry  `json:"staged"`
		Booted         *bootcEntry  `json:"booted"`
		Rollback       *bootcEntry  `json:"rollback"`
		Other          []bootcEntry `json:"otherDeployments"`
		RollbackQueued bool         `json:"rollbackQueued"`
		ReadOnly       bool         `json:"readOnly"`
		Type           string       `json:"type"`
		UsrOverlay     *string      `json:"usrOverlay"`
	} `json:"status"`
}

type bootcReference struct {
	Image     string          `json:"image"`
	Transport string          `json:"transport"`
	Signature json.RawMessage `json:"signature,omitempty"`
}

type bootcEntry struct {
	Image struct {
		Image        bootcReference `json:"image"`
		Version      *string        `json:"version"`
		Timestamp    *string        `json:"timestamp"`
		ImageDigest  string         `json:"imageDigest"`
		Architecture string         `json:"architecture"`
	} `json:"image"`
	CachedUpdate *string `json:"cachedUpdate"`
	Incompatible bool    `json:"incompatible"`
	Pinned       bool    `json:"pinned"`
	SoftReboots  bool    `json:"softRebootCapable"`
	DownloadOnly bool    `json:"downloadOnly"`
	Store        string  `json:"store"`
	Composefs    *string `json:"composefs"`
	Ostree       struct {
		Stateroot    string `json:"stateroot"`
		Checksum     string `json:"checksum"`
		DeploySerial int    `json:"deploySerial"`
	} `json:"ostree"`
}

func (h *host) bootcStatus(ctx context.Context, args []string) error {
	if !slices.Contains(args, "--format=json") && !slices.Contains(args, "--json") {
		return fmt.Errorf("bootc status without --format=json: %w", errUsage)
	}
	f, err := h.find(ctx)
	if err != nil {
		return err
	}
	out := &bootcHost{APIVersion: "org.containers.bootc/v1", Kind: "BootcHost"}
	out.Metadata.Name = "host"
	out.Spec.BootOrder = "default"
	if f.rollbackQueued {
		out.Spec.BootOrder = "rollback"
	}
	out.Status.Booted = newBootcEntry(f.booted)
	if !slices.Contains(args, "--booted") {
		out.Status.Staged, out.Status.Rollback = newBootcEntry(f.staged), newBootcEntry(f.rollback)
	}
	if out.Status.Staged != nil {
		out.Status.Staged.DownloadOnly = h.sysroot.IsLocked()
	}
	out.Status.Other = []bootcEntry{}
	out.Status.RollbackQueued, out.Status.Type = f.rollbackQueued, "bootcHost"
	if next := newBootcEntry(&f.all[0]); next != nil {
		out.Spec.Image = &next.Image.Image
	}
	return json.NewEncoder(h.out).Encode(out)
}

func newBootcEntry(d *deployments.Deployment) *bootcEntry {
	if d == nil {
		return nil
	}
	e := &bootcEntry{Store: "ostreeContainer"}
	e.Image.Image = bootcReference{Image: d.Reference, Transport: "registry"}
	e.Image.Image.Image = imageName(d.Reference)
	if strings.HasPrefix(d.Reference, signed) {
		e.Image.Image.Signature = json.RawMessage(`"containerPolicy"`)
	}
	e.Image.ImageDigest = d.Digest
	if d.Version != "" {
		e.Image.Version = &d.Version
	}
	e.Image.Architecture, e.Ostree.Stateroot = runtime.GOARCH, deployments.Stateroot
	e.Ostree.Checksum, e.Ostree.DeploySerial = d.Checksum, d.Serial
	return e
}
