package containerfiles_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/containerfiles"
	"github.com/layerwright/layerwright/containerfiles/render"
)

func inline(arch mcfgv1.ContainerfileArch, text string) mcfgv1.MachineOSContainerfile {
	return mcfgv1.MachineOSContainerfile{ContainerfileArch: arch, Content: &text}
}

func referred(arch mcfgv1.ContainerfileArch, name, key string) mcfgv1.MachineOSContainerfile {
	return mcfgv1.MachineOSContainerfile{ContainerfileArch: arch, ConfigMapRef: &mcfgv1.ConfigMapKeyReference{Name: name, Key: key}}
}

func TestResolveSources(t *testing.T) {
	t.Parallel()
	maps := map[string]containerfiles.ConfigMap{
		"worker": {
			Data:       map[string]string{"Containerfile": "FROM configs\nCOPY a.conf /etc/\n", "a.conf": "a", "arm": "FROM os-base-image\n"},
			BinaryData: map[string][]byte{"blob": {0xff}},
		},
	}
	sources, err := containerfiles.ResolveSources([]mcfgv1.MachineOSContainerfile{
		inline("", "FROM os-base-image\n"), referred(mcfgv1.Amd64, "worker", ""), referred(mcfgv1.Arm64, "worker", "arm"),
	}, maps)
	require.NoError(t, err)
	require.Len(t, sources, 3)
	assert.Equal(t, mcfgv1.NoArch, sources[0].Arch)
	assert.Equal(t, "spec.containerFile[NoArch].content", sources[0].Name)
	assert.Equal(t, "FROM os-base-image\n", sources[0].Text)
	assert.Nil(t, sources[0].Context)
	assert.Equal(t, `ConfigMap "worker" key "Containerfile"`, sources[1].Name)
	assert.Equal(t, map[string][]byte{"a.conf": []byte("a"), "arm": []byte("FROM os-base-image\n"), "blob": {0xff}}, sources[1].Context)
	assert.Equal(t, `ConfigMap "worker" key "arm"`, sources[2].Name)
	assert.Equal(t, "FROM os-base-image\n", sources[2].Text)
}

func TestResolveSourcesReportsMissingSources(t *testing.T) {
	t.Parallel()
	text := "FROM configs"
	sources, err := containerfiles.ResolveSources([]mcfgv1.MachineOSContainerfile{
		referred("", "gone", ""), referred(mcfgv1.Amd64, "there", "x"), inline(mcfgv1.Arm64, text), inline(mcfgv1.Arm64, text),
		{ContainerfileArch: mcfgv1.S390},
		{ContainerfileArch: mcfgv1.Ppc, Content: &text, ConfigMapRef: &mcfgv1.ConfigMapKeyReference{Name: "there"}},
	}, map[string]containerfiles.ConfigMap{"there": {}})
	require.Nil(t, sources)
	require.EqualError(t, err, `spec.containerFile[NoArch]: ConfigMap "gone" does not exist
spec.containerFile[AMD64]: ConfigMap "there" has no key "x"
spec.containerFile[ARM64] is there twice
spec.containerFile[S390X] has neither content nor configMapRef
spec.containerFile[PPC64LE] has content and configMapRef: the Containerfile is in one place`)
	missing := &containerfiles.MissingError{}
	require.ErrorAs(t, err, &missing)
	require.Equal(t, "gone", missing.ConfigMap)
}

func TestContextFiles(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		text string
		used bool // b.conf is
	}{
		"a file by name":             {"FROM configs\nCOPY b.conf /etc/", true},
		"another file":               {"FROM configs\nCOPY a.conf /etc/", false},
		"a pattern":                  {"FROM configs\nCOPY *.conf /etc/", true},
		"another pattern":            {"FROM configs\nADD [\"a*\", \"/etc/\"]", false},
		"everything":                 {"FROM configs\nCOPY . /etc/", true},
		"from a stage":               {"FROM configs AS a\nFROM a\nCOPY --from=a b.conf /etc/", false},
		"a variable with a value":    {"FROM configs\nARG F=a\nCOPY $F.conf /etc/", false},
		"a variable without a value": {"FROM configs\nCOPY $F.conf /etc/", true},
		"a mount":                    {"FROM configs\nRUN --mount=target=/ctx true", true},
		"a mount of another file":    {"FROM configs\nRUN --mount=type=bind,src=a.conf,target=/ctx true", false},
		"a mount of an image":        {"FROM configs\nRUN --mount=type=bind,from=quay.io/a/b:1,target=/ctx true", false},
		"a URL":                      {"FROM configs\nADD https://x.example.com/b.conf /etc/", false},
		"a heredoc":                  {"FROM configs\nCOPY <<E /etc/b.conf\nb.conf\nE", false},
		"a text that is no text":     {"\x00", true},
		"no instructions":            {"# b.conf", false},
		"COPY before FROM":           {"COPY b.conf /etc", true},
		"a quote that does not end":  {"FROM configs\nCOPY \"b.conf /etc/", true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			source := containerfiles.Source{Text: test.text, Context: map[string][]byte{"a.conf": nil, "b.conf": nil}}
			require.Equal(t, test.used, slices.Contains(source.ContextFiles(), "b.conf"))
		})
	}
}

func TestCanonicalText(t *testing.T) {
	t.Parallel()
	tests := map[string]struct{ text, want string }{
		"line feeds":               {"FROM configs\nRUN true", "FROM configs\nRUN true"},
		"carriage returns":         {"FROM configs\r\nRUN true\r\n", "FROM configs\nRUN true\n"},
		"several before line ends": {"RUN a\r\r\n", "RUN a\n"},
		"one in the middle stays":  {"RUN a\rb", "RUN a\rb"},
		"a byte order mark":        {"\ufeffRUN a", "RUN a"},
		"nothing":                  {"", ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := containerfiles.Source{Text: tt.text}.Canonical()
			require.Equal(t, tt.want, got)
			if tt.want != "" {
				require.Equal(t, parse(t, tt.text).Lines, parse(t, got).Lines, "it is what is built")
			}
		})
	}
}

func TestSelect(t *testing.T) {
	t.Parallel()
	noArch, arm := containerfiles.Source{Arch: mcfgv1.NoArch, Text: "n"}, containerfiles.Source{Arch: mcfgv1.Arm64, Text: "a"}
	tests := map[string]struct {
		sources []containerfiles.Source
		arch    mcfgv1.ContainerfileArch
		want    string
	}{
		"its own wins over NoArch":          {[]containerfiles.Source{noArch, arm}, mcfgv1.Arm64, "a"},
		"NoArch for all others":             {[]containerfiles.Source{arm, noArch}, mcfgv1.Amd64, "n"},
		"none for others":                   {[]containerfiles.Source{arm}, mcfgv1.Amd64, ""},
		"none at all":                       {nil, mcfgv1.Amd64, ""},
		"no architecture is NoArch":         {[]containerfiles.Source{{Text: "x"}}, mcfgv1.Amd64, "x"},
		"an unknown architecture is a name": {[]containerfiles.Source{noArch}, "RISCV", "n"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, ok := containerfiles.Select(test.sources, test.arch)
			require.Equal(t, test.want != "", ok)
			require.Equal(t, test.want, got.Text)
		})
	}
	all := containerfiles.ForArchitectures([]containerfiles.Source{arm, noArch}, []mcfgv1.ContainerfileArch{mcfgv1.Amd64, mcfgv1.Arm64})
	require.Equal(t, map[mcfgv1.ContainerfileArch]containerfiles.Source{mcfgv1.Amd64: noArch, mcfgv1.Arm64: arm}, all)
	require.Empty(t, containerfiles.ForArchitectures([]containerfiles.Source{arm}, []mcfgv1.ContainerfileArch{mcfgv1.Amd64}))
}

func TestExtensionsAreThePublishedOnes(t *testing.T) {
	t.Parallel()
	require.Equal(t, []string{"ipsec", "kerberos", "kernel-devel", "sandboxed-containers", "sysstat", "two-node-ha", "usbguard"}, render.Extensions())
	require.Equal(t, []string{"NetworkManager-libreswan", "libreswan", "openvswitch3.5-ipsec"}, render.ExtensionPackages("ipsec"))
	require.Equal(t, []string{"fence-agents-all", "pacemaker", "pcs"}, render.ExtensionPackages("two-node-ha"))
	require.Nil(t, render.ExtensionPackages("x"))
}
