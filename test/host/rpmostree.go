//go:build containers_image_openpgp

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/layerwright/layerwright/machineconfigs/cmdline"
	"github.com/layerwright/layerwright/test/host/deployments"
	"github.com/layerwright/layerwright/test/host/power"
)

// rpmOSTreeVersion is the one whose command line and JSON this is.
const rpmOSTreeVersion = "2026.2"

func (h *host) rpmOSTree(ctx context.Context, args []string) error {
	command, rest := first(args)
	switch command {
	case "--version":
		_, err := fmt.Fprintf(h.out, "rpm-ostree:\n Version: '%s'\n Git: 0000000\n Features:\n  - container\n", rpmOSTreeVersion)
		return err
	case "status":
		return h.rpmOSTreeStatus(ctx, rest)
	case "rebase":
		return h.rebase(ctx, rest)
	case "upgrade":
		return h.change(ctx, func() error { return h.upgrade(ctx) })
	case "rollback":
		return h.change(ctx, func() error { return h.rollBack(ctx) })
	case "kargs":
		return h.kargs(ctx, rest)
	case "cleanup":
		return h.cleanup(ctx, rest)
	case "finalize-deployment":
		return h.change(ctx, func() error { return h.finalizeDeployment(ctx, rest) })
	case "cancel":
		_, err := fmt.Fprintln(h.out, "No active transaction.") // this one ends with its client
		return err
	default:
		return fmt.Errorf("rpm-ostree %s: %w", command, errUsage)
	}
}

func (h *host) rebase(ctx context.Context, args []string) error {
	args, isLocked := lockFlag(args)
	references := slices.DeleteFunc(slices.Clone(args), func(a string) bool { return a == "--experimental" })
	isImage := func(prefix string) bool { return strings.HasPrefix(references[0], prefix) }
	if len(references) != 1 || !slices.ContainsFunc(verifications, isImage) {
		return fmt.Errorf("rpm-ostree rebase: an image is needed: %w", errUsage)
	}
	return h.change(ctx, func() error {
		if err := h.stage(ctx, references[0]); err != nil || !isLocked {
			return err
		}
		return h.sysroot.Lock(true)
	})
}

// lockFlag takes --lock-finalization out of flags, and reports whether it was there.
func lockFlag(flags []string) (rest []string, isLocked bool) {
	const flag = "--lock-finalization"
	return slices.DeleteFunc(slices.Clone(flags), func(a string) bool { return a == flag }), slices.Contains(flags, flag)
}

// finalizeDeployment unlocks what is staged, and reboots into it.
func (h *host) finalizeDeployment(ctx context.Context, args []string) error {
	f, err := h.find(ctx)
	has := func(flag string) bool { return slices.Contains(args, flag) }
	checksums := slices.DeleteFunc(slices.Clone(args), func(a string) bool { return strings.HasPrefix(a, "-") })
	switch {
	case err != nil:
		return err
	case len(checksums) == 0 && !has("--allow-missing-checksum"):
		return errors.New("Must provide expected CHECKSUM or --allow-missing-checksum") //nolint:staticcheck // the program's own words
	case f.staged == nil:
		return errors.New("No pending staged deployment found") //nolint:staticcheck // the program's own words
	case len(checksums) > 0 && checksums[0] != f.staged.Checksum:
		return fmt.Errorf("Expected staged base checksum %s, but found %s", checksums[0], f.staged.Checksum) //nolint:staticcheck // the program's own words
	case !h.sysroot.IsLocked() && !h.sysroot.HasLockFile() && !has("--allow-unlocked"):
		return errors.New("Staged deployment already unlocked") //nolint:staticcheck // the program's own words
	}
	return errors.Join(h.sysroot.Lock(false), h.line.Ask(power.Reboot))
}

func (h *host) cleanup(ctx context.Context, args []string) error {
	if len(args) != 1 || args[0] != "-p" && args[0] != "--pending" {
		return fmt.Errorf("rpm-ostree cleanup: only --pending is known: %w", errUsage)
	}
	return h.change(ctx, func() error { return h.sysroot.Unstage(ctx) })
}

// kargs prints the kernel arguments of what boots next, or changes them, which is a deployment of
// its own.
func (h *host) kargs(ctx context.Context, args []string) error {
	now, err := h.sysroot.NextArgs()
	if err != nil {
		return err
	}
	if len(args) == 0 {
		_, err := fmt.Fprintln(h.out, strings.Join(now, " "))
		return err
	}
	args, isLocked := lockFlag(args)
	next, err := changeArgs(now, args)
	if err != nil {
		return err
	}
	if slices.Equal(now, next) {
		_, err := fmt.Fprintln(h.out, "No changes.")
		return err
	}
	return h.change(ctx, func() error {
		f, err := h.find(ctx)
		if err != nil {
			return err
		}
		err = h.sysroot.Deploy(ctx, deployments.Request{Commit: f.all[0].Checksum, Reference: f.all[0].Reference, Args: next, Stage: true})
		if err == nil && isLocked {
			err = h.sysroot.Lock(true)
		}
		return err
	})
}

// changeArgs makes the changes that flags ask for. Like rpm-ostree it removes first, whatever the
// order of the flags is, and last what may be missing.
func changeArgs(now, flags []string) ([]string, error) {
	asked := map[string][]string{}
	for _, flag := range flags {
		name, value, _ := strings.Cut(flag, "=")
		if !slices.Contains([]string{"--delete", "--append", "--append-if-missing", "--delete-if-present"}, name) {
			return nil, fmt.Errorf("rpm-ostree kargs %s: %w", name, errUsage)
		}
		asked[name] = append(asked[name], cmdline.Split(value)...)
	}
	next := slices.Clone(now)
	var err error
	for _, word := range asked["--delete"] {
		if next, err = deleteArg(next, word); err != nil {
			return nil, err
		}
	}
	next = append(next, asked["--append"]...)
	for _, word := range asked["--append-if-missing"] {
		if !slices.Contains(next, word) {
			next = append(next, word)
		}
	}
	for _, word := range asked["--delete-if-present"] {
		if slices.Contains(now, word) {
			if next, err = deleteArg(next, word); err != nil {
				return nil, err
			}
		}
	}
	return next, nil
}

// deleteArg removes the first of equal words. A name alone will do where it has one value.
func deleteArg(line []string, word string) ([]string, error) {
	if at := slices.Index(line, word); at >= 0 {
		return slices.Delete(line, at, at+1), nil
	}
	isNamed := func(a string) bool { return cmdline.Name(a) == word }
	at := slices.IndexFunc(line, isNamed)
	switch {
	case at < 0:
		return nil, fmt.Errorf("No karg '%s' found", word) //nolint:staticcheck // the program's own words
	case slices.ContainsFunc(line[at+1:], isNamed):
		return nil, fmt.Errorf("Multiple values for key '%s' found", word) //nolint:staticcheck // the program's own words
	}
	return slices.Delete(line, at, at+1), nil
}

// rpmOSTreeStatus is what `rpm-ostree status --json` prints.
type rpmOSTreeStatus struct {
	Deployments  []rpmOSTreeDeployment `json:"deployments"`
	Transaction  *string               `json:"transaction"`
	CachedUpdate *string               `json:"cached-update"`
}

type rpmOSTreeDeployment struct {
	ID              string `json:"id"`
	OSName          string `json:"osname"`
	Checksum        string `json:"checksum"`
	Serial          int    `json:"serial"`
	Booted          bool   `json:"booted"`
	Staged          bool   `json:"staged"`
	Locked          bool   `json:"finalization-locked,omitempty"`
	Unlocked        string `json:"unlocked"`
	Pinned          bool   `json:"pinned"`
	Version         string `json:"version,omitempty"`
	ImageReference  string `json:"container-image-reference,omitempty"`
	ReferenceDigest string `json:"container-image-reference-digest,omitempty"`
}

func (h *host) rpmOSTreeStatus(ctx context.Context, args []string) error {
	onlyBooted := slices.Contains(args, "--booted")
	if !slices.Contains(args, "--json") {
		return fmt.Errorf("rpm-ostree status without --json: %w", errUsage)
	}
	list, err := h.sysroot.List(ctx)
	if err != nil {
		return err
	}
	out := &rpmOSTreeStatus{}
	for i := range list {
		d := &list[i]
		if onlyBooted && !d.Booted {
			continue
		}
		out.Deployments = append(out.Deployments, rpmOSTreeDeployment{
			ID:     fmt.Sprintf("%s-%s.%d", deployments.Stateroot, d.Checksum, d.Serial),
			OSName: deployments.Stateroot, Checksum: d.Checksum, Serial: d.Serial, Booted: d.Booted, Staged: d.Staged,
			Locked: d.Staged && h.sysroot.HasLockFile(), Unlocked: "none",
			Version: d.Version, ImageReference: d.Reference, ReferenceDigest: d.Digest,
		})
	}
	return json.NewEncoder(h.out).Encode(out)
}
