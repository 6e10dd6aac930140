package recipe_test

import (
	"archive/tar"
	"bytes"
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/builder/plan"
	"github.com/layerwright/layerwright/builder/wanted/recipe"
	"github.com/layerwright/layerwright/containerfiles"
	"github.com/layerwright/layerwright/internal/fault"
	"github.com/layerwright/layerwright/machineconfigs"
	"github.com/layerwright/layerwright/osimage/osindex"
)

var (
	base       = "registry.example.com/os@sha256:" + strings.Repeat("1", 64)
	extensions = "registry.example.com/ext@sha256:" + strings.Repeat("2", 64)
)

// index is that of an image with these paths: "path" is an empty file, "path -> target" a link.
// opened gives an index of paths.
func opened(t *testing.T, paths ...string) func(context.Context) (*osindex.Index, error) {
	t.Helper()
	return func(context.Context) (*osindex.Index, error) { return index(t, paths...), nil }
}

func index(t *testing.T, paths ...string) *osindex.Index {
	t.Helper()
	var layer bytes.Buffer
	w := tar.NewWriter(&layer)
	for _, path := range paths {
		header := &tar.Header{Name: path, Mode: 0o755}
		if name, target, ok := strings.Cut(path, " -> "); ok {
			header = &tar.Header{Name: name, Typeflag: tar.TypeSymlink, Linkname: target}
		}
		require.NoError(t, w.WriteHeader(header))
	}
	require.NoError(t, w.Close())
	x := &osindex.Index{}
	require.NoError(t, x.Apply(&layer))
	return x
}

// on is a base image with its architectures.
func on(image string, platforms ...recipe.Platform) *recipe.Base {
	return &recipe.Base{Image: image, Platforms: platforms}
}

func config(t *testing.T, spec mcfgv1.MachineConfigSpec, files ...string) *machineconfigs.Config {
	t.Helper()
	var entries []string
	for _, path := range files {
		entries = append(entries, `{"path":"`+path+`","contents":{"source":"data:,x"}}`)
	}
	spec.Config = runtime.RawExtension{Raw: []byte(`{"ignition":{"version":"3.5.0"},"storage":{"files":[` + strings.Join(entries, ",") + `]}}`)}
	c, err := machineconfigs.Parse(&mcfgv1.MachineConfig{Spec: spec})
	require.NoError(t, err)
	return c
}

func source(arch mcfgv1.ContainerfileArch, text string, context ...string) containerfiles.Source {
	s := containerfiles.Source{Arch: arch, Name: "Containerfile for " + string(arch), Text: text, Context: map[string][]byte{}}
	for _, file := range context {
		s.Context[file] = []byte("content of " + file)
	}
	return s
}

func TestDescribeInputs(t *testing.T) {
	t.Parallel()
	amd64 := recipe.Platform{Architecture: mcfgv1.Amd64, Open: opened(t, "usr/bin/rpm-ostree", "opt -> var/opt")}
	arm64 := recipe.Platform{Architecture: mcfgv1.Arm64, Open: opened(t, "usr/bin/dnf")}
	tests := map[string]struct {
		recipe            recipe.Recipe
		wantConfig        []string
		wantContainerfile []mcfgv1.ContainerfileArch
		wantBuildInputs   []string
	}{
		"configuration only": {
			recipe:     recipe.Recipe{Configuration: config(t, mcfgv1.MachineConfigSpec{}, "/etc/b", "/etc/a"), Base: on(base, amd64)},
			wantConfig: []string{"file /etc/a", "file /etc/b"},
		},
		"what is in the image of one architecture counts": {
			recipe: recipe.Recipe{
				Configuration: config(t, mcfgv1.MachineConfigSpec{}, "/opt/a"),
				Base:          on(base, amd64, arm64),
			},
			wantConfig: []string{"file /opt/a"},
		},
		"what is node state does not": {
			recipe: recipe.Recipe{Configuration: config(t, mcfgv1.MachineConfigSpec{KernelArguments: []string{"quiet"}}, "/opt/a"), Base: on(base, amd64)},
		},
		"one Containerfile counts once for all its architectures": {
			recipe: recipe.Recipe{
				Configuration: config(t, mcfgv1.MachineConfigSpec{}), Base: on(base, amd64, arm64),
				Sources: []containerfiles.Source{source(mcfgv1.NoArch, "FROM configs\nRUN true\n"), source(mcfgv1.S390, "FROM configs\nRUN false\n")},
			},
			wantContainerfile: []mcfgv1.ContainerfileArch{mcfgv1.NoArch},
		},
		"an architecture's own Containerfile wins": {
			recipe: recipe.Recipe{
				Configuration: config(t, mcfgv1.MachineConfigSpec{}), Base: on(base, amd64, arm64),
				Sources: []containerfiles.Source{source(mcfgv1.NoArch, "FROM configs\nRUN true\n"), source(mcfgv1.Arm64, "FROM configs\nRUN false\n")},
			},
			wantContainerfile: []mcfgv1.ContainerfileArch{mcfgv1.Arm64, mcfgv1.NoArch},
		},
		"a Containerfile of comments is none": {
			recipe: recipe.Recipe{
				Configuration: config(t, mcfgv1.MachineConfigSpec{}), Base: on(base, amd64),
				Sources: []containerfiles.Source{source(mcfgv1.NoArch, "# later\n")},
			},
		},
		"files that are copied count, others of the ConfigMap don't": {
			recipe: recipe.Recipe{
				Configuration: config(t, mcfgv1.MachineConfigSpec{}), Base: on(base, amd64),
				Sources: []containerfiles.Source{source(mcfgv1.NoArch, "FROM configs\nCOPY tool /usr/bin/\n", "tool", "other")},
				Inputs:  recipe.BuildInputs{Items: []plan.Item{{Name: "Secret etc-pki-entitlement", Hash: "1"}}},
			},
			wantContainerfile: []mcfgv1.ContainerfileArch{mcfgv1.NoArch},
			wantBuildInputs:   []string{"Secret etc-pki-entitlement", "file tool of the build context for NoArch"},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tt.recipe.Extensions = extensions
			require.NoError(t, tt.recipe.Describe(t.Context()))
			d := tt.recipe.Described
			var gotConfig, gotBuildInputs []string
			for _, item := range d.Inputs.Config {
				gotConfig = append(gotConfig, item.Name)
			}
			for _, item := range d.Inputs.BuildInputs {
				gotBuildInputs = append(gotBuildInputs, item.Name)
			}
			var gotContainerfile []mcfgv1.ContainerfileArch
			for _, file := range d.Inputs.Containerfiles {
				gotContainerfile = append(gotContainerfile, file.Arch)
			}
			assert.Equal(t, tt.wantConfig, gotConfig)
			assert.Equal(t, tt.wantContainerfile, gotContainerfile)
			assert.Equal(t, tt.wantBuildInputs, gotBuildInputs)
			assert.Equal(t, "sha256:"+strings.Repeat("1", 64), d.Inputs.Base)
			assert.Equal(t, "sha256:"+strings.Repeat("2", 64), d.Inputs.Extensions)
			assert.Equal(t, d.Inputs.Keys(), d.Keys)
			assert.Len(t, d.Platforms, len(tt.recipe.Base.Platforms))
		})
	}
}

func TestKeysAndLineEnds(t *testing.T) {
	t.Parallel()
	keys := func(text string) plan.Keys {
		r := recipe.Recipe{
			Configuration: config(t, mcfgv1.MachineConfigSpec{}), Sources: []containerfiles.Source{source(mcfgv1.NoArch, text)},
			Base: on(base, recipe.Platform{Architecture: mcfgv1.Amd64, Open: opened(t, "usr/bin/dnf")}),
		}
		require.NoError(t, r.Describe(t.Context()))
		return r.Described.Keys
	}
	lf := keys("FROM os-base-image\nRUN true\n")
	assert.Equal(t, lf, keys("FROM os-base-image\r\nRUN true\r\n"))
	assert.NotEqual(t, lf, keys("FROM os-base-image\nRUN false\n"))
}

func TestDescribeErrors(t *testing.T) {
	t.Parallel()
	amd64 := []recipe.Platform{{Architecture: mcfgv1.Amd64, Open: opened(t, "usr/bin/rpm-ostree", "etc/dir/file")}}
	bare := []recipe.Platform{{Architecture: mcfgv1.Amd64, Open: opened(t)}}
	usbguard := mcfgv1.MachineConfigSpec{Extensions: []string{"usbguard"}}
	tests := map[string]struct {
		recipe     recipe.Recipe
		wantReason string
		want       []string
	}{
		"no architecture": {recipe: recipe.Recipe{Configuration: config(t, usbguard), Base: on(base)}, want: []string{"no architecture"}},
		"a base without digest": {
			recipe: recipe.Recipe{Configuration: config(t, mcfgv1.MachineConfigSpec{}), Base: on("registry.example.com/os:1", amd64...)},
			want:   []string{"registry.example.com/os:1", "digest"},
		},
		"a file for a directory, and a Containerfile that fails": {
			recipe: recipe.Recipe{
				Configuration: config(t, mcfgv1.MachineConfigSpec{}, "/etc/dir"), Base: on(base, amd64...),
				Sources: []containerfiles.Source{source(mcfgv1.NoArch, "FROM scratch\nADD x /\n")},
			},
			wantReason: mcfgv1.ReasonInvalidMachineConfig,
			want:       []string{"/etc/dir", "line 1"},
		},
		"extensions without their image": {
			recipe:     recipe.Recipe{Configuration: config(t, usbguard), Base: on(base, amd64...)},
			wantReason: mcfgv1.ReasonInvalidMachineConfig,
			want:       []string{"extensions image"},
		},
		"extensions on a base without package manager": {
			recipe:     recipe.Recipe{Configuration: config(t, usbguard), Base: on(base, bare...), Extensions: extensions},
			wantReason: mcfgv1.ReasonInvalidMachineConfig,
			want:       []string{"package manager"},
		},
		"a kernel of another architecture": {
			recipe: recipe.Recipe{
				Configuration: config(t, mcfgv1.MachineConfigSpec{KernelType: "64k-pages"}), Base: on(base, amd64...), Extensions: extensions,
			},
			wantReason: mcfgv1.ReasonInvalidMachineConfig,
			want:       []string{"64k-pages", "ARM64"},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := tt.recipe.Describe(t.Context())
			require.Error(t, err)
			assert.Equal(t, tt.wantReason, fault.Reason(err))
			assert.Equal(t, tt.wantReason != "", fault.IsTerminal(err))
			for _, want := range tt.want {
				assert.Contains(t, err.Error(), want)
			}
		})
	}
}

func TestRenderUsesThePackageManagerOfTheBase(t *testing.T) {
	t.Parallel()
	for manager, paths := range map[string][]string{
		"rpm-ostree install": {"usr/bin/rpm-ostree", "usr/bin/dnf"},
		"dnf install":        {"usr/bin/dnf -> dnf5", "usr/bin/dnf5"},
	} {
		r := recipe.Recipe{
			Configuration: config(t, mcfgv1.MachineConfigSpec{Extensions: []string{"usbguard"}}), Extensions: extensions,
			Base: on(base, recipe.Platform{Architecture: mcfgv1.Amd64, Open: opened(t, paths...)}),
		}
		require.NoError(t, r.Describe(t.Context()))
		d := r.Described
		rendered, err := d.Render(&d.Platforms[0], "", map[string]string{"os": "mine"})
		require.NoError(t, err)
		assert.Contains(t, rendered.Text, manager)
		assert.Contains(t, rendered.Text, "LABEL")
		assert.Equal(t, []string{base, extensions}, rendered.Images)
	}
}
