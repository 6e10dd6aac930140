//go:build containers_image_openpgp

package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/layerwright/layerwright/machineconfigs/cmdline"
	"github.com/layerwright/layerwright/test/host/deployments"
)

// loaderEntries sets the kernel arguments of a source, of what is staged or else of what has
// booted.
func (h *host) loaderEntries(ctx context.Context, args []string) error {
	if len(args) == 0 || args[0] != "set-options-for-source" {
		return fmt.Errorf("bootc loader-entries %s: %w", strings.Join(args, " "), errUsage)
	}
	source, options := "", ""
	for _, flag := range args[1:] {
		name, value, _ := strings.Cut(flag, "=")
		switch name {
		case "--source":
			source = value
		case "--options":
			options = value
		default:
			return fmt.Errorf("error: unexpected argument '%s' found", name)
		}
	}
	if err := checkSource(source); err != nil {
		return fmt.Errorf("Setting options for source '%s' (staged): %w", source, err) //nolint:staticcheck // the program's own words
	}
	return h.change(ctx, func() error { return h.setOptions(ctx, source, options) })
}

var sourceName = regexp.MustCompile(`^[a-zA-Z0-9_-]+$`)

func checkSource(name string) error {
	if name == "" {
		return errors.New("Source name must not be empty") //nolint:staticcheck // the program's own words
	}
	if !sourceName.MatchString(name) {
		return errors.New("Source name must contain only alphanumeric characters, hyphens, or underscores") //nolint:staticcheck // the program's own words
	}
	return nil
}

func (h *host) setOptions(ctx context.Context, source, options string) error {
	f, err := h.find(ctx)
	if err != nil {
		return err
	}
	base := f.booted
	now, sources, err := h.sysroot.BootedSources(f.all)
	if err == nil && f.staged != nil {
		base = f.staged
		if now, err = h.sysroot.NextArgs(); err == nil {
			sources, err = h.sysroot.StagedSources()
		}
	}
	if err != nil {
		return err
	}
	next := mergeOptions(now, cmdline.Split(sources[source]), cmdline.Split(options))
	if slices.Equal(now, next) && sources[source] == options {
		return nil
	}
	sources = maps.Clone(sources)
	delete(sources, source)
	if options != "" {
		sources[source] = options
	}
	return h.sysroot.Deploy(ctx, deployments.Request{Commit: base.Checksum, Reference: base.Reference, Args: next, Stage: true, Sources: sources})
}

// mergeOptions does what bootc 1.16 does: of old options all equal ones go, and a new one is not
// added where there is an equal one.
func mergeOptions(line, old, added []string) (out []string) {
	for _, word := range line {
		if !slices.ContainsFunc(old, func(o string) bool { return isSameOption(o, word) }) {
			out = append(out, word)
		}
	}
	for _, word := range added {
		if !slices.ContainsFunc(out, func(o string) bool { return isSameOption(o, word) }) {
			out = append(out, word)
		}
	}
	return out
}

// isSameOption compares names without telling dashes from underscores, and values without quotes.
func isSameOption(a, b string) bool {
	nameA, valueA, hasA := strings.Cut(a, "=")
	nameB, valueB, hasB := strings.Cut(b, "=")
	return strings.ReplaceAll(nameA, "_", "-") == strings.ReplaceAll(nameB, "_", "-") && hasA == hasB && strings.Trim(valueA, `"`) == strings.Trim(valueB, `"`)
}
