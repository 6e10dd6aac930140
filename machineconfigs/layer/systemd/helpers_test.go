package systemd_test

import (
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/layerwright/layerwright/machineconfigs/layer/systemd"
)

// files is a tree: contents by absolute path, links as "-> target".
type files map[string]string

func (f files) Lookup(name string) (systemd.Kind, string) {
	content, ok := f[name]
	if target, isLink := strings.CutPrefix(content, "-> "); isLink {
		return systemd.Link, target
	}
	switch {
	case ok:
		return systemd.File, ""
	case len(f.List(name)) > 0:
		return systemd.Directory, ""
	default:
		return systemd.Nothing, ""
	}
}

func (f files) List(dir string) []string {
	names := map[string]bool{}
	for name := range f {
		if below, ok := strings.CutPrefix(name, dir+"/"); ok {
			first, _, _ := strings.Cut(below, "/")
			names[first] = true
		}
	}
	return slices.Sorted(maps.Keys(names))
}

func (f files) Read(name string) ([]byte, error) {
	for range 10 {
		kind, target := f.Lookup(name)
		switch kind {
		case systemd.File:
			return []byte(f[name]), nil
		case systemd.Link:
			if target == "/dev/null" {
				return nil, nil
			}
			if !path.IsAbs(target) {
				target = path.Join(path.Dir(name), target)
			}
			name = path.Clean(target)
		case systemd.Nothing, systemd.Directory, systemd.Other:
			return nil, fmt.Errorf("%q: %w", name, fs.ErrNotExist)
		}
	}
	return nil, fs.ErrInvalid
}

func (f files) Put(name, target string) { f[name] = "-> " + target }

func (f files) Remove(name string) { delete(f, name) }

// links lists the links below /etc, one per line.
func (f files) links() string {
	text := &strings.Builder{}
	for _, name := range slices.Sorted(maps.Keys(f)) {
		if strings.HasPrefix(name, "/etc/") && strings.HasPrefix(f[name], "-> ") {
			fmt.Fprintf(text, "%s %s\n", name, f[name])
		}
	}
	return text.String()
}

// write puts the tree into a folder.
func (f files) write(t *testing.T, root string) {
	t.Helper()
	for name, content := range f {
		at := filepath.Join(root, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(at), 0o755))
		if target, isLink := strings.CutPrefix(content, "-> "); isLink {
			require.NoError(t, os.Symlink(target, at))
			continue
		}
		require.NoError(t, os.WriteFile(at, []byte(content), 0o644))
	}
}

// readFiles reads the tree in a folder.
func readFiles(t *testing.T, root string) files {
	t.Helper()
	f := files{}
	require.NoError(t, filepath.WalkDir(root, func(at string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		name := strings.TrimPrefix(at, root)
		if d.Type()&fs.ModeSymlink != 0 {
			target, err := os.Readlink(at)
			f[name] = "-> " + target
			return err
		}
		content, err := os.ReadFile(at) //nolint:gosec // no one else writes there
		f[name] = string(content)
		return err
	}))
	return f
}

// run does "enable a.service", "disable a.service" or "preset a.service".
func run(t *testing.T, tree files, operation string) systemd.Report {
	t.Helper()
	verb, names, _ := strings.Cut(operation, " ")
	units := strings.Fields(names)
	switch verb {
	case "enable":
		return systemd.Enable(tree, units...)
	case "disable":
		return systemd.Disable(tree, units...)
	case "preset":
		presets, err := systemd.ReadPresets(tree)
		require.NoError(t, err)
		return systemd.Preset(tree, presets, units...)
	}
	t.Fatalf("unknown operation %q", operation)
	return systemd.Report{}
}
