package plan_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/builder/plan"
)

const (
	baseDigest       = "sha256:1111111111111111111111111111111111111111111111111111111111111111"
	extensionsDigest = "sha256:2222222222222222222222222222222222222222222222222222222222222222"
)

// inputs are those of an image that has everything, as changed by the test.
func inputs(changes ...func(*plan.Inputs)) plan.Inputs {
	in := plan.Inputs{
		Base:           baseDigest,
		Extensions:     extensionsDigest,
		ExtensionNames: []string{"kerberos", "usbguard"},
		KernelType:     "realtime",
		Containerfiles: []plan.Containerfile{
			{Arch: mcfgv1.Arm64, Text: "FROM os-base-image\nRUN true\n"},
			{Arch: mcfgv1.NoArch, Text: "FROM os-base-image\nRUN dnf install -y htop\nRUN bootc container lint\n"},
		},
		BuildInputs: []plan.Item{{Name: "ConfigMap etc-yum-repos-d", Hash: "aa"}},
		Config: []plan.Item{
			{Name: "file /etc/chrony.conf", Hash: "01"},
			{Name: "file /etc/motd", Hash: "02"},
			{Name: "unit chronyd.service", Hash: "03"},
		},
	}
	for _, change := range changes {
		change(&in)
	}
	return in
}

// bare takes away everything that is built.
func bare(in *plan.Inputs) {
	in.ExtensionNames, in.KernelType, in.Containerfiles = nil, "", nil
}

func TestKeysDoNotChangeByAccident(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		in   plan.Inputs
		want plan.Keys
	}{
		"everything": {in: inputs(), want: plan.Keys{Content: "525638dbef5c82fbcc7b82bb4ecae8ef", Build: "c98fbe9ddc669b9f14b18949081fdb2c"}},
		"architectures": {
			in: inputs(func(in *plan.Inputs) {
				in.Architectures = []mcfgv1.Architecture{mcfgv1.ArchitectureARM64, mcfgv1.ArchitectureAMD64}
			}),
			want: plan.Keys{Content: "bbc41ddef9f5b6849ae639754a9f7fea", Build: "611e86dad002ee0d38bead2298191fe1"},
		},
		"configuration only": {in: inputs(bare), want: plan.Keys{Content: "ece6cf1df42deb2b2d5d159c680283c3", Build: "458ace22edfb81af1877a3e6197af771"}},
		"nothing":            {want: plan.Keys{Content: "6d1f6c00eb98f2b8318cb5e256e36011", Build: "e66127ee0d2e0575e06f158a5caf37d9"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			assert.Equal(t, tt.want, tt.in.Keys(),
				"clusters would build again: if another image is meant to come from the same inputs, say so in a version of keys.go")
		})
	}
}

func TestKeysAndExplain(t *testing.T) {
	t.Parallel()
	type effect struct{ content, build bool }
	var (
		nothing = effect{}
		config  = effect{build: true}
		both    = effect{content: true, build: true}
	)
	text := func(i int, text string) func(*plan.Inputs) {
		return func(in *plan.Inputs) { in.Containerfiles[i].Text = text }
	}
	tests := map[string]struct {
		from   func(*plan.Inputs) // applied to both sides
		change func(*plan.Inputs)
		keys   effect
		want   []string
		inputs []mcfgv1.BuildInput
	}{
		"the same":              {change: func(*plan.Inputs) {}, keys: nothing},
		"lists in other orders": {change: shuffle, keys: nothing},
		"an extension named twice": {
			change: func(in *plan.Inputs) { in.ExtensionNames = append(in.ExtensionNames, "kerberos") },
			keys:   nothing,
		},
		"another base": {
			change: func(in *plan.Inputs) { in.Base = "sha256:3333333333333333" },
			keys:   both,
			want:   []string{"base image digest changed from sha256:111111111111 to sha256:333333333333"},
			inputs: []mcfgv1.BuildInput{mcfgv1.BuildInputBaseImage},
		},
		"another architecture": {
			change: func(in *plan.Inputs) {
				in.Architectures = []mcfgv1.Architecture{mcfgv1.ArchitectureARM64, mcfgv1.ArchitectureAMD64}
			},
			keys:   both,
			want:   []string{"architecture amd64 added", "architecture arm64 added"},
			inputs: []mcfgv1.BuildInput{mcfgv1.BuildInputBaseImage},
		},
		"another extensions image": {
			change: func(in *plan.Inputs) { in.Extensions = "sha256:33" },
			keys:   both,
			want:   []string{"extensions image digest changed from sha256:222222222222 to sha256:33"},
			inputs: []mcfgv1.BuildInput{mcfgv1.BuildInputExtensionsImage},
		},
		"another extensions image of which nothing is used": {
			from:   func(in *plan.Inputs) { in.ExtensionNames, in.KernelType = nil, "default" },
			change: func(in *plan.Inputs) { in.Extensions = "sha256:33" },
			keys:   nothing,
		},
		"the first extension, which needs the extensions image": {
			from:   bare,
			change: func(in *plan.Inputs) { in.ExtensionNames = []string{"usbguard"} },
			keys:   both,
			want:   []string{"extensions image digest added", "extension usbguard added", "ConfigMap etc-yum-repos-d added"},
			inputs: []mcfgv1.BuildInput{mcfgv1.BuildInputExtensionsImage, mcfgv1.BuildInputExtensions, mcfgv1.BuildInputBuildInputs},
		},
		"an extension less": {
			change: func(in *plan.Inputs) { in.ExtensionNames = []string{"usbguard"} },
			keys:   both,
			want:   []string{"extension kerberos removed"},
			inputs: []mcfgv1.BuildInput{mcfgv1.BuildInputExtensions},
		},
		"another kernel": {
			change: func(in *plan.Inputs) { in.KernelType = "" },
			keys:   both,
			want:   []string{"kernel type changed from realtime to default"},
			inputs: []mcfgv1.BuildInput{mcfgv1.BuildInputKernelType},
		},
		"the default kernel by name": {
			from:   func(in *plan.Inputs) { in.KernelType = "" },
			change: func(in *plan.Inputs) { in.KernelType = "default" },
			keys:   nothing,
		},
		"a line of the Containerfile": {
			change: text(1, "FROM os-base-image\nRUN dnf install -y htop tree\nRUN bootc container lint\n"),
			keys:   both,
			want:   []string{"Containerfile line 2 changed"},
			inputs: []mcfgv1.BuildInput{mcfgv1.BuildInputContainerfile},
		},
		"lines of the Containerfile in two places": {
			change: text(1, "FROM configs\nRUN dnf install -y htop\nRUN a\nRUN b\nRUN bootc container lint\n"),
			keys:   both,
			want:   []string{"Containerfile line 1 changed", "Containerfile lines 3-4 added"},
			inputs: []mcfgv1.BuildInput{mcfgv1.BuildInputContainerfile},
		},
		"a line that is gone": {
			change: text(1, "FROM os-base-image\nRUN bootc container lint\n"),
			keys:   both,
			want:   []string{"Containerfile line 2 removed"},
			inputs: []mcfgv1.BuildInput{mcfgv1.BuildInputContainerfile},
		},
		"the end of the last line": {
			change: text(1, "FROM os-base-image\nRUN dnf install -y htop\nRUN bootc container lint"),
			keys:   both,
			want:   []string{"Containerfile line 3 changed"},
			inputs: []mcfgv1.BuildInput{mcfgv1.BuildInputContainerfile},
		},
		"a line for one architecture": {
			change: text(0, "FROM os-base-image\nRUN false\n"),
			keys:   both,
			want:   []string{"Containerfile for ARM64 line 2 changed"},
			inputs: []mcfgv1.BuildInput{mcfgv1.BuildInputContainerfile},
		},
		"a Containerfile for another architecture": {
			change: func(in *plan.Inputs) { in.Containerfiles[0].Arch = mcfgv1.S390 },
			keys:   both,
			want:   []string{"Containerfile for ARM64 removed", "Containerfile for S390X added"},
			inputs: []mcfgv1.BuildInput{mcfgv1.BuildInputContainerfile},
		},
		"an empty Containerfile": {
			change: func(in *plan.Inputs) {
				in.Containerfiles = append(in.Containerfiles, plan.Containerfile{Arch: mcfgv1.Amd64})
			},
			keys: nothing,
		},
		"an architecture left out, which means all": {
			change: func(in *plan.Inputs) { in.Containerfiles[1].Arch = "" },
			keys:   nothing,
		},
		"a package repository": {
			change: func(in *plan.Inputs) { in.BuildInputs[0].Hash = "bb" },
			keys:   both,
			want:   []string{"ConfigMap etc-yum-repos-d changed"},
			inputs: []mcfgv1.BuildInput{mcfgv1.BuildInputBuildInputs},
		},
		"a package repository where nothing is built": {
			from:   bare,
			change: func(in *plan.Inputs) { in.BuildInputs[0].Hash = "bb" },
			keys:   nothing,
		},
		"a file's content": {
			change: func(in *plan.Inputs) { in.Config[0].Hash = "0f" },
			keys:   config,
			want:   []string{"file /etc/chrony.conf changed"},
			inputs: []mcfgv1.BuildInput{mcfgv1.BuildInputMachineConfig},
		},
		"a file's path": {
			change: func(in *plan.Inputs) { in.Config[0].Name = "file /etc/chrony.d/a.conf" },
			keys:   config,
			want:   []string{"file /etc/chrony.conf removed", "file /etc/chrony.d/a.conf added"},
			inputs: []mcfgv1.BuildInput{mcfgv1.BuildInputMachineConfig},
		},
		"no configuration any more": {
			change: func(in *plan.Inputs) { in.Config = nil },
			keys:   config,
			want:   []string{"file /etc/chrony.conf removed", "file /etc/motd removed", "unit chronyd.service removed"},
			inputs: []mcfgv1.BuildInput{mcfgv1.BuildInputMachineConfig},
		},
		"the way in which a configuration becomes a layer": {
			change: func(in *plan.Inputs) { in.ConfigVersion++ },
			keys:   config,
			want:   []string{"format of the configuration layer changed"},
			inputs: []mcfgv1.BuildInput{mcfgv1.BuildInputMachineConfig},
		},
		"configuration where nothing is built": {
			from:   bare,
			change: func(in *plan.Inputs) { in.Config = append(in.Config, plan.Item{Name: "unit a.service", Hash: "1"}) },
			keys:   config,
			want:   []string{"unit a.service added"},
			inputs: []mcfgv1.BuildInput{mcfgv1.BuildInputMachineConfig},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			from := tt.from
			if from == nil {
				from = func(*plan.Inputs) {}
			}
			older, newer := inputs(from), inputs(from, tt.change)
			was, is := older.Keys(), newer.Keys()
			assert.Equal(t, tt.keys.content, was.Content != is.Content, "content key changes")
			assert.Equal(t, tt.keys.build, was.Build != is.Build, "build key changes")

			var got []string
			for _, change := range plan.Explain(&older, &newer) {
				got = append(got, change.String())
			}
			assert.Equal(t, tt.want, got)
			assert.Equal(t, tt.inputs, plan.ChangedInputs(plan.Explain(&older, &newer)))
			assert.Len(t, plan.Explain(&newer, &older), len(tt.want), "the way back has as many steps")
		})
	}
}

// shuffle puts every list into another order.
func shuffle(in *plan.Inputs) {
	slices.Reverse(in.ExtensionNames)
	slices.Reverse(in.Containerfiles)
	slices.Reverse(in.BuildInputs)
	slices.Reverse(in.Config)
}

func TestKeysLeaveTheInputsAlone(t *testing.T) {
	t.Parallel()
	in := inputs(shuffle)
	in.Keys()
	assert.Equal(t, inputs(shuffle), in)
}

// TestExplainAgreesWithKeys tries random pairs: there is something to explain exactly if the build
// keys differ.
func TestExplainAgreesWithKeys(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // a seed that a failure can be repeated with
	word := func() string { return string(rune('a' + random.IntN(3))) }
	items := func() (items []plan.Item) {
		for range random.IntN(3) {
			items = append(items, plan.Item{Name: word(), Hash: word()})
		}
		return items
	}
	some := func() plan.Inputs {
		in := plan.Inputs{Base: word(), BuildInputs: items(), Config: items(), ConfigVersion: random.IntN(2)}
		if random.IntN(2) == 0 {
			in.Extensions, in.KernelType = word(), []string{"", "default", "realtime"}[random.IntN(3)]
		}
		in.Architectures = [][]mcfgv1.Architecture{nil, {mcfgv1.ArchitectureARM64}, {mcfgv1.ArchitectureARM64, mcfgv1.ArchitectureAMD64}}[random.IntN(3)]
		if random.IntN(2) == 0 {
			in.ExtensionNames = []string{word(), word()}
		}
		for _, arch := range []mcfgv1.ContainerfileArch{"", mcfgv1.Arm64}[:random.IntN(3)] {
			in.Containerfiles = append(in.Containerfiles, plan.Containerfile{Arch: arch, Text: strings.Repeat(word()+"\n", random.IntN(3))})
		}
		return in
	}
	same := 0
	for range 20_000 {
		older, newer := some(), some()
		if older.Keys() == newer.Keys() {
			same++
		}
		require.Equal(t, older.Keys().Build == newer.Keys().Build, len(plan.Explain(&older, &newer)) == 0, "%+v\n%+v", older, newer)
	}
	assert.Positive(t, same, "pairs that mean the same image")
}

// large are the inputs of an image with 2,000 files.
func large() plan.Inputs {
	in := inputs()
	in.Config = nil
	for i := range 2000 {
		in.Config = append(in.Config, plan.Item{Name: fmt.Sprintf("file /etc/app/%04d.conf", i), Hash: strings.Repeat("a", 64)})
	}
	return in
}

// BenchmarkKeys measures the budget of 1 ms for an image with 2,000 files.
func BenchmarkKeys(b *testing.B) {
	in := large()
	b.ReportAllocs()
	for b.Loop() {
		in.Keys()
	}
}

// BenchmarkExplain compares the longest Containerfile that the API takes, of the shortest lines,
// with one whose lines all moved.
func BenchmarkExplain(b *testing.B) {
	older, newer := large(), large()
	older.Containerfiles[1].Text = strings.Repeat("a\nb\n", 16<<10)
	newer.Containerfiles[1].Text = strings.Repeat("b\nc\n", 16<<10)
	b.ReportAllocs()
	for b.Loop() {
		plan.Explain(&older, &newer)
	}
}
