package images_test

import (
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	ggcr "github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	mcfgv1alpha1 "github.com/layerwright/layerwright/api/machineconfiguration/v1alpha1"
	"github.com/layerwright/layerwright/images/provenance"
	"github.com/layerwright/layerwright/internal/registry"
	"github.com/layerwright/layerwright/internal/status"
	"github.com/layerwright/layerwright/internal/version"
	"github.com/layerwright/layerwright/osimage/packages"
	"github.com/layerwright/layerwright/test/worldtest"
	"github.com/layerwright/layerwright/trust/sign"
)

func attestedText(image *mcfgv1alpha1.MachineOSImage) string {
	return worldtest.Text(image.Status.Conditions, mcfgv1alpha1.ImageAttested)
}

func attachedTo(image mcfgv1.ImageDigestFormat) string {
	return strings.Replace(string(image), "@sha256:", ":sha256-", 1) + ".att"
}

// pushedManifests are the uploads of manifests since the last look at the requests, by what they
// are called.
func pushedManifests(w *worldtest.World) []string {
	var out []string
	for _, request := range w.Registry.Forget() {
		if strings.HasPrefix(request, "PUT ") && strings.Contains(request, "/manifests/") {
			out = append(out, request[strings.LastIndex(request, "/")+1:])
		}
	}
	return out
}

func failingPuts(suffix string, code int) func(http.ResponseWriter, *http.Request) bool {
	return func(rw http.ResponseWriter, r *http.Request) bool {
		if r.Method != http.MethodPut || !strings.HasSuffix(r.URL.Path, suffix) {
			return false
		}
		rw.WriteHeader(code)
		return true
	}
}

func TestImagesAreAttested(t *testing.T) {
	t.Parallel()
	w := worldtest.Layered(t, "worker")
	w.Add(worldtest.FirstKey().Secret())
	made := &worldtest.SBOMs{Text: `{"spdxVersion":"SPDX-2.3"}`}
	w.Settle(w.Builder(w.Attesting(made)))
	assert.Equal(t, "True Succeeded", w.Says("worker", status.Ready))
	image, build := w.OnlyImage(), w.Builds()[0]
	assert.Equal(t, "True Attested", attestedText(image))
	assert.Equal(t, "True Signed", worldtest.SignedText(image))
	tag := attachedTo(image.Spec.PullSpec)
	assert.Equal(t, []mcfgv1alpha1.ImageAttestation{
		{PredicateType: sign.PredicateProvenance, Reference: tag}, {PredicateType: sign.PredicateSPDX, Reference: tag},
	}, image.Status.Attestations)

	p := w.Provenance(string(image.Spec.PullSpec), worldtest.FirstKey())
	d := p.BuildDefinition
	assert.Equal(t, provenance.BuildTypeImage, d.BuildType)
	assert.Equal(t, provenance.External{
		MachineConfigPool: "worker", MachineOSConfig: "worker", OSImageStream: "rhel-10", RenderedImagePushSpec: string(build.Spec.RenderedImagePushSpec),
	}, d.ExternalParameters)
	assert.Equal(t, provenance.Append, d.InternalParameters.Backend)
	assert.Equal(t, build.Status.BuildKey, d.InternalParameters.BuildKey)
	assert.Equal(t, build.Status.ContentKey, d.InternalParameters.ContentKey)
	require.Len(t, d.ResolvedDependencies, 2)
	assert.Equal(t, "base image", d.ResolvedDependencies[0].Name)
	assert.Equal(t, w.Base[strings.Index(w.Base, "@sha256:")+8:], d.ResolvedDependencies[0].Digest["sha256"])
	assert.Equal(t, "rendered MachineConfig rendered-worker-1", d.ResolvedDependencies[1].Name)
	assert.Equal(t, provenance.DefaultBuilderID, p.RunDetails.Builder.ID)
	assert.Equal(t, map[string]string{"layerwright": version.Current().Version}, p.RunDetails.Builder.Version)
	assert.Equal(t, build.Name+"/"+string(build.UID), p.RunDetails.Metadata.InvocationID)
	require.NotNil(t, p.RunDetails.Metadata.StartedOn)
	assert.True(t, p.RunDetails.Metadata.StartedOn.Equal(build.Status.BuildStart.Time))
	require.NotNil(t, p.RunDetails.Metadata.FinishedOn)

	signed, err := w.Stated(string(image.Spec.PullSpec), sign.PredicateSPDX, worldtest.FirstKey())
	require.NoError(t, err)
	assert.JSONEq(t, made.Text, string(signed[0]))
	require.Len(t, made.About, 1)
	require.Len(t, made.About[0].Platforms, 1)
	assert.Equal(t, image.Spec.PullSpec.Digest(), made.About[0].Platforms[0].Digest.String())
	assert.Equal(t, v1.Platform{OS: "linux", Architecture: "amd64"}, made.About[0].Platforms[0].Platform)
	assert.Contains(t, strings.Join(w.Told(), "\n"), "Normal ImageAttested The image "+string(image.Spec.PullSpec)+" is attested: "+sign.PredicateProvenance)

	order := pushedManifests(w)
	suffix := func(suffix string) func(string) bool {
		return func(s string) bool { return strings.HasSuffix(s, suffix) }
	}
	assert.Less(t, slices.IndexFunc(order, suffix(".att")), slices.IndexFunc(order, suffix(".sig")), "the signature is the last word")
	_, err = w.ReconcileImage(w.Builder(w.Attesting(made)), image.Name)
	require.NoError(t, err)
	assert.Empty(t, pushedManifests(w), "nothing is attested or signed twice")
	assert.Len(t, made.About, 1, "nor is an image read for nothing")
}

func TestSeveralArchitecturesAreAttested(t *testing.T) {
	t.Parallel()
	w := worldtest.New(t)
	w.Base = w.Registry.PushBase(t, "stream/os", "both", "amd64", "arm64")
	w.Add(worldtest.FirstKey().Secret(), w.Rendered("worker", "1", "/etc/motd", "one"), worldtest.NewPool("worker", "rendered-worker-1"), w.Config("worker"))
	made := &worldtest.SBOMs{Text: `{}`}
	w.Settle(w.Builder(w.Attesting(made)))
	build := w.Builds()[0]
	require.Len(t, build.Status.Architectures, 2)
	whole := w.Provenance(string(build.Status.DigestedImagePushSpec), worldtest.FirstKey())
	for _, one := range build.Status.Architectures {
		assert.Equal(t, whole, w.Provenance(string(one.DigestedImagePushSpec), worldtest.FirstKey()))
	}
	require.Len(t, made.About[0].Platforms, 2)
	assert.Equal(t, "arm64", made.About[0].Platforms[1].Platform.Architecture)

	w.Remove(w.OSConfig("worker"))
	w.Settle(w.Builder(w.Attesting(made)))
	for _, tag := range w.Tags("host/os") {
		assert.NotContains(t, tag, ".att", "statements go with their image")
	}
}

func TestSBOMsThatFailForGood(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		sbom worldtest.SBOMs
		want string
		// made is how often it is tried in two reconciles.
		made int
	}{
		"a broken database":      {worldtest.SBOMs{Err: &packages.BrokenError{Path: "/var/lib/rpm", Err: errors.New("x")}}, `package database "/var/lib/rpm" is broken: x`, 1},
		"a database without end": {worldtest.SBOMs{Err: &packages.TooLargeError{Path: "/var/lib/rpm", Size: 2, Limit: 1}}, "has 2 bytes, the limit is 1", 1},
		"too large":              {worldtest.SBOMs{Text: `"` + strings.Repeat("a", sign.MaxPredicate) + `"`}, "it has 10485762 bytes; the limit is 10485760", 1},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := worldtest.Layered(t, "worker")
			w.Add(worldtest.FirstKey().Secret())
			made := tt.sbom
			b := w.Builder(w.Attesting(&made))
			w.Settle(b)
			assert.Equal(t, "True Succeeded", w.Says("worker", status.Ready))
			image := w.OnlyImage()
			assert.Contains(t, attestedText(image), "True Attested it has no SBOM: ")
			assert.Contains(t, attestedText(image), tt.want)
			assert.Len(t, image.Status.Attestations, 1)
			w.Provenance(string(image.Spec.PullSpec), worldtest.FirstKey())
			_, err := w.ReconcileImage(b, image.Name)
			require.NoError(t, err)
			assert.Len(t, made.About, tt.made, "it is not tried every ten minutes")
			assert.Contains(t, attestedText(w.OnlyImage()), tt.want)
		})
	}
}

func TestSBOMsThatFailForNow(t *testing.T) {
	t.Parallel()
	w := worldtest.Layered(t, "worker")
	w.Add(worldtest.FirstKey().Secret())
	made := &worldtest.SBOMs{Text: `{}`, Err: errors.New("the disk is full")}
	b := w.Builder(w.Attesting(made))
	w.Settle(b)
	image := w.OnlyImage()
	assert.Contains(t, attestedText(image), "False AttestationFailed the disk is full")
	assert.Contains(t, worldtest.Text(w.Builds()[0].Status.Conditions, status.Reconciling), "WaitingForSignature the image was pushed and is not attested yet")
	assert.Equal(t, "none", worldtest.SignedText(image), "the signature is the last word")
	assert.Contains(t, strings.Join(w.Told(), "\n"), "Warning ImageNotAttested AttestationFailed: the disk is full")
	w.Provenance(string(image.Spec.PullSpec), worldtest.FirstKey())

	pushedManifests(w)
	made.Err = nil
	w.Settle(b)
	assert.Equal(t, "True Succeeded", w.Says("worker", status.Ready))
	assert.Equal(t, "True Attested", attestedText(w.OnlyImage()))
	for _, pushed := range pushedManifests(w) {
		assert.Regexp(t, `(^worker|\.(att|sig))$`, pushed, "nothing is built again")
	}
}

func TestAttestingWithAFailingRegistry(t *testing.T) {
	t.Parallel()
	for suffix, want := range map[string]string{".att": "none", ".sig": "True Attested"} {
		t.Run(suffix, func(t *testing.T) {
			t.Parallel()
			w := worldtest.Layered(t, "worker")
			w.Add(worldtest.FirstKey().Secret())
			b := w.Builder(w.Attesting(nil))
			w.Registry.Answer(failingPuts(suffix, http.StatusBadGateway))
			w.Settle(b)
			assert.Contains(t, worldtest.Text(w.Builds()[0].Status.Conditions, status.Reconciling), "WaitingForSignature")
			if suffix == ".att" {
				assert.Contains(t, attestedText(w.OnlyImage()), "False AttestationFailed")
				assert.Equal(t, want, worldtest.SignedText(w.OnlyImage()))
			} else {
				assert.Equal(t, want, attestedText(w.OnlyImage()))
			}
			pushedManifests(w)
			w.Registry.Answer(nil)
			w.Settle(b)
			assert.Equal(t, "True Succeeded", w.Says("worker", status.Ready))
			pushed := pushedManifests(w)
			for _, one := range pushed {
				assert.Regexp(t, `(^worker|\.(att|sig))$`, one, "nothing is built again")
			}
			if suffix == ".sig" {
				assert.Len(t, pushed, 2, "the signature and the pool's tag: what was stated is not stated again")
			}
		})
	}
}

func TestMissingKeyDelaysAttestation(t *testing.T) {
	t.Parallel()
	w := worldtest.Layered(t, "worker")
	b := w.Builder(w.Attesting(nil))
	w.Settle(b)
	assert.Contains(t, attestedText(w.OnlyImage()), "False WaitingForKey")
	assert.Contains(t, worldtest.SignedText(w.OnlyImage()), "False WaitingForKey")
	assert.Contains(t, worldtest.Text(w.Builds()[0].Status.Conditions, status.Reconciling), "WaitingForSignature")
	key := worldtest.FirstKey().Secret()
	w.Add(key)
	w.Settle(b)
	assert.Equal(t, "True Attested", attestedText(w.OnlyImage()))

	w.Remove(key)
	_, err := w.ReconcileImage(b, w.OnlyImage().Name)
	require.NoError(t, err)
	assert.Equal(t, "True Attested", attestedText(w.OnlyImage()), "what is attested stays so without the key")
}

// removeTag deletes what has a tag, and the tag, which this registry keeps otherwise.
func removeTag(w *worldtest.World, tag string) {
	w.T.Helper()
	ref := w.Registry.Parse(w.T, tag)
	require.NoError(w.T, ggcr.Delete(ref.Context().Digest(w.Registry.DigestOf(w.T, tag))))
	require.NoError(w.T, ggcr.Delete(ref))
}

// statementsOf are the attachments of an image.
func statementsOf(w *worldtest.World, image string) v1.Image {
	w.T.Helper()
	return worldtest.Must(ggcr.Image(w.Registry.Parse(w.T, image)))
}

func TestImagesStayAttested(t *testing.T) {
	t.Parallel()
	tests := map[string]func(w *worldtest.World, image *mcfgv1alpha1.MachineOSImage){
		"the tag is deleted": func(w *worldtest.World, image *mcfgv1alpha1.MachineOSImage) {
			removeTag(w, attachedTo(image.Spec.PullSpec))
		},
		"the statement is another image's": func(w *worldtest.World, image *mcfgv1alpha1.MachineOSImage) {
			other := w.Registry.PushBase(w.T, "host/os", "other")
			signer := sign.NewSigner(w.SecretKeys())
			_, err := signer.Attest(w.T.Context(), registry.New(registry.Options{}), other,
				sign.Statement{PredicateType: sign.PredicateProvenance, Predicate: json.RawMessage(`{"buildDefinition":{}}`)})
			require.NoError(w.T, err)
			stolen := statementsOf(w, attachedTo(mcfgv1.ImageDigestFormat(other)))
			require.NoError(w.T, ggcr.Write(w.Registry.Parse(w.T, attachedTo(image.Spec.PullSpec)), stolen))
			_, err = w.Stated(string(image.Spec.PullSpec), sign.PredicateProvenance, worldtest.FirstKey())
			require.ErrorContains(w.T, err, "about another image")
		},
		"the statement is by another key": func(w *worldtest.World, image *mcfgv1alpha1.MachineOSImage) {
			removeTag(w, attachedTo(image.Spec.PullSpec))
			_, err := worldtest.SecondKey().Signer().Attest(w.T.Context(), registry.New(registry.Options{}), string(image.Spec.PullSpec),
				sign.Statement{PredicateType: sign.PredicateProvenance, Predicate: json.RawMessage(`{"buildDefinition":{}}`)})
			require.NoError(w.T, err)
		},
	}
	for name, attack := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := worldtest.Layered(t, "worker")
			w.Add(worldtest.FirstKey().Secret())
			b := w.Builder(w.Attesting(nil))
			w.Settle(b)
			image := w.OnlyImage()
			first := w.Provenance(string(image.Spec.PullSpec), worldtest.FirstKey())
			attack(w, image)
			_, err := w.ReconcileImage(b, image.Name)
			require.NoError(t, err)
			again := w.Provenance(string(image.Spec.PullSpec), worldtest.FirstKey())
			first.RunDetails.Builder.Version = nil // no one knows any more which version it was
			assert.Equal(t, first, again)
			assert.Equal(t, "True Attested", attestedText(w.OnlyImage()))
		})
	}
}

func TestAttestationsAfterKeyRotation(t *testing.T) {
	t.Parallel()
	w := worldtest.Layered(t, "worker")
	w.Add(worldtest.FirstKey().Secret())
	b := w.Builder(w.Attesting(nil))
	w.Settle(b)
	image := w.OnlyImage()
	first := w.Provenance(string(image.Spec.PullSpec), worldtest.FirstKey())

	w.Remove(worldtest.FirstKey().Secret())
	exchanged := worldtest.SecondKey().Secret()
	exchanged.Data[sign.SecretTrusted] = worldtest.FirstKey().Public
	w.Add(exchanged)
	_, err := w.ReconcileImage(b, image.Name)
	require.NoError(t, err)
	assert.Equal(t, first, w.Provenance(string(image.Spec.PullSpec), worldtest.SecondKey()), "what the key before has stated is taken over")
	assert.Equal(t, first, w.Provenance(string(image.Spec.PullSpec), worldtest.FirstKey()), "and stays")
}

func TestImagesFromBeforeAttestingAreAttested(t *testing.T) {
	t.Parallel()
	w := worldtest.Layered(t, "worker")
	w.Settle(w.Builder())
	w.Add(worldtest.FirstKey().Secret())
	image := w.OnlyImage()
	_, err := w.ReconcileImage(w.Builder(w.Attesting(nil)), image.Name)
	require.NoError(t, err)
	p := w.Provenance(string(image.Spec.PullSpec), worldtest.FirstKey())
	assert.Equal(t, w.Builds()[0].Name+"/"+string(w.Builds()[0].UID), p.RunDetails.Metadata.InvocationID)
	assert.Empty(t, p.RunDetails.Builder.Version, "which version made it is not known")
}

func TestImagesWithoutTheirBuild(t *testing.T) {
	t.Parallel()
	w := worldtest.Layered(t, "worker")
	w.Settle(w.Builder())
	w.Add(worldtest.FirstKey().Secret())
	image := w.OnlyImage()
	worldtest.Edit(w, &mcfgv1alpha1.MachineOSImage{}, image.Name, func(i *mcfgv1alpha1.MachineOSImage) { i.Labels[mcfgv1.LabelMachineOSBuild] = "gone" })
	build := w.Builds()[0]
	worldtest.Edit(w, &mcfgv1.MachineOSBuild{}, build.Name, func(b *mcfgv1.MachineOSBuild) { b.Status.DigestedImagePushSpec = "" })
	w.Quietly(func() error {
		now := worldtest.Read(w, &mcfgv1.MachineOSBuild{}, build.Name)
		now.Status.DigestedImagePushSpec = ""
		return w.Status().Update(t.Context(), now)
	})
	_, err := w.ReconcileImage(w.Builder(w.Attesting(&worldtest.SBOMs{Text: `{}`})), image.Name)
	require.NoError(t, err)
	assert.Contains(t, attestedText(w.OnlyImage()), "True Attested it has no provenance: its MachineOSBuild was deleted")
	assert.Equal(t, "True Signed", worldtest.SignedText(w.OnlyImage()))

	worldtest.Edit(w, &mcfgv1alpha1.MachineOSImage{}, image.Name, func(i *mcfgv1alpha1.MachineOSImage) { i.Labels["a"] = "b" })
	other := worldtest.Layered(t, "worker")
	other.Add(worldtest.FirstKey().Secret())
	other.Settle(other.Builder())
	lone := other.OnlyImage()
	other.Quietly(func() error {
		now := worldtest.Read(other, &mcfgv1.MachineOSBuild{}, other.Builds()[0].Name)
		now.Status.DigestedImagePushSpec = ""
		return other.Status().Update(t.Context(), now)
	})
	worldtest.Edit(other, &mcfgv1alpha1.MachineOSImage{}, lone.Name, func(i *mcfgv1alpha1.MachineOSImage) { delete(i.Labels, mcfgv1.LabelMachineOSBuild) })
	_, err = other.ReconcileImage(other.Builder(other.Attesting(nil)), lone.Name)
	require.NoError(t, err)
	assert.Contains(t, attestedText(other.OnlyImage()), "False AttestationFailed it has no provenance", "nothing at all is stated")
}

func TestForeignImagesAreNotAttested(t *testing.T) {
	t.Parallel()
	w := worldtest.Layered(t, "worker")
	w.Add(worldtest.FirstKey().Secret())
	w.EditConfig("worker", func(c *mcfgv1.MachineOSConfig) {
		c.Annotations = map[string]string{mcfgv1.AnnotationPreBuiltImage: w.Base}
	})
	b := w.Builder(w.Attesting(nil))
	w.Settle(b)
	assert.Equal(t, "True Succeeded", w.Says("worker", status.Ready))
	_, err := w.ReconcileImage(b, w.OnlyImage().Name)
	require.NoError(t, err)
	assert.Contains(t, attestedText(w.OnlyImage()), "False BuiltElsewhere")
	for tag := range w.Registry.Tags(t, "stream/os") {
		assert.NotContains(t, tag, ".att")
	}
}

func TestTaggedContentNeedsAnAttestation(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		// attack changes what the content's tag stands for.
		attack func(w *worldtest.World, content string)
		builds int
	}{
		"as it was built": {func(*worldtest.World, string) {}, 1},
		"someone pushes other content with its labels": {func(w *worldtest.World, content string) { pushEvil(w, content) }, 2},
		"and copies the statement about ours": {func(w *worldtest.World, content string) {
			ref := w.Registry.Parse(w.T, content)
			stated := statementsOf(w, attachedTo(mcfgv1.ImageDigestFormat(ref.Context().Digest(w.Registry.DigestOf(w.T, content)).String())))
			evil := pushEvil(w, content)
			require.NoError(w.T, ggcr.Write(w.Registry.Parse(w.T, attachedTo(mcfgv1.ImageDigestFormat(evil))), stated))
		}, 2},
		"someone deletes the statement": {func(w *worldtest.World, content string) {
			ref := w.Registry.Parse(w.T, content)
			removeTag(w, attachedTo(mcfgv1.ImageDigestFormat(ref.Context().Digest(w.Registry.DigestOf(w.T, content)).String())))
		}, 2},
		"a pool's image under the tag of content": {func(w *worldtest.World, content string) {
			pool := w.OnlyImage().Spec.PullSpec // it has the label too, and our provenance
			require.NoError(w.T, ggcr.Tag(w.Registry.Parse(w.T, content).Context().Tag(content[strings.LastIndex(content, ":")+1:]), statementsOf(w, string(pool))))
		}, 2},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, s, use := worldtest.WithContent(t, worldtest.CheapFile)
			w.Add(worldtest.FirstKey().Secret())
			b := w.Builder(use, w.Attesting(nil))
			w.Settle(b)
			require.Equal(t, 1, s.Begun)
			content := w.Registry.Host + "/host/os:content-" + w.Builds()[0].Status.ContentKey
			ref := w.Registry.Parse(t, content)
			pinned := ref.Context().Digest(w.Registry.DigestOf(t, content)).String()
			p := w.Provenance(pinned, worldtest.FirstKey())
			assert.Equal(t, provenance.BuildTypeContent, p.BuildDefinition.BuildType)
			require.ErrorContains(t, verify(w, pinned, worldtest.FirstKey()), "it has no signature", "no node takes it for an OS image")
			first := string(w.OnlyImage().Spec.PullSpec)
			names := func() []string {
				var names []string
				for _, d := range w.Provenance(first, worldtest.FirstKey()).BuildDefinition.ResolvedDependencies {
					names = append(names, d.Name)
				}
				return names
			}
			assert.Equal(t, []string{"base image", "Containerfile", "content image", "rendered MachineConfig rendered-worker-1"}, names())

			tt.attack(w, content)
			w.Rerender("worker", "2", "/etc/motd", "two")
			w.Settle(b)
			assert.Equal(t, "True Succeeded", w.Says("worker", status.Ready))
			assert.Equal(t, tt.builds, s.Begun)
			newer := string(w.OSConfig("worker").Status.CurrentImagePullSpec)
			assert.Equal(t, "two", w.Unpacked(newer, "amd64", "etc/motd"))
			assert.Equal(t, "built for amd64", w.Unpacked(newer, "amd64", "usr/share/built"))

			w.Remove(w.OSConfig("worker"))
			w.Settle(b)
			for _, tag := range w.Tags("host/os") {
				if tt.builds == 1 {
					assert.NotContains(t, tag, ".att", "what was stated about content goes with it")
				}
			}
		})
	}
}

// TestRebuildIgnoresOlderContent: it has the same key and our statement, and whoever
// may push can give it the tag again.
func TestRebuildIgnoresOlderContent(t *testing.T) {
	t.Parallel()
	w, s, use := worldtest.WithContent(t, worldtest.CheapFile)
	w.Add(worldtest.FirstKey().Secret())
	b := w.Builder(use, w.Attesting(nil))
	w.Settle(b)
	before := w.Content()
	tag := w.Registry.Host + "/host/os:content-" + w.Builds()[0].Status.ContentKey
	stated, copied := attachedTo(mcfgv1.ImageDigestFormat(before)), w.Registry.Host+"/elsewhere/os:"
	write := func(from, to string) { require.NoError(t, ggcr.Write(w.Registry.Parse(t, to), statementsOf(w, from))) }
	write(before, copied+"content")
	write(stated, copied+"statement")
	w.Clock.SetTime(w.Clock.Now().Add(time.Minute))
	w.Annotate("worker", mcfgv1.AnnotationRebuild)
	w.Settle(b)
	require.Equal(t, 2, s.Begun)
	rebuilt := w.Content()
	require.NotEqual(t, before, rebuilt)

	w.Rerender("worker", "2", "/etc/motd", "two")
	w.Settle(b)
	require.Equal(t, 2, s.Begun, "what was rebuilt is taken from its tag")
	require.Equal(t, rebuilt, w.Content())

	write(copied+"content", tag)
	write(copied+"statement", stated)
	require.Equal(t, before, w.Content())
	w.Rerender("worker", "3", "/etc/motd", "three")
	w.Settle(b)
	assert.Equal(t, 3, s.Begun, "it is built again")
	assert.NotEqual(t, before, w.Content())
	assert.Equal(t, "True Succeeded", w.Says("worker", status.Ready))
}

// pushEvil pushes other content under a tag, with the labels of what has it.
func pushEvil(w *worldtest.World, content string) string {
	w.T.Helper()
	evil := worldtest.OSImage(w.T, "evil", "amd64")
	config := worldtest.Must(evil.ConfigFile()).DeepCopy()
	config.Config.Labels = worldtest.Must(statementsOf(w, content).ConfigFile()).Config.Labels
	evil = worldtest.Must(mutate.ConfigFile(evil, config))
	ref := w.Registry.Parse(w.T, content)
	require.NoError(w.T, ggcr.Write(ref, evil))
	return ref.Context().Digest(worldtest.Must(evil.Digest()).String()).String()
}
