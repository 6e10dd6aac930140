package toolchain

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// fakeGo stands in for the Go tool: it writes what it is asked to build.
type fakeGo struct {
	mu     sync.Mutex
	builds []string
	fail   map[string]error
	rust   string
}

func (f *fakeGo) run(_ context.Context, _ string, env []string, argv ...string) ([]byte, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	call := strings.Join(argv, " ")
	for part, err := range f.fail {
		if strings.Contains(call, part) {
			return nil, err
		}
	}
	switch {
	case strings.HasPrefix(call, "go env"):
		return []byte("go1.26.0\n"), nil
	case strings.HasPrefix(call, "rustc"):
		return []byte(f.rust), nil
	case strings.HasPrefix(call, "cargo build"):
		f.builds = append(f.builds, call)
		out := filepath.Join(argv[slices.Index(argv, "--target-dir")+1], "release")
		if err := os.MkdirAll(out, 0o755); err != nil {
			return nil, err
		}
		return nil, os.WriteFile(filepath.Join(out, argv[len(argv)-1]), []byte("program"), 0o755)
	case strings.HasPrefix(call, "go list -m"):
		return []byte("v1.36.3\n"), nil
	case strings.HasPrefix(call, "go build"):
		f.builds = append(f.builds, strings.Join(env, " ")+" "+call)
		out := argv[slices.Index(argv, "-o")+1]
		if strings.HasSuffix(out, "/") {
			out += filepath.Base(argv[len(argv)-1])
		}
		return nil, os.WriteFile(out, []byte("program"), 0o755)
	}
	return nil, nil
}

func setUp(t *testing.T) (*Toolchain, *fakeGo, string) {
	t.Helper()
	repository, cache := t.TempDir(), t.TempDir()
	for _, set := range All {
		dir := filepath.Join(repository, set.Dir)
		require.NoError(t, os.MkdirAll(dir, 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(dir, "go.mod"), []byte("module "+set.Name), 0o644))
	}
	fake := &fakeGo{}
	tools := New(repository, cache)
	tools.Run = fake.run
	return tools, fake, cache
}

func silent(string, ...any) {}

func TestEnsureBuildsOnce(t *testing.T) {
	t.Parallel()
	tools, fake, _ := setUp(t)
	_, err := tools.Find(t.Context(), Kubernetes)
	var missing *NotBuiltError
	require.ErrorAs(t, err, &missing)
	require.ErrorContains(t, err, "make tools`")
	_, err = tools.Find(t.Context(), Vault)
	require.ErrorContains(t, err, "make tools SIGNING=1`", "it is built for make e2e-signing alone")

	var said []string
	bin, err := tools.Ensure(t.Context(), Kubernetes, func(format string, args ...any) { said = append(said, fmt.Sprintf(format, args...)) })
	require.NoError(t, err)
	require.Equal(t, []string{"compiling ."}, said)
	require.Len(t, fake.builds, 1)
	require.Contains(t, fake.builds[0], "CGO_ENABLED=0")
	require.Contains(t, fake.builds[0], "-X k8s.io/component-base/version.gitVersion=v1.36.3")
	require.Contains(t, fake.builds[0], "-X k8s.io/client-go/pkg/version.gitMinor=36")
	for _, program := range Kubernetes.Links {
		require.FileExists(t, filepath.Join(bin, program))
	}

	again, err := tools.Ensure(t.Context(), Kubernetes, silent)
	require.NoError(t, err)
	require.Equal(t, bin, again)
	found, err := tools.Find(t.Context(), Kubernetes)
	require.NoError(t, err)
	require.Equal(t, bin, found)
	require.Len(t, fake.builds, 1)
}

func TestChangedPinBuildsAnewAndForgetsTheOld(t *testing.T) {
	t.Parallel()
	tools, fake, _ := setUp(t)
	before, err := tools.Ensure(t.Context(), DNS, silent)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(tools.repository, DNS.Dir, "go.sum"), []byte("other"), 0o644))
	after, err := tools.Ensure(t.Context(), DNS, silent)
	require.NoError(t, err)
	require.NotEqual(t, before, after)
	require.NoDirExists(t, before)
	require.Len(t, fake.builds, 2)
}

func TestConcurrentEnsureBuildsOnce(t *testing.T) {
	t.Parallel()
	tools, fake, _ := setUp(t)
	var group sync.WaitGroup
	errs := make([]error, 8)
	for i := range errs {
		group.Go(func() { _, errs[i] = tools.Ensure(t.Context(), Node, silent) })
	}
	group.Wait()
	require.NoError(t, errors.Join(errs...))
	require.Len(t, fake.builds, 7, "six programs and runc, each once")
	require.Contains(t, fake.builds[6], "CGO_ENABLED=1")
}

func TestBuildahIsBuiltWithCgo(t *testing.T) {
	t.Parallel()
	tools, fake, _ := setUp(t)
	fake.fail = map[string]error{"gcc": errors.New("not found")}
	_, err := tools.Ensure(t.Context(), Buildah, silent)
	require.ErrorContains(t, err, "needs a C compiler: run `make deps`")
	fake.fail = nil
	bin, err := tools.Ensure(t.Context(), Buildah, silent)
	require.NoError(t, err)
	require.FileExists(t, filepath.Join(bin, "buildah"))
	require.Len(t, fake.builds, 1)
	require.Contains(t, fake.builds[0], "CGO_ENABLED=1")
	require.Contains(t, fake.builds[0], "containers_image_openpgp")
}

func TestEnsureFailures(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		call string
		err  error
		want []string
	}{
		"names the missing library and the fix": {
			call: "pkg-config", err: errors.New("exit status 1"),
			want: []string{"libseccomp", "make deps"},
		},
		"names the program that doesn't compile": {
			call: "cmd/ctr", err: errors.New("undefined: x"),
			want: []string{"building github.com/containerd/containerd/v2/cmd/ctr", "undefined: x"},
		},
		"names the folder of a full disk": {
			call: "cmd/ctr", err: errors.New("write: no space left on device"),
			want: []string{"no space left", "folders: "},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tools, fake, cache := setUp(t)
			fake.fail = map[string]error{tc.call: tc.err}
			_, err := tools.Ensure(t.Context(), Node, silent)
			require.Error(t, err)
			for _, want := range tc.want {
				require.ErrorContains(t, err, want)
			}
			left, err := filepath.Glob(filepath.Join(cache, "tools", ".*-*"))
			require.NoError(t, err)
			require.Empty(t, left, "a failed build leaves nothing half done")

			fake.fail = nil
			_, err = tools.Ensure(t.Context(), Node, silent)
			require.NoError(t, err, "and can be repeated")
		})
	}
}

func TestRequireSpace(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	require.NoError(t, RequireSpace(dir, 1))
	err := RequireSpace(dir, 1<<62)
	require.ErrorContains(t, err, dir)
	require.ErrorContains(t, err, CacheVariable)
}

func TestRepositoryRoot(t *testing.T) {
	t.Parallel()
	root, err := RepositoryRoot(".")
	require.NoError(t, err)
	require.FileExists(t, filepath.Join(root, "go.mod"))
	_, err = RepositoryRoot("/")
	require.ErrorContains(t, err, "not inside a checkout")
}

func TestPinnedModulesExist(t *testing.T) {
	t.Parallel()
	root, err := RepositoryRoot(".")
	require.NoError(t, err)
	for _, set := range All {
		require.FileExists(t, filepath.Join(root, set.Dir, "go.mod"))
	}
}

func TestRustIsBuiltByCargo(t *testing.T) {
	t.Parallel()
	tools, fake, _ := setUp(t)
	project := filepath.Join(tools.repository, OSTreeExt.Dir)
	require.NoError(t, os.MkdirAll(filepath.Join(project, "src"), 0o755))
	for _, file := range []string{"Cargo.toml", "Cargo.lock", "src/main.rs"} {
		require.NoError(t, os.WriteFile(filepath.Join(project, file), []byte("1"), 0o600))
	}
	_, err := tools.Find(t.Context(), OSTreeExt)
	require.ErrorContains(t, err, "make tools CONFORMANCE=1`")
	bin, err := tools.Ensure(t.Context(), OSTreeExt, silent)
	require.NoError(t, err)
	require.FileExists(t, filepath.Join(bin, "ostree-ext-cli"))
	require.NoDirExists(t, filepath.Join(bin, "target"), "what was compiled on the way is not kept")
	require.Len(t, fake.builds, 1)
	require.Contains(t, fake.builds[0], "--locked")

	seen := map[string]bool{bin: true}
	for _, change := range []func(){
		func() { fake.rust = "rustc 2.0" },
		func() { require.NoError(t, os.WriteFile(filepath.Join(project, "Cargo.lock"), []byte("2"), 0o600)) },
		func() { require.NoError(t, os.WriteFile(filepath.Join(project, "src/main.rs"), []byte("2"), 0o600)) },
	} {
		change()
		bin, err := tools.Ensure(t.Context(), OSTreeExt, silent)
		require.NoError(t, err)
		require.False(t, seen[bin], "it is built anew")
		seen[bin] = true
	}

	fake.fail = map[string]error{"--exists libzstd": os.ErrNotExist}
	fake.rust = "rustc 3.0"
	_, err = tools.Ensure(t.Context(), OSTreeExt, silent)
	require.ErrorContains(t, err, "building ostree-ext-cli needs a C compiler, pkg-config and ostree-1, libzstd, openssl: run `make conformance-deps`")
	fake.fail = map[string]error{"rustc": os.ErrNotExist}
	_, err = tools.Find(t.Context(), OSTreeExt)
	require.ErrorContains(t, err, "asking for the version of Rust, which ostree-ext is written in")
}
