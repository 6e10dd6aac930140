package plan_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/builder/plan"
)

// many are inputs with as many files, all different.
func many(files int, containerfile string) *plan.Inputs {
	in := &plan.Inputs{Base: "sha256:" + strings.Repeat("1", 64), KernelType: "default", ConfigVersion: 1}
	for i := range files {
		in.Config = append(in.Config, plan.Item{Name: fmt.Sprintf("file /etc/%d", i), Hash: fmt.Sprintf("%064x", (i+1)*7919)})
	}
	if containerfile != "" {
		in.Containerfiles = []plan.Containerfile{{Arch: mcfgv1.NoArch, Text: containerfile}}
	}
	return in
}

// built is a build that has such a record.
func built(r *plan.Record) *mcfgv1.MachineOSBuild {
	return &mcfgv1.MachineOSBuild{Spec: mcfgv1.MachineOSBuildSpec{Decision: &mcfgv1.BuildDecision{
		BuildKey: r.Keys.Build, ContentKey: r.Keys.Content, InputsLevel: int32(r.Level), Inputs: mcfgv1.ImageInputs(r.Inputs), //nolint:gosec // it is small
	}}}
}

// requestedBefore is a build that an earlier version of Layerwright requested.
func requestedBefore(text string) *mcfgv1.MachineOSBuild {
	return &mcfgv1.MachineOSBuild{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{mcfgv1.AnnotationBuildInputs: text}}}
}

func recorded(t *testing.T, in *plan.Inputs, limit int) *plan.Record {
	t.Helper()
	fits, err := in.Record().Fit(limit)
	require.NoError(t, err)
	r, err := plan.RecordOf(built(fits))
	require.NoError(t, err)
	return r
}

func TestRecordExplainsAsFinelyAsItFits(t *testing.T) {
	t.Parallel()
	before, after := many(40, "FROM configs\nRUN a\n"), many(40, "FROM configs\nRUN b\n")
	after.Config[7].Hash = strings.Repeat("f", 64)
	tests := map[string]struct {
		limit int
		level plan.Level
		want  []string
	}{
		"everything fits": {1 << 20, plan.Full, []string{"Containerfile line 2 changed", "file /etc/7 changed"}},
		"little fits":     {10, plan.WithoutItems, []string{"Containerfile line 1 changed", "configuration changed"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := recorded(t, before, tt.limit)
			assert.Equal(t, tt.level, r.Level)
			var got []string
			for _, change := range r.Changes(after.Record()) {
				got = append(got, change.String())
			}
			assert.Equal(t, tt.want, got)
			assert.Empty(t, r.Changes(before.Record()), "nothing has changed for itself")
			assert.Empty(t, before.Record().Changes(r), "whichever is the coarser one")
			assert.Equal(t, before.Keys(), r.Keys)
		})
	}
}

func TestRecordIsSmall(t *testing.T) {
	t.Parallel()
	in := many(1000, strings.Repeat("RUN dnf install something\n", 100))
	assert.Equal(t, plan.Full, recorded(t, in, 64<<10).Level)
	assert.Equal(t, plan.WithoutItems, recorded(t, in, 32<<10).Level)

	for i := range 5000 { // more than the API takes
		in.BuildInputs = append(in.BuildInputs, plan.Item{Name: fmt.Sprint("build input ", i), Hash: "abcd"})
	}
	after := *in
	after.BuildInputs = append(slices.Clone(in.BuildInputs), plan.Item{Name: "one more", Hash: "abcd"})
	r := recorded(t, in, 128<<10)
	assert.Len(t, r.Inputs.BuildInputs, 1)
	changes := r.Changes(after.Record())
	require.Len(t, changes, 1)
	assert.Equal(t, "build inputs changed", changes[0].String())
}

// oldRecord is what an earlier version of Layerwright wrote into an annotation.
const oldRecord = "H4sIAAAAAAAA/6SRQeviMBTE7/spypwj/7SNrc1NWBb2oAuyuxf1kCavWqypNCkopd99SZVVluV/cU4hZOb33mTAiW4OcoBurSfrIZFmRDzRWpi8mMf5QvE4" +
	"KbN5sSAjFmUswFD2dWMgIRSvMorTgvM8EyJPeVWatDCJSCpTJSlGhtpeej8hSuUIEu6oknkm4zcFBtXpY+1J+74jB7nFcvU1C/MtN6tMYM9AV0/W1a11T3Dy" +
	"pvASu1bnO7l35aFXnQnQE3WWmp+3S9jWUKX6xoNNDavaUlfVzWQapgUgsW6X4cDg6Rp+4NvmxyrSra3qg9vZza91dN1ZjPtH8d8fjW4HWHUOkOk6mpqOyOvZ" +
	"rT/POrq0bmbAcFQuUFSpzRRyT371h4miD/L6gz/f83+Ekf3HEH9m+Av7TV2oCzIexy9/AgAA//9yWctpdQIAAA=="

func TestRecordOfAnEarlierVersion(t *testing.T) {
	t.Parallel()
	in := many(2, "FROM configs\nRUN x\n")
	in.Architectures = []mcfgv1.Architecture{mcfgv1.ArchitectureAMD64, mcfgv1.ArchitectureARM64}
	in.Extensions, in.ExtensionNames = "sha256:"+strings.Repeat("2", 64), []string{"usbguard"}
	in.BuildInputs = []plan.Item{{Name: "build input etc-yum-repos-d", Hash: "abcd"}}
	r, err := plan.RecordOf(requestedBefore(oldRecord))
	require.NoError(t, err)
	assert.Equal(t, in.Record(), r)
	assert.Empty(t, r.Changes(in.Record()))
	foreign, err := plan.RecordOf(&mcfgv1.MachineOSBuild{})
	require.NoError(t, err)
	assert.Nil(t, foreign)
}

func TestRecordOfRefuses(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"nothing": "", "no base64": "%%%", "no gzip": "aGVsbG8=", "half of it": oldRecord[:len(oldRecord)/2], "no JSON": "H4sIAAAAAAAA/8tIzcnJBwCGphA2BQAAAA==",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := plan.RecordOf(requestedBefore(text))
			require.ErrorContains(t, err, "reading the recorded inputs of a build")
		})
	}
}

func FuzzRecordOf(f *testing.F) {
	f.Add(oldRecord)
	f.Add("")
	f.Add("H4sIAAAAAAAA")
	f.Fuzz(func(t *testing.T, text string) {
		if r, err := plan.RecordOf(requestedBefore(text)); err == nil {
			many(2, "FROM x\n").Record().Changes(r)
			_, err = r.Fit(10)
			require.NoError(t, err)
		}
	})
}

func TestWhy(t *testing.T) {
	t.Parallel()
	before := many(3, "")
	file := many(3, "")
	file.Config[1].Hash = strings.Repeat("e", 64)
	all := many(40, "FROM configs\nRUN x\n")
	all.Base = "sha256:" + strings.Repeat("2", 64)
	long := many(3, "")
	long.Config = append(long.Config, plan.Item{Name: "file /etc/" + strings.Repeat("ä", 200), Hash: "1"})
	tests := map[string]struct {
		before *plan.Record
		inputs *plan.Inputs
		cause  mcfgv1.BuildInput
		want   []mcfgv1.BuildInput
		why    string
	}{
		"the first":              {nil, before, "", []mcfgv1.BuildInput{mcfgv1.BuildInputFirstBuild}, "first build of the pool"},
		"a file":                 {recorded(t, before, 1<<20), file, "", []mcfgv1.BuildInput{mcfgv1.BuildInputMachineConfig}, "file /etc/1 changed"},
		"for another repository": {recorded(t, before, 1<<20), before, "", nil, "the repository has no image of these inputs"},
		"on demand":              {recorded(t, before, 1<<20), before, mcfgv1.BuildInputRebuildRequested, []mcfgv1.BuildInput{mcfgv1.BuildInputRebuildRequested}, "a rebuild was asked for"},
		"on demand, and a file": {
			recorded(t, before, 1<<20), file, mcfgv1.BuildInputRebuildRequested,
			[]mcfgv1.BuildInput{mcfgv1.BuildInputRebuildRequested, mcfgv1.BuildInputMachineConfig},
			"a rebuild was asked for; file /etc/1 changed",
		},
		"lost, with nothing to compare": {nil, before, mcfgv1.BuildInputImageMissing, []mcfgv1.BuildInput{mcfgv1.BuildInputImageMissing}, "the registry had lost the image"},
		"a lot": {
			recorded(t, before, 1<<20), all, "",
			[]mcfgv1.BuildInput{mcfgv1.BuildInputBaseImage, mcfgv1.BuildInputContainerfile, mcfgv1.BuildInputMachineConfig},
			"base image digest changed from sha256:111111111111 to sha256:222222222222; Containerfile added; and 37 more changes",
		},
		"one that is too long": {
			recorded(t, before, 1<<20), long, "", []mcfgv1.BuildInput{mcfgv1.BuildInputMachineConfig}, "file /etc/" + strings.Repeat("ä", 115) + "...",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			changed, why := plan.Why(tt.before, tt.inputs.Record(), tt.cause)
			assert.Equal(t, tt.want, changed)
			assert.Equal(t, tt.why, why)
			assert.LessOrEqual(t, utf8.RuneCountInString(why), 128)
		})
	}
}
