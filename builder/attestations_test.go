package builder

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	ggcr "github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	mcfgv1alpha1 "github.com/layerwright/layerwright/api/machineconfiguration/v1alpha1"
	"github.com/layerwright/layerwright/images/provenance"
	"github.com/layerwright/layerwright/images/sbom"
	"github.com/layerwright/layerwright/internal/registry"
	"github.com/layerwright/layerwright/internal/status"
	"github.com/layerwright/layerwright/internal/version"
	"github.com/layerwright/layerwright/osimage/packages"
	"github.com/layerwright/layerwright/trust/sign"
)

// sboms is an SBOM that has one text, or fails.
type sboms struct {
	text  string
	err   error
	about []sbom.Subject
}

func (b *sboms) Make(_ context.Context, about sbom.Subject) ([]byte, error) {
	b.about = append(b.about, about)
	return []byte(b.text), b.err
}

// attesting makes a Builder attest and sign.
func (w *world) attesting(made *sboms) func(*settings) {
	return func(o *settings) {
		signer := sign.NewSigner(w.secretKeys())
		o.Signer, o.Attester = signer, signer
		if made != nil {
			o.SBOMs = made
		}
	}
}

// stated are the predicates of a type that a key has stated about an image.
func (w *world) stated(image, predicateType string, by keyPair) ([]json.RawMessage, error) {
	return w.takes(by).VerifyAttestation(w.t.Context(), registry.New(registry.Options{}), image, predicateType)
}

// readStated reads the only predicate of a type that a key has stated about an image.
func (w *world) readStated(image, predicateType string, by keyPair, predicate any) {
	w.t.Helper()
	found, err := w.stated(image, predicateType, by)
	require.NoError(w.t, err)
	require.Len(w.t, found, 1)
	require.NoError(w.t, json.Unmarshal(found[0], predicate))
}

func (w *world) provenance(image string, by keyPair) *provenance.Predicate {
	w.t.Helper()
	p := &provenance.Predicate{}
	w.readStated(image, sign.PredicateProvenance, by, p)
	return p
}

func attestedText(image *mcfgv1alpha1.MachineOSImage) string {
	return text(image.Status.Conditions, mcfgv1alpha1.ImageAttested)
}

func attachedTo(image mcfgv1.ImageDigestFormat) string {
	return strings.Replace(string(image), "@sha256:", ":sha256-", 1) + ".att"
}

// pushedManifests are the uploads of manifests since the last look at the requests, by what they
// are called.
func (w *world) pushedManifests() []string {
	var out []string
	for _, request := range w.registry.requests() {
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
	w := layered(t, "worker")
	w.add(firstKey().secret())
	made := &sboms{text: `{"spdxVersion":"SPDX-2.3"}`}
	w.settle(w.builder(w.attesting(made)))
	assert.Equal(t, "True Succeeded", w.says("worker", status.Ready))
	image, build := w.onlyImage(), w.builds()[0]
	assert.Equal(t, "True Attested", attestedText(image))
	assert.Equal(t, "True Signed", signedText(image))
	tag := attachedTo(image.Spec.PullSpec)
	assert.Equal(t, []mcfgv1alpha1.ImageAttestation{
		{PredicateType: sign.PredicateProvenance, Reference: tag}, {PredicateType: sign.PredicateSPDX, Reference: tag},
	}, image.Status.Attestations)

	p := w.provenance(string(image.Spec.PullSpec), firstKey())
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
	assert.Equal(t, w.base[strings.Index(w.base, "@sha256:")+8:], d.ResolvedDependencies[0].Digest["sha256"])
	assert.Equal(t, "rendered MachineConfig rendered-worker-1", d.ResolvedDependencies[1].Name)
	assert.Equal(t, provenance.DefaultBuilderID, p.RunDetails.Builder.ID)
	assert.Equal(t, map[string]string{"layerwright": version.Current().Version}, p.RunDetails.Builder.Version)
	assert.Equal(t, build.Name+"/"+string(build.UID), p.RunDetails.Metadata.InvocationID)
	require.NotNil(t, p.RunDetails.Metadata.StartedOn)
	assert.True(t, p.RunDetails.Metadata.StartedOn.Equal(build.Status.BuildStart.Time))
	require.NotNil(t, p.RunDetails.Metadata.FinishedOn)

	signed, err := w.stated(string(image.Spec.PullSpec), sign.PredicateSPDX, firstKey())
	require.NoError(t, err)
	assert.JSONEq(t, made.text, string(signed[0]))
	require.Len(t, made.about, 1)
	require.Len(t, made.about[0].Platforms, 1)
	assert.Equal(t, image.Spec.PullSpec.Digest(), made.about[0].Platforms[0].Digest.String())
	assert.Equal(t, v1.Platform{OS: "linux", Architecture: "amd64"}, made.about[0].Platforms[0].Platform)
	assert.Contains(t, strings.Join(w.told(), "\n"), "Normal ImageAttested The image "+string(image.Spec.PullSpec)+" is attested: "+sign.PredicateProvenance)

	order := w.pushedManifests()
	suffix := func(suffix string) func(string) bool {
		return func(s string) bool { return strings.HasSuffix(s, suffix) }
	}
	assert.Less(t, slices.IndexFunc(order, suffix(".att")), slices.IndexFunc(order, suffix(".sig")), "the signature is the last word")
	_, err = w.reconcileImage(w.builder(w.attesting(made)), image.Name)
	require.NoError(t, err)
	assert.Empty(t, w.pushedManifests(), "nothing is attested or signed twice")
	assert.Len(t, made.about, 1, "nor is an image read for nothing")
}

func TestSeveralArchitecturesAreAttested(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.base = w.registry.pushBase(t, "stream/os", "both", "amd64", "arm64")
	w.add(firstKey().secret(), w.rendered("worker", "1", "/etc/motd", "one"), newPool("worker", "rendered-worker-1"), w.config("worker"))
	made := &sboms{text: `{}`}
	w.settle(w.builder(w.attesting(made)))
	build := w.builds()[0]
	require.Len(t, build.Status.Architectures, 2)
	whole := w.provenance(string(build.Status.DigestedImagePushSpec), firstKey())
	for _, one := range build.Status.Architectures {
		assert.Equal(t, whole, w.provenance(string(one.DigestedImagePushSpec), firstKey()))
	}
	require.Len(t, made.about[0].Platforms, 2)
	assert.Equal(t, "arm64", made.about[0].Platforms[1].Platform.Architecture)

	w.remove(w.osConfig("worker"))
	w.settle(w.builder(w.attesting(made)))
	for _, tag := range w.tags("host/os") {
		assert.NotContains(t, tag, ".att", "statements go with their image")
	}
}

func TestSBOMsThatFailForGood(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		sbom sboms
		want string
		// made is how often it is tried in two reconciles.
		made int
	}{
		"a broken database":      {sboms{err: &packages.BrokenError{Path: "/var/lib/rpm", Err: errors.New("x")}}, `package database "/var/lib/rpm" is broken: x`, 1},
		"a database without end": {sboms{err: &packages.TooLargeError{Path: "/var/lib/rpm", Size: 2, Limit: 1}}, "has 2 bytes, the limit is 1", 1},
		"too large":              {sboms{text: `"` + strings.Repeat("a", sign.MaxPredicate) + `"`}, "it has 10485762 bytes; the limit is 10485760", 1},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := layered(t, "worker")
			w.add(firstKey().secret())
			made := tt.sbom
			b := w.builder(w.attesting(&made))
			w.settle(b)
			assert.Equal(t, "True Succeeded", w.says("worker", status.Ready))
			image := w.onlyImage()
			assert.Contains(t, attestedText(image), "True Attested it has no SBOM: ")
			assert.Contains(t, attestedText(image), tt.want)
			assert.Len(t, image.Status.Attestations, 1)
			w.provenance(string(image.Spec.PullSpec), firstKey())
			_, err := w.reconcileImage(b, image.Name)
			require.NoError(t, err)
			assert.Len(t, made.about, tt.made, "it is not tried every ten minutes")
			assert.Contains(t, attestedText(w.onlyImage()), tt.want)
		})
	}
}

func TestSBOMsThatFailForNow(t *testing.T) {
	t.Parallel()
	w := layered(t, "worker")
	w.add(firstKey().secret())
	made := &sboms{text: `{}`, err: errors.New("the disk is full")}
	b := w.builder(w.attesting(made))
	w.settle(b)
	image := w.onlyImage()
	assert.Contains(t, attestedText(image), "False AttestationFailed the disk is full")
	assert.Contains(t, text(w.builds()[0].Status.Conditions, status.Reconciling), "WaitingForSignature the image was pushed and is not attested yet")
	assert.Equal(t, "none", signedText(image), "the signature is the last word")
	assert.Contains(t, strings.Join(w.told(), "\n"), "Warning ImageNotAttested AttestationFailed: the disk is full")
	w.provenance(string(image.Spec.PullSpec), firstKey())

	w.pushedManifests()
	made.err = nil
	w.settle(b)
	assert.Equal(t, "True Succeeded", w.says("worker", status.Ready))
	assert.Equal(t, "True Attested", attestedText(w.onlyImage()))
	for _, pushed := range w.pushedManifests() {
		assert.Regexp(t, `(^worker|\.(att|sig))$`, pushed, "nothing is built again")
	}
}

func TestAttestingWithAFailingRegistry(t *testing.T) {
	t.Parallel()
	for suffix, want := range map[string]string{".att": "none", ".sig": "True Attested"} {
		t.Run(suffix, func(t *testing.T) {
			t.Parallel()
			w := layered(t, "worker")
			w.add(firstKey().secret())
			b := w.builder(w.attesting(nil))
			w.registry.answering(failingPuts(suffix, http.StatusBadGateway))
			w.settle(b)
			assert.Contains(t, text(w.builds()[0].Status.Conditions, status.Reconciling), "WaitingForSignature")
			if suffix == ".att" {
				assert.Contains(t, attestedText(w.onlyImage()), "False AttestationFailed")
				assert.Equal(t, want, signedText(w.onlyImage()))
			} else {
				assert.Equal(t, want, attestedText(w.onlyImage()))
			}
			w.pushedManifests()
			w.registry.answering(nil)
			w.settle(b)
			assert.Equal(t, "True Succeeded", w.says("worker", status.Ready))
			pushed := w.pushedManifests()
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
	w := layered(t, "worker")
	b := w.builder(w.attesting(nil))
	w.settle(b)
	assert.Contains(t, attestedText(w.onlyImage()), "False WaitingForKey")
	assert.Contains(t, signedText(w.onlyImage()), "False WaitingForKey")
	assert.Contains(t, text(w.builds()[0].Status.Conditions, status.Reconciling), "WaitingForSignature")
	key := firstKey().secret()
	w.add(key)
	w.settle(b)
	assert.Equal(t, "True Attested", attestedText(w.onlyImage()))

	w.remove(key)
	_, err := w.reconcileImage(b, w.onlyImage().Name)
	require.NoError(t, err)
	assert.Equal(t, "True Attested", attestedText(w.onlyImage()), "what is attested stays so without the key")
}

// removeTag deletes what has a tag, and the tag, which this registry keeps otherwise.
func (w *world) removeTag(tag string) {
	w.t.Helper()
	ref := w.registry.parse(w.t, tag)
	require.NoError(w.t, ggcr.Delete(ref.Context().Digest(w.registry.digestOf(w.t, tag))))
	require.NoError(w.t, ggcr.Delete(ref))
}

// statementsOf are the attachments of an image.
func (w *world) statementsOf(image string) v1.Image {
	w.t.Helper()
	return must(ggcr.Image(w.registry.parse(w.t, image)))
}

func TestImagesStayAttested(t *testing.T) {
	t.Parallel()
	tests := map[string]func(w *world, image *mcfgv1alpha1.MachineOSImage){
		"the tag is deleted": func(w *world, image *mcfgv1alpha1.MachineOSImage) {
			w.removeTag(attachedTo(image.Spec.PullSpec))
		},
		"the statement is another image's": func(w *world, image *mcfgv1alpha1.MachineOSImage) {
			other := w.registry.pushBase(w.t, "host/os", "other")
			signer := sign.NewSigner(w.secretKeys())
			_, err := signer.Attest(w.t.Context(), registry.New(registry.Options{}), other,
				sign.Statement{PredicateType: sign.PredicateProvenance, Predicate: json.RawMessage(`{"buildDefinition":{}}`)})
			require.NoError(w.t, err)
			stolen := w.statementsOf(attachedTo(mcfgv1.ImageDigestFormat(other)))
			require.NoError(w.t, ggcr.Write(w.registry.parse(w.t, attachedTo(image.Spec.PullSpec)), stolen))
			_, err = w.stated(string(image.Spec.PullSpec), sign.PredicateProvenance, firstKey())
			require.ErrorContains(w.t, err, "about another image")
		},
		"the statement is by another key": func(w *world, image *mcfgv1alpha1.MachineOSImage) {
			w.removeTag(attachedTo(image.Spec.PullSpec))
			_, err := secondKey().Signer().Attest(w.t.Context(), registry.New(registry.Options{}), string(image.Spec.PullSpec),
				sign.Statement{PredicateType: sign.PredicateProvenance, Predicate: json.RawMessage(`{"buildDefinition":{}}`)})
			require.NoError(w.t, err)
		},
	}
	for name, attack := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := layered(t, "worker")
			w.add(firstKey().secret())
			b := w.builder(w.attesting(nil))
			w.settle(b)
			image := w.onlyImage()
			first := w.provenance(string(image.Spec.PullSpec), firstKey())
			attack(w, image)
			_, err := w.reconcileImage(b, image.Name)
			require.NoError(t, err)
			again := w.provenance(string(image.Spec.PullSpec), firstKey())
			first.RunDetails.Builder.Version = nil // no one knows any more which version it was
			assert.Equal(t, first, again)
			assert.Equal(t, "True Attested", attestedText(w.onlyImage()))
		})
	}
}

func TestAttestationsAfterKeyRotation(t *testing.T) {
	t.Parallel()
	w := layered(t, "worker")
	w.add(firstKey().secret())
	b := w.builder(w.attesting(nil))
	w.settle(b)
	image := w.onlyImage()
	first := w.provenance(string(image.Spec.PullSpec), firstKey())

	w.remove(firstKey().secret())
	exchanged := secondKey().secret()
	exchanged.Data[sign.SecretTrusted] = firstKey().Public
	w.add(exchanged)
	_, err := w.reconcileImage(b, image.Name)
	require.NoError(t, err)
	assert.Equal(t, first, w.provenance(string(image.Spec.PullSpec), secondKey()), "what the key before has stated is taken over")
	assert.Equal(t, first, w.provenance(string(image.Spec.PullSpec), firstKey()), "and stays")
}

func TestImagesFromBeforeAttestingAreAttested(t *testing.T) {
	t.Parallel()
	w := layered(t, "worker")
	w.settle(w.builder())
	w.add(firstKey().secret())
	image := w.onlyImage()
	_, err := w.reconcileImage(w.builder(w.attesting(nil)), image.Name)
	require.NoError(t, err)
	p := w.provenance(string(image.Spec.PullSpec), firstKey())
	assert.Equal(t, w.builds()[0].Name+"/"+string(w.builds()[0].UID), p.RunDetails.Metadata.InvocationID)
	assert.Empty(t, p.RunDetails.Builder.Version, "which version made it is not known")
}

func TestImagesWithoutTheirBuild(t *testing.T) {
	t.Parallel()
	w := layered(t, "worker")
	w.settle(w.builder())
	w.add(firstKey().secret())
	image := w.onlyImage()
	edit(w, &mcfgv1alpha1.MachineOSImage{}, image.Name, func(i *mcfgv1alpha1.MachineOSImage) { i.Labels[mcfgv1.LabelMachineOSBuild] = "gone" })
	build := w.builds()[0]
	edit(w, &mcfgv1.MachineOSBuild{}, build.Name, func(b *mcfgv1.MachineOSBuild) { b.Status.DigestedImagePushSpec = "" })
	w.quietly(func() error {
		now := read(w, &mcfgv1.MachineOSBuild{}, build.Name)
		now.Status.DigestedImagePushSpec = ""
		return w.Status().Update(t.Context(), now)
	})
	_, err := w.reconcileImage(w.builder(w.attesting(&sboms{text: `{}`})), image.Name)
	require.NoError(t, err)
	assert.Contains(t, attestedText(w.onlyImage()), "True Attested it has no provenance: its MachineOSBuild was deleted")
	assert.Equal(t, "True Signed", signedText(w.onlyImage()))

	edit(w, &mcfgv1alpha1.MachineOSImage{}, image.Name, func(i *mcfgv1alpha1.MachineOSImage) { i.Labels["a"] = "b" })
	other := layered(t, "worker")
	other.add(firstKey().secret())
	other.settle(other.builder())
	lone := other.onlyImage()
	other.quietly(func() error {
		now := read(other, &mcfgv1.MachineOSBuild{}, other.builds()[0].Name)
		now.Status.DigestedImagePushSpec = ""
		return other.Status().Update(t.Context(), now)
	})
	edit(other, &mcfgv1alpha1.MachineOSImage{}, lone.Name, func(i *mcfgv1alpha1.MachineOSImage) { delete(i.Labels, mcfgv1.LabelMachineOSBuild) })
	_, err = other.reconcileImage(other.builder(other.attesting(nil)), lone.Name)
	require.NoError(t, err)
	assert.Contains(t, attestedText(other.onlyImage()), "False AttestationFailed it has no provenance", "nothing at all is stated")
}

func TestForeignImagesAreNotAttested(t *testing.T) {
	t.Parallel()
	w := layered(t, "worker")
	w.add(firstKey().secret())
	w.editConfig("worker", func(c *mcfgv1.MachineOSConfig) {
		c.Annotations = map[string]string{mcfgv1.AnnotationPreBuiltImage: w.base}
	})
	b := w.builder(w.attesting(nil))
	w.settle(b)
	assert.Equal(t, "True Succeeded", w.says("worker", status.Ready))
	_, err := w.reconcileImage(b, w.onlyImage().Name)
	require.NoError(t, err)
	assert.Contains(t, attestedText(w.onlyImage()), "False BuiltElsewhere")
	for tag := range w.registry.tags(t, "stream/os") {
		assert.NotContains(t, tag, ".att")
	}
}

func TestTaggedContentNeedsAnAttestation(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		// attack changes what the content's tag stands for.
		attack func(w *world, content string)
		builds int
	}{
		"as it was built": {func(*world, string) {}, 1},
		"someone pushes other content with its labels": {func(w *world, content string) { w.pushEvil(content) }, 2},
		"and copies the statement about ours": {func(w *world, content string) {
			ref := w.registry.parse(w.t, content)
			stated := w.statementsOf(attachedTo(mcfgv1.ImageDigestFormat(ref.Context().Digest(w.registry.digestOf(w.t, content)).String())))
			evil := w.pushEvil(content)
			require.NoError(w.t, ggcr.Write(w.registry.parse(w.t, attachedTo(mcfgv1.ImageDigestFormat(evil))), stated))
		}, 2},
		"someone deletes the statement": {func(w *world, content string) {
			ref := w.registry.parse(w.t, content)
			w.removeTag(attachedTo(mcfgv1.ImageDigestFormat(ref.Context().Digest(w.registry.digestOf(w.t, content)).String())))
		}, 2},
		"a pool's image under the tag of content": {func(w *world, content string) {
			pool := w.onlyImage().Spec.PullSpec // it has the label too, and our provenance
			require.NoError(w.t, ggcr.Tag(w.registry.parse(w.t, content).Context().Tag(content[strings.LastIndex(content, ":")+1:]), w.statementsOf(string(pool))))
		}, 2},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, s, use := withContent(t, cheapFile)
			w.add(firstKey().secret())
			b := w.builder(use, w.attesting(nil))
			w.settle(b)
			require.Equal(t, 1, s.ensure)
			content := w.registry.host + "/host/os:content-" + w.builds()[0].Status.ContentKey
			ref := w.registry.parse(t, content)
			pinned := ref.Context().Digest(w.registry.digestOf(t, content)).String()
			p := w.provenance(pinned, firstKey())
			assert.Equal(t, provenance.BuildTypeContent, p.BuildDefinition.BuildType)
			require.ErrorContains(t, w.verify(pinned, firstKey()), "it has no signature", "no node takes it for an OS image")
			first := string(w.onlyImage().Spec.PullSpec)
			names := func() []string {
				var names []string
				for _, d := range w.provenance(first, firstKey()).BuildDefinition.ResolvedDependencies {
					names = append(names, d.Name)
				}
				return names
			}
			assert.Equal(t, []string{"base image", "Containerfile", "content image", "rendered MachineConfig rendered-worker-1"}, names())

			tt.attack(w, content)
			w.rerender("worker", "2", "/etc/motd", "two")
			w.settle(b)
			assert.Equal(t, "True Succeeded", w.says("worker", status.Ready))
			assert.Equal(t, tt.builds, s.ensure)
			newer := string(w.osConfig("worker").Status.CurrentImagePullSpec)
			assert.Equal(t, "two", w.unpacked(newer, "amd64", "etc/motd"))
			assert.Equal(t, "built for amd64", w.unpacked(newer, "amd64", "usr/share/built"))

			w.remove(w.osConfig("worker"))
			w.settle(b)
			for _, tag := range w.tags("host/os") {
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
	w, s, use := withContent(t, cheapFile)
	w.add(firstKey().secret())
	b := w.builder(use, w.attesting(nil))
	w.settle(b)
	before := w.content()
	tag := w.registry.host + "/host/os:content-" + w.builds()[0].Status.ContentKey
	stated, copied := attachedTo(mcfgv1.ImageDigestFormat(before)), w.registry.host+"/elsewhere/os:"
	write := func(from, to string) { require.NoError(t, ggcr.Write(w.registry.parse(t, to), w.statementsOf(from))) }
	write(before, copied+"content")
	write(stated, copied+"statement")
	w.clock.SetTime(w.clock.Now().Add(time.Minute))
	w.annotate("worker", mcfgv1.AnnotationRebuild)
	w.settle(b)
	require.Equal(t, 2, s.ensure)
	rebuilt := w.content()
	require.NotEqual(t, before, rebuilt)

	w.rerender("worker", "2", "/etc/motd", "two")
	w.settle(b)
	require.Equal(t, 2, s.ensure, "what was rebuilt is taken from its tag")
	require.Equal(t, rebuilt, w.content())

	write(copied+"content", tag)
	write(copied+"statement", stated)
	require.Equal(t, before, w.content())
	w.rerender("worker", "3", "/etc/motd", "three")
	w.settle(b)
	assert.Equal(t, 3, s.ensure, "it is built again")
	assert.NotEqual(t, before, w.content())
	assert.Equal(t, "True Succeeded", w.says("worker", status.Ready))
}

// pushEvil pushes other content under a tag, with the labels of what has it.
func (w *world) pushEvil(content string) string {
	w.t.Helper()
	evil := osImage(w.t, "evil", "amd64")
	config := must(evil.ConfigFile()).DeepCopy()
	config.Config.Labels = must(w.statementsOf(content).ConfigFile()).Config.Labels
	evil = must(mutateConfig(evil, config))
	ref := w.registry.parse(w.t, content)
	require.NoError(w.t, ggcr.Write(ref, evil))
	return ref.Context().Digest(must(evil.Digest()).String()).String()
}
