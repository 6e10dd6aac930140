package machine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/layerwright/layerwright/test/host/deployments"
)

// bundle is where ostree is in a host, with the libraries that it is linked against.
const bundle = "usr/libexec/layerwright-host"

// programs are what the stand-in is called by.
var programs = []string{"bootc", "rpm-ostree", "ostree", "systemctl", "systemd-run"}

// prepareRootPaths are where distributions have it.
var prepareRootPaths = []string{"/usr/lib/ostree/ostree-prepare-root", "/usr/libexec/ostree/ostree-prepare-root"}

// Install makes the folder of tools anew: this machine's ostree, and the stand-in.
func Install(ctx context.Context, dir, standIn string) error {
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	target := filepath.Join(dir, "usr", "libexec", "layerwright-host")
	for _, d := range []string{filepath.Join(dir, "usr", "bin"), filepath.Join(target, "lib")} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			return err
		}
	}
	if err := copyFile(standIn, filepath.Join(target, "standin")); err != nil {
		return err
	}
	for _, p := range programs {
		if err := os.Symlink("../libexec/layerwright-host/standin", filepath.Join(dir, "usr", "bin", p)); err != nil {
			return err
		}
	}
	ostree, err := exec.LookPath("ostree")
	if err != nil {
		return fmt.Errorf("looking for ostree (Debian packages ostree and ostree-boot): %w", err)
	}
	prepareRoot, err := firstOf(prepareRootPaths)
	if err != nil {
		return err
	}
	for _, program := range []string{ostree, prepareRoot} {
		if err := bundleProgram(ctx, program, target); err != nil {
			return fmt.Errorf("copying %s with its libraries: %w", program, err)
		}
	}
	return nil
}

func firstOf(paths []string) (string, error) {
	for _, p := range paths {
		if _, err := os.Stat(p); err == nil {
			return p, nil
		}
	}
	return "", fmt.Errorf("looking for ostree-prepare-root (Debian package ostree-boot): %w", fs.ErrNotExist)
}

// bundleProgram copies a program, its libraries and its loader.
func bundleProgram(ctx context.Context, program, target string) error {
	out, err := exec.CommandContext(ctx, "ldd", program).Output()
	if err != nil {
		return err
	}
	libraries, loader := parseLDD(string(out))
	if loader == "" {
		return errors.New("ldd names no loader")
	}
	if err := copyFile(loader, filepath.Join(target, "lib", "ld-linux")); err != nil {
		return err
	}
	for _, l := range libraries {
		if err := copyFile(l, filepath.Join(target, "lib", filepath.Base(l))); err != nil {
			return err
		}
	}
	return copyFile(program, filepath.Join(target, filepath.Base(program)))
}

// parseLDD reads "libc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x...)" and
// "/lib64/ld-linux-x86-64.so.2 (0x...)".
func parseLDD(text string) (libraries []string, loader string) {
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		switch {
		case len(fields) >= 3 && fields[1] == "=>":
			libraries = append(libraries, fields[2])
		case len(fields) > 0 && strings.HasPrefix(fields[0], "/"):
			loader = fields[0]
		}
	}
	return libraries, loader
}

func copyFile(from, to string) error {
	content, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	if present, err := os.ReadFile(to); err == nil && bytes.Equal(present, content) {
		return nil
	}
	return os.WriteFile(to, content, 0o755)
}

// Erase removes a machine's disk. Deployments are immutable, as ostree makes them.
func Erase(disk string) error {
	roots, err := filepath.Glob(filepath.Join(disk, "ostree", "deploy", deployments.Stateroot, "deploy", "*"))
	if err != nil {
		return err
	}
	for _, root := range roots {
		if info, err := os.Lstat(root); err != nil || !info.IsDir() {
			continue
		}
		if err := setMutable(root); err != nil {
			return err
		}
	}
	return os.RemoveAll(disk)
}
