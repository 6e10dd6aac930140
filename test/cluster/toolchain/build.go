package toolchain

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/layerwright/layerwright/test/cluster/files"
)

// coldSpace is what a build from nothing needs: module cache, build cache and
// the programs themselves.
const coldSpace = 8 << 30

// Toolchain finds and builds sets of programs.
type Toolchain struct {
	repository string
	cache      string
	// Run executes a program in a folder with additions to the environment and
	// returns its standard output; New sets it to os/exec.
	Run func(ctx context.Context, dir string, env []string, argv ...string) ([]byte, error)
}

// New returns the Toolchain of a checkout that keeps what it builds in cache.
func New(repository, cache string) *Toolchain {
	return &Toolchain{repository: repository, cache: cache, Run: run}
}

// NotBuiltError says that a set is not in the cache.
type NotBuiltError struct{ Set string }

func (e *NotBuiltError) Error() string {
	asked := map[string]string{Tekton.Name: " TEKTON=1", Helm.Name: " HELM=1", OSTreeExt.Name: " CONFORMANCE=1"}[e.Set]
	if slices.ContainsFunc(SigningServices, func(s Set) bool { return s.Name == e.Set }) {
		asked = " SIGNING=1"
	}
	return fmt.Sprintf("the %s programs are not built yet: run `make tools%s` (minutes, once)", e.Set, asked)
}

// Find returns the folder with a set's programs, or a *NotBuiltError.
func (t *Toolchain) Find(ctx context.Context, set Set) (bin string, err error) {
	key, err := t.key(ctx, set)
	if err != nil {
		return "", err
	}
	bin = t.folder(set, key)
	if _, err := os.Stat(bin); errors.Is(err, fs.ErrNotExist) {
		return "", &NotBuiltError{Set: set.Name}
	} else if err != nil {
		return "", err
	}
	return bin, nil
}

// Ensure returns the folder with a set's programs and builds them if needed.
// Processes that want the same set wait for one of them to build it.
func (t *Toolchain) Ensure(ctx context.Context, set Set, detail func(format string, args ...any)) (bin string, err error) {
	unlock, err := files.Lock(ctx, filepath.Join(t.cache, "tools", set.Name+".lock"))
	if err != nil {
		return "", err
	}
	defer unlock()
	bin, err = t.Find(ctx, set)
	if missing := (*NotBuiltError)(nil); !errors.As(err, &missing) {
		return bin, err
	}
	if err := RequireSpace(t.cache, coldSpace); err != nil {
		return "", err
	}
	if err := t.requireLibraries(ctx, set); err != nil {
		return "", err
	}
	return t.build(ctx, set, detail)
}

// build makes the set in a scratch folder and moves it to its place at the end.
func (t *Toolchain) build(ctx context.Context, set Set, detail func(string, ...any)) (string, error) {
	key, err := t.key(ctx, set)
	if err != nil {
		return "", err
	}
	scratch, err := os.MkdirTemp(filepath.Join(t.cache, "tools"), "."+set.Name+"-")
	if err != nil {
		return "", err
	}
	defer func() { _ = os.RemoveAll(scratch) }()
	flags, err := t.linkFlags(ctx, set)
	if err != nil {
		return "", err
	}
	for _, b := range set.builds {
		for _, pkg := range b.packages {
			detail("compiling %s", pkg)
			if err := t.compile(ctx, set, b, compilation{pkg: pkg, ldflags: flags, out: scratch}); err != nil {
				return "", err
			}
		}
	}
	for _, link := range set.Links {
		if err := os.Symlink(set.Name, filepath.Join(scratch, link)); err != nil {
			return "", err
		}
	}
	if err := os.Chmod(scratch, 0o755); err != nil {
		return "", err
	}
	bin := t.folder(set, key)
	if err := os.Rename(scratch, bin); err != nil {
		return "", err
	}
	return bin, t.removeOthers(set, bin)
}

// compilation is that of one program: pkg into the folder out.
type compilation struct{ pkg, ldflags, out string }

func (t *Toolchain) compile(ctx context.Context, set Set, b build, c compilation) error {
	if t.isRust(set) {
		return t.compileRust(ctx, set, c)
	}
	argv := []string{"go", "build", "-trimpath", "-ldflags", c.ldflags, "-o", c.out + "/"}
	if c.pkg == "." {
		argv[len(argv)-1] = filepath.Join(c.out, set.Name)
	}
	if b.tags != "" {
		argv = append(argv, "-tags", b.tags)
	}
	cgo := "CGO_ENABLED=0"
	if b.cgo {
		cgo = "CGO_ENABLED=1"
	}
	// Flags and workspaces that a developer set for the product don't fit here.
	_, err := t.Run(ctx, filepath.Join(t.repository, set.Dir), []string{cgo, "GOFLAGS=", "GOWORK=off"}, append(argv, c.pkg)...)
	return t.builtOrNot(c.pkg, err)
}

// isRust reports whether a set is a project of Cargo's.
func (t *Toolchain) isRust(set Set) bool {
	_, err := os.Stat(filepath.Join(t.repository, set.Dir, "Cargo.toml"))
	return err == nil
}

// compileRust keeps nothing of what is compiled on the way: it is large, and no other program uses
// it.
func (t *Toolchain) compileRust(ctx context.Context, set Set, c compilation) error {
	target := filepath.Join(c.out, "target")
	_, err := t.Run(ctx, filepath.Join(t.repository, set.Dir), nil, "cargo", "build", "--release", "--locked", "--quiet", "--target-dir", target, "--bin", c.pkg)
	if err := t.builtOrNot(c.pkg, err); err != nil {
		return err
	}
	if err := os.Rename(filepath.Join(target, "release", c.pkg), filepath.Join(c.out, c.pkg)); err != nil {
		return err
	}
	return os.RemoveAll(target)
}

// builtOrNot is the error of a compiler.
func (t *Toolchain) builtOrNot(pkg string, err error) error {
	if errors.Is(err, unix.ENOSPC) || (err != nil && strings.Contains(err.Error(), unix.ENOSPC.Error())) {
		err = fmt.Errorf("%w (folders: %s, and the compiler's own caches)", err, t.cache)
	}
	if err != nil {
		return fmt.Errorf("building %s: %w", pkg, err)
	}
	return nil
}

func (t *Toolchain) linkFlags(ctx context.Context, set Set) (string, error) {
	if set.stamp == "" {
		return ldflags(""), nil
	}
	version, err := t.Run(ctx, filepath.Join(t.repository, set.Dir), []string{"GOFLAGS=", "GOWORK=off"}, "go", "list", "-m", "-f", "{{.Version}}", set.stamp)
	if err != nil {
		return "", fmt.Errorf("asking for the version of %s: %w", set.stamp, err)
	}
	return ldflags(string(bytes.TrimSpace(version))), nil
}

// requireLibraries names the packages that a cgo build lacks.
func (t *Toolchain) requireLibraries(ctx context.Context, set Set) error {
	deps := "deps"
	if t.isRust(set) {
		deps = "conformance-deps"
	}
	for _, b := range set.builds {
		if !b.cgo {
			continue
		}
		checks, needs := [][]string{{"gcc", "--version"}}, "a C compiler"
		if len(b.libraries) > 0 {
			needs += ", pkg-config and " + strings.Join(b.libraries, ", ")
		}
		for _, library := range b.libraries {
			checks = append(checks, []string{"pkg-config", "--exists", library})
		}
		for _, check := range checks {
			if _, err := t.Run(ctx, "/", nil, check...); err != nil {
				return fmt.Errorf("building %s needs %s: run `make %s`: %w", b.packages[0], needs, deps, err)
			}
		}
	}
	return nil
}

// removeOthers deletes what earlier pins of the set have left.
func (t *Toolchain) removeOthers(set Set, keep string) error {
	folders, err := filepath.Glob(filepath.Join(t.cache, "tools", set.Name+"-*"))
	if err != nil {
		return err
	}
	for _, folder := range folders {
		if folder != keep && !InUse(folder) {
			if err := os.RemoveAll(folder); err != nil {
				return err
			}
		}
	}
	return nil
}

// InUse reports whether a process runs a program of the folder.
func InUse(folder string) bool {
	programs, _ := filepath.Glob("/proc/[0-9]*/exe")
	return slices.ContainsFunc(programs, func(exe string) bool {
		target, err := os.Readlink(exe)
		return err == nil && strings.HasPrefix(target, folder+"/")
	})
}

func (t *Toolchain) folder(set Set, key string) string {
	return filepath.Join(t.cache, "tools", set.Name+"-"+key)
}

// key is a hash over all that goes into a set.
func (t *Toolchain) key(ctx context.Context, set Set) (string, error) {
	goVersion, err := t.Run(ctx, t.repository, nil, "go", "env", "GOVERSION")
	if err != nil {
		return "", fmt.Errorf("asking for the version of Go: %w", err)
	}
	sum := sha256.New()
	fmt.Fprintf(sum, "%s %s %s\n%+v %v\n", bytes.TrimSpace(goVersion), runtime.GOOS, runtime.GOARCH, set, ldflags("v0.0.0"))
	if t.isRust(set) {
		rustVersion, err := t.Run(ctx, t.repository, nil, "rustc", "--version")
		if err != nil {
			return "", fmt.Errorf("asking for the version of Rust, which %s is written in: %w", set.Name, err)
		}
		sum.Write(rustVersion)
	}
	for _, pattern := range []string{"go.mod", "go.sum", "*.go", "Cargo.toml", "Cargo.lock", ".cargo/config.toml", "src/*.rs"} {
		files, err := filepath.Glob(filepath.Join(t.repository, set.Dir, pattern))
		if err != nil {
			return "", err
		}
		for _, file := range files {
			content, err := os.ReadFile(file)
			if err != nil {
				return "", err
			}
			fmt.Fprintf(sum, "%s %d\n", filepath.Base(file), len(content))
			sum.Write(content)
		}
	}
	return hex.EncodeToString(sum.Sum(nil))[:12], nil
}

func run(ctx context.Context, dir string, env []string, argv ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), env...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s: %w\n%s", strings.Join(argv, " "), err, lastBytes(stderr.Bytes(), 4<<10))
	}
	return out, nil
}

func lastBytes(b []byte, n int) []byte {
	return bytes.TrimSpace(b[max(0, len(b)-n):])
}
