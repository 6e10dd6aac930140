package provenance_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/images/provenance"
)

var (
	began  = time.Date(2026, 8, 1, 12, 0, 0, 0, time.UTC)
	digest = strings.Repeat("a", 64)
	other  = strings.Repeat("b", 64)
)

// full has everything that can be known.
func full() *provenance.Facts {
	start := metav1.NewTime(began.In(time.FixedZone("elsewhere", 3600)))
	inputs := &provenance.Inputs{
		ContentKey: "content", BuildKey: "build", ExtensionNames: []string{"usbguard"}, UsesExtensions: true, KernelType: "realtime",
		Containerfiles: []provenance.Containerfile{{Arch: mcfgv1.NoArch, Text: "FROM configs\nCOPY --from=quay.io/tools/go@sha256:" + other + " /go /go\nCOPY --from=quay.io/tools/tag:1 /a /a\n"}},
	}
	return &provenance.Facts{
		Origin: provenance.OriginOf(&mcfgv1.MachineOSBuild{
			ObjectMeta: metav1.ObjectMeta{Name: "worker-build", UID: "uid", Annotations: map[string]string{
				mcfgv1.AnnotationBaseImage: "quay.io/os/base@sha256:" + digest, mcfgv1.AnnotationExtensionsImage: "quay.io/os/extensions@sha256:" + other,
				mcfgv1.AnnotationOSImageStream: "rhel-10", mcfgv1.AnnotationBuildCause: "RebuildRequested",
			}},
			Spec: mcfgv1.MachineOSBuildSpec{
				MachineConfig: mcfgv1.MachineConfigReference{Name: "rendered-worker-1"}, MachineOSConfig: mcfgv1.MachineOSConfigReference{Name: "workers"},
				RenderedImagePushSpec: "registry.example.com/os/worker:build",
			},
			Status: mcfgv1.MachineOSBuildStatus{BuildStart: &start, Builder: &mcfgv1.MachineOSBuilderReference{ImageBuilderType: mcfgv1.JobBuilder}},
		}),
		Inputs: inputs, Pool: "worker", BuilderID: "https://builds.example.com", Version: "v1.2.3", BuilderImage: "quay.io/layerwright/builder@sha256:" + digest,
		Content: "registry.example.com/os/worker@sha256:" + other, ConfigHash: other, Finished: began.Add(time.Minute),
	}
}

func asJSON(t *testing.T, value any) string {
	t.Helper()
	text, err := json.Marshal(value)
	require.NoError(t, err)
	return string(text)
}

func TestOfImage(t *testing.T) {
	t.Parallel()
	got := asJSON(t, provenance.OfImage(full()))
	var p provenance.Predicate
	require.NoError(t, json.Unmarshal([]byte(got), &p))
	var file string
	for _, d := range p.BuildDefinition.ResolvedDependencies {
		if d.Name == "Containerfile" {
			file = d.Digest["sha256"]
		}
	}
	assert.Len(t, file, 64)
	assert.JSONEq(t, `{
		"buildDefinition": {
			"buildType": "https://layerwright.io/provenance/image/v1",
			"externalParameters": {
				"machineConfigPool": "worker", "machineOSConfig": "workers", "osImageStream": "rhel-10",
				"renderedImagePushSpec": "registry.example.com/os/worker:build"
			},
			"internalParameters": {
				"backend": "Job", "buildKey": "build", "contentKey": "content", "machineConfig": "rendered-worker-1",
				"extensions": ["usbguard"], "kernelType": "realtime", "cause": "RebuildRequested"
			},
			"resolvedDependencies": [
				{"name": "base image", "uri": "oci://quay.io/os/base", "digest": {"sha256": "`+digest+`"}},
				{"name": "extensions image", "uri": "oci://quay.io/os/extensions", "digest": {"sha256": "`+other+`"}},
				{"name": "Containerfile", "digest": {"sha256": "`+file+`"}},
				{"name": "image of the Containerfile", "uri": "oci://quay.io/tools/go", "digest": {"sha256": "`+other+`"}},
				{"name": "builder image", "uri": "oci://quay.io/layerwright/builder", "digest": {"sha256": "`+digest+`"}},
				{"name": "content image", "uri": "oci://registry.example.com/os/worker", "digest": {"sha256": "`+other+`"}},
				{"name": "rendered MachineConfig rendered-worker-1", "digest": {"sha256": "`+other+`"}}
			]
		},
		"runDetails": {
			"builder": {"id": "https://builds.example.com", "version": {"layerwright": "v1.2.3"}},
			"metadata": {"invocationId": "worker-build/uid", "startedOn": "2026-08-01T12:00:00Z", "finishedOn": "2026-08-01T12:01:00Z"}
		}
	}`, got)
}

func TestEachImageOfARepositoryIsNamed(t *testing.T) {
	t.Parallel()
	f := full()
	f.Inputs.Containerfiles = []provenance.Containerfile{{Arch: mcfgv1.NoArch, Text: "FROM configs\n" +
		"COPY --from=quay.io/tools/go@sha256:" + other + " /go /go\nCOPY --from=quay.io/tools/go@sha256:" + digest + " /older /older\n" +
		"COPY --from=quay.io/tools/go@sha256:" + other + " /again /again\n"}}
	var digests []string
	for _, d := range provenance.OfImage(f).BuildDefinition.ResolvedDependencies {
		if d.URI == "oci://quay.io/tools/go" {
			digests = append(digests, d.Digest["sha256"])
		}
	}
	assert.Equal(t, []string{other, digest}, digests, "each once")
}

func TestUnknownFactsAreOmitted(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		change func(*provenance.Facts)
		absent string
	}{
		"the version":                {func(f *provenance.Facts) { f.Version = "" }, `"version"`},
		"the builder image":          {func(f *provenance.Facts) { f.BuilderImage = "" }, "builder image"},
		"a builder image by tag":     {func(f *provenance.Facts) { f.BuilderImage = "quay.io/builder:1" }, "builder image"},
		"the content image":          {func(f *provenance.Facts) { f.Content = "" }, "content image"},
		"the hash of the config":     {func(f *provenance.Facts) { f.ConfigHash = "" }, "rendered MachineConfig"},
		"the end":                    {func(f *provenance.Facts) { f.Finished = time.Time{} }, "finishedOn"},
		"an end before the begin":    {func(f *provenance.Facts) { f.Finished = began.Add(-time.Second) }, "finishedOn"},
		"the begin":                  {func(f *provenance.Facts) { f.Origin.Began = time.Time{} }, "startedOn"},
		"the text of Containerfiles": {func(f *provenance.Facts) { f.Inputs.WithoutText = true }, "Containerfile"},
		"the stream":                 {func(f *provenance.Facts) { f.Origin.Stream = "" }, "osImageStream"},
		"extensions that are not used": {func(f *provenance.Facts) {
			f.Inputs.ExtensionNames, f.Inputs.UsesExtensions, f.Inputs.KernelType = nil, false, ""
		}, "extensions image"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Contains(t, asJSON(t, provenance.OfImage(full())), tt.absent)
			f := full()
			tt.change(f)
			assert.NotContains(t, asJSON(t, provenance.OfImage(f)), tt.absent)
		})
	}
}

// TestABuildThatHasNotSaidThatItBegan is one whose content was there: without times no policy that
// goes by age would take its image.
func TestABuildThatHasNotSaidThatItBegan(t *testing.T) {
	t.Parallel()
	f := full()
	f.Origin = provenance.OriginOf(&mcfgv1.MachineOSBuild{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.NewTime(began)}})
	got := provenance.OfImage(f).RunDetails.Metadata
	require.NotNil(t, got.StartedOn)
	assert.Equal(t, began, *got.StartedOn)
	require.NotNil(t, got.FinishedOn)
	assert.Equal(t, began.Add(time.Minute), *got.FinishedOn)
}

func TestOfContent(t *testing.T) {
	t.Parallel()
	content := asJSON(t, provenance.OfContent(full(), "key"))
	assert.Equal(t, "key", provenance.ContentKey([]byte(content)))
	assert.NotContains(t, content, "rendered-worker-1", "pools with other configurations share it")
	assert.Empty(t, provenance.ContentKey([]byte(asJSON(t, provenance.OfImage(full())))), "a pool's image is no content")
	assert.Empty(t, provenance.ContentKey([]byte("{")))

	trial := full()
	trial.Origin = nil
	content = asJSON(t, provenance.OfContent(trial, "key"))
	assert.Equal(t, "key", provenance.ContentKey([]byte(content)))
	assert.NotContains(t, content, "invocationId")
}

func TestDefaultBuilder(t *testing.T) {
	t.Parallel()
	f := full()
	f.BuilderID, f.Origin.Backend = "", ""
	p := provenance.OfImage(f)
	assert.Equal(t, provenance.DefaultBuilderID, p.RunDetails.Builder.ID)
	assert.Equal(t, provenance.Append, p.BuildDefinition.InternalParameters.Backend)
}

func TestHashConfig(t *testing.T) {
	t.Parallel()
	hash := func(raw string) string {
		mc := &mcfgv1.MachineConfig{Spec: mcfgv1.MachineConfigSpec{OSImageURL: "x", Config: runtime.RawExtension{Raw: []byte(raw)}}}
		sum, err := provenance.HashConfig(mc)
		require.NoError(t, err)
		return sum
	}
	assert.Equal(t, hash(`{"a":1,"b":2}`), hash(`{ "b": 2, "a": 1 }`))
	assert.NotEqual(t, hash(`{"a":1}`), hash(`{"a":2}`))
	_, err := provenance.HashConfig(&mcfgv1.MachineConfig{Spec: mcfgv1.MachineConfigSpec{Config: runtime.RawExtension{Raw: []byte("{")}}})
	require.Error(t, err)
}

func TestPulledImages(t *testing.T) {
	t.Parallel()
	const tools, goImage = "quay.io/tools/tag", "quay.io/tools/go"
	tests := map[string]struct {
		change func(*provenance.Facts)
		want   string // what there is of images of Containerfiles
	}{
		"by tag and by digest": {
			func(f *provenance.Facts) {
				f.Pulled.Images = []mcfgv1.PulledImage{
					{Name: tools + ":1", Image: tools + "@sha256:" + digest, Architecture: "AMD64", ManifestDigest: "sha256:" + other},
					{Name: goImage + "@sha256:" + other, Image: goImage + "@sha256:" + other, Architecture: "AMD64", ManifestDigest: "sha256:" + other},
				}
			},
			`[
				{"name": "image of the Containerfile", "uri": "oci://quay.io/tools/tag", "digest": {"sha256": "` + digest + `"},
				 "annotations": {"reference": "quay.io/tools/tag:1", "architecture": "amd64", "manifest": "sha256:` + other + `"}},
				{"name": "image of the Containerfile", "uri": "oci://quay.io/tools/go", "digest": {"sha256": "` + other + `"},
				 "annotations": {"reference": "quay.io/tools/go@sha256:` + other + `", "architecture": "amd64", "manifest": "sha256:` + other + `"}}
			]`,
		},
		"a builder that does not say it": {
			func(f *provenance.Facts) { f.Pulled.Missing = 3 },
			`[{"name": "image of the Containerfile", "uri": "oci://quay.io/tools/go", "digest": {"sha256": "` + other + `"}}]`,
		},
		"the manifest is not known": {
			func(f *provenance.Facts) {
				f.Inputs.Containerfiles = nil
				f.Pulled.Images = []mcfgv1.PulledImage{{Name: tools + ":1", Image: tools + "@sha256:" + digest, Architecture: "S390X"}}
			},
			`[{"name": "image of the Containerfile", "uri": "oci://quay.io/tools/tag", "digest": {"sha256": "` + digest + `"},
			   "annotations": {"reference": "quay.io/tools/tag:1", "architecture": "s390x"}}]`,
		},
		"a Containerfile for each architecture, without its text": {
			func(f *provenance.Facts) {
				f.Inputs.WithoutText = true
				f.Inputs.Containerfiles = []provenance.Containerfile{{Arch: mcfgv1.Amd64}, {Arch: mcfgv1.NoArch}}
				f.Pulled.Images = []mcfgv1.PulledImage{
					{Name: tools + ":1", Image: tools + "@sha256:" + digest, Architecture: "AMD64"},
					{Name: tools + ":1", Image: tools + "@sha256:" + digest, Architecture: "ARM64"},
				}
			},
			`[
				{"name": "image of the Containerfile for amd64", "uri": "oci://quay.io/tools/tag", "digest": {"sha256": "` + digest + `"},
				 "annotations": {"reference": "quay.io/tools/tag:1", "architecture": "amd64"}},
				{"name": "image of the Containerfile", "uri": "oci://quay.io/tools/tag", "digest": {"sha256": "` + digest + `"},
				 "annotations": {"reference": "quay.io/tools/tag:1", "architecture": "arm64"}}
			]`,
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := full()
			tt.change(f)
			for _, p := range []provenance.Predicate{provenance.OfImage(f), provenance.OfContent(f, "content")} {
				got := []provenance.Resource{}
				for _, r := range p.BuildDefinition.ResolvedDependencies {
					if strings.HasPrefix(r.Name, "image of the Containerfile") {
						got = append(got, r)
					}
				}
				assert.JSONEq(t, tt.want, asJSON(t, got))
				assert.Equal(t, f.Pulled, provenance.ReadPulled([]byte(asJSON(t, p))), "they can be read again")
			}
		})
	}
}

func TestReadPulledOfOtherDocuments(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"", "[]", "{}",
		`{"buildDefinition":{"resolvedDependencies":[{"name":"image of the Containerfile","uri":"oci://a.example/b","digest":{"sha256":"` + digest + `"}}]}}`,
		`{"buildDefinition":{"resolvedDependencies":[{"uri":"https://a.example/b","digest":{"sha256":"` + digest + `"},"annotations":{"reference":"x","architecture":"amd64"}}]}}`,
		`{"buildDefinition":{"resolvedDependencies":[{"uri":"oci://a.example/b","digest":{"sha512":"` + digest + `"},"annotations":{"reference":"x","architecture":"amd64"}}]}}`,
		`{"buildDefinition":{"resolvedDependencies":[{"uri":"oci://a.example/b","digest":{"sha256":"` + digest + `"},"annotations":{"reference":"x","architecture":"riscv64"}}]}}`,
	} {
		assert.Empty(t, provenance.ReadPulled([]byte(text)), text)
	}
}
