package images_test

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/v1/mutate"
	ggcr "github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	mcfgv1alpha1 "github.com/layerwright/layerwright/api/machineconfiguration/v1alpha1"
	"github.com/layerwright/layerwright/internal/fault"
	"github.com/layerwright/layerwright/internal/registry"
	"github.com/layerwright/layerwright/internal/status"
	"github.com/layerwright/layerwright/test/worldtest"
	"github.com/layerwright/layerwright/trust/sign"
	"github.com/layerwright/layerwright/trust/sign/signtest"
)

// verify verifies an image as the key's holder would.
func verify(w *worldtest.World, image string, by worldtest.KeyPair) error {
	_, err := w.Takes(by).Verify(w.T.Context(), registry.New(registry.Options{}), image)
	return err
}

func TestImagesAreSigned(t *testing.T) {
	t.Parallel()
	w := worldtest.Layered(t, "worker")
	w.Add(worldtest.FirstKey().Secret())
	w.Settle(w.Builder(w.Signing))
	assert.Equal(t, "True Succeeded", w.Says("worker", status.Ready))
	image := w.OnlyImage()
	require.NoError(t, verify(w, string(image.Spec.PullSpec), worldtest.FirstKey()))
	assert.Equal(t, "True Signed", worldtest.SignedText(image))
	require.NotNil(t, image.Status.Signature)
	assert.Equal(t, worldtest.FirstKey().ID(), image.Status.Signature.KeyID)
	assert.Equal(t, w.Registry.Host+"/host/os:sha256-"+strings.TrimPrefix(image.Spec.PullSpec.Digest(), "sha256:")+".sig", image.Status.Signature.Reference)
	assert.NotNil(t, image.Status.Signature.SignedTime)
	assert.Equal(t, image.Spec.PullSpec, w.Builds()[0].Status.DigestedImagePushSpec)
	told := strings.Join(w.Told(), "\n")
	assert.Contains(t, told, "Normal ImageSigned The image "+string(image.Spec.PullSpec)+" is signed with the key "+worldtest.FirstKey().ID())
	assert.NotContains(t, told, signtest.Password)
}

func TestNoSignatureWithoutASigner(t *testing.T) {
	t.Parallel()
	w := worldtest.Layered(t, "worker")
	w.Settle(w.Builder())
	image := w.OnlyImage()
	assert.Nil(t, image.Status.Signature)
	assert.Equal(t, "none", worldtest.SignedText(image))
	for tag := range w.Registry.Tags(t, "host/os") {
		assert.NotContains(t, tag, ".sig")
	}
}

func TestSeveralArchitecturesAreSigned(t *testing.T) {
	t.Parallel()
	w := worldtest.New(t)
	w.Base = w.Registry.PushBase(t, "stream/os", "both", "amd64", "arm64")
	w.Add(worldtest.FirstKey().Secret(), w.Rendered("worker", "1", "/etc/motd", "one"), worldtest.NewPool("worker", "rendered-worker-1"), w.Config("worker"))
	w.Settle(w.Builder(w.Signing))
	build := w.Builds()[0]
	require.Len(t, build.Status.Architectures, 2)
	for _, one := range build.Status.Architectures {
		require.NoError(t, verify(w, string(one.DigestedImagePushSpec), worldtest.FirstKey()), "nodes verify the image that they pull")
	}
	require.NoError(t, verify(w, string(build.Status.DigestedImagePushSpec), worldtest.FirstKey()))
}

func TestABuildWaitsForItsSignature(t *testing.T) {
	t.Parallel()
	wrong := worldtest.FirstKey().Secret()
	wrong.Data[sign.SecretPassword] = []byte("battery staple")
	without := worldtest.FirstKey().Secret()
	delete(without.Data, sign.SecretPassword)
	tests := map[string]struct {
		secret *corev1.Secret
		reason string
		want   string
	}{
		"no key":           {nil, mcfgv1alpha1.ReasonWaitingForKey, `no signing key in secret "signing" in namespace "layerwright": it does not exist`},
		"another password": {wrong, mcfgv1alpha1.ReasonInvalidKey, "the password does not open it"},
		"no password":      {without, mcfgv1alpha1.ReasonInvalidKey, "cosign.password of the secret"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := worldtest.Layered(t, "worker")
			if tt.secret != nil {
				w.Add(tt.secret)
			}
			b := w.Builder(w.Signing)
			w.Settle(b)
			image := w.OnlyImage()
			assert.Nil(t, image.Status.Signature)
			assert.Contains(t, worldtest.SignedText(image), "False "+tt.reason)
			assert.Contains(t, worldtest.SignedText(image), tt.want)
			build := w.Builds()[0]
			assert.Equal(t, image.Spec.PullSpec, build.Status.DigestedImagePushSpec)
			assert.Equal(t, mcfgv1.BuildStageBuilding, status.BuildStageOf(build.Status.Conditions))
			assert.Contains(t, worldtest.Text(build.Status.Conditions, status.Reconciling), "WaitingForSignature the image was pushed and is not trusted yet")
			assert.Empty(t, w.OSConfig("worker").Status.CurrentImagePullSpec, "it is not trusted yet")
			assert.Contains(t, strings.Join(w.Told(), "\n"), "Warning ImageNotSigned "+tt.reason)

			if tt.secret != nil {
				w.Remove(tt.secret)
			}
			w.Add(worldtest.FirstKey().Secret())
			w.Registry.Forget()
			w.Settle(b)
			assert.Equal(t, "True Succeeded", w.Says("worker", status.Ready))
			assert.Equal(t, image.Spec.PullSpec, w.OSConfig("worker").Status.CurrentImagePullSpec, "nothing was built again")
			for _, request := range w.Registry.Forget() {
				if strings.HasPrefix(request, "PUT ") && strings.Contains(request, "/manifests/") && !strings.HasSuffix(request, worldtest.PoolTagPath) {
					assert.Contains(t, request, ".sig", "nothing but the signature is pushed, and the pool's tag moved")
				}
			}
			require.NoError(t, verify(w, string(image.Spec.PullSpec), worldtest.FirstKey()))
		})
	}
}

func TestRegistriesThatTakeNoSignature(t *testing.T) {
	t.Parallel()
	for name, code := range map[string]int{"fails": http.StatusBadGateway, "refuses": http.StatusForbidden} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := worldtest.Layered(t, "worker")
			w.Add(worldtest.FirstKey().Secret())
			w.Registry.Answer(func(rw http.ResponseWriter, r *http.Request) bool {
				if r.Method != http.MethodPut || !strings.HasSuffix(r.URL.Path, ".sig") {
					return false
				}
				rw.WriteHeader(code)
				return true
			})
			b := w.Builder(w.Signing)
			w.Settle(b)
			image := w.OnlyImage()
			assert.Contains(t, worldtest.SignedText(image), "False SigningFailed")
			assert.Contains(t, worldtest.Text(w.Builds()[0].Status.Conditions, status.Reconciling), "WaitingForSignature")
			w.Registry.Answer(nil)
			w.Settle(b)
			assert.Equal(t, "True Signed", worldtest.SignedText(w.OnlyImage()))
			assert.Equal(t, "True Succeeded", w.Says("worker", status.Ready))
		})
	}
}

func TestATagThatMovesBeforeItIsSigned(t *testing.T) {
	t.Parallel()
	w := worldtest.Layered(t, "worker")
	b := w.Builder(w.Signing)
	w.Settle(b)
	pushed := w.OnlyImage().Spec.PullSpec
	evil := worldtest.OSImage(t, "evil", "amd64")
	config, err := evil.ConfigFile()
	require.NoError(t, err)
	config.Config.Labels = worldtest.Must(worldtest.Must(ggcr.Image(w.Registry.Parse(t, string(pushed)))).ConfigFile()).Config.Labels // it says that it is the same
	evil = worldtest.Must(mutate.ConfigFile(evil, config))
	for _, tag := range []string{w.Builds()[0].Name, "worker"} {
		require.NoError(t, ggcr.Write(w.Registry.Parse(t, w.Registry.Host+"/host/os:"+tag), evil))
	}
	w.Add(worldtest.FirstKey().Secret())
	w.Settle(w.Builder(w.Signing)) // also after a restart
	require.NoError(t, verify(w, string(pushed), worldtest.FirstKey()))
	digest, err := evil.Digest()
	require.NoError(t, err)
	require.ErrorContains(t, verify(w, w.Registry.Host+"/host/os@"+digest.String(), worldtest.FirstKey()), "it has no signature")
	assert.Equal(t, pushed, w.OSConfig("worker").Status.CurrentImagePullSpec)
}

func TestImageUnderTheTagIsCheckedBeforeSigning(t *testing.T) {
	t.Parallel()
	w := worldtest.Layered(t, "worker")
	w.Settle(w.Builder())
	honest, build := w.OnlyImage().Spec.PullSpec, w.Builds()[0].Name
	evil := worldtest.OSImage(t, "evil", "amd64")
	config, err := evil.ConfigFile()
	require.NoError(t, err)
	config.Config.Labels = worldtest.Must(worldtest.Must(ggcr.Image(w.Registry.Parse(t, string(honest)))).ConfigFile()).Config.Labels
	evil = worldtest.Must(mutate.ConfigFile(evil, config))
	require.NoError(t, ggcr.Write(w.Registry.Parse(t, w.Registry.Host+"/host/os:"+build), evil))

	again := worldtest.Layered(t, "worker")
	again.Registry, again.Base = w.Registry, w.Base
	again.Quietly(func() error {
		return errors.Join(again.Delete(t.Context(), again.OSConfig("worker")), again.Delete(t.Context(), again.Secret("push", "")), again.Delete(t.Context(), again.Secret("pull", "")),
			again.Delete(t.Context(), &mcfgv1.MachineConfig{ObjectMeta: metav1.ObjectMeta{Name: "rendered-worker-1"}}))
	})
	again.Add(again.Secret("push", "hunter2"), again.Secret("pull", "hunter2"), again.Rendered("worker", "1", "/etc/motd", "one"), again.Config("worker"), worldtest.FirstKey().Secret())
	again.Settle(again.Builder(again.Signing))
	assert.Equal(t, honest, again.OnlyImage().Spec.PullSpec, "the image is made again, and is the same")
	require.NoError(t, verify(again, string(honest), worldtest.FirstKey()))
	digest, err := evil.Digest()
	require.NoError(t, err)
	require.ErrorContains(t, verify(again, w.Registry.Host+"/host/os@"+digest.String(), worldtest.FirstKey()), "it has no signature")
}

func TestImagesStaySigned(t *testing.T) {
	t.Parallel()
	w := worldtest.Layered(t, "worker")
	w.Add(worldtest.FirstKey().Secret())
	b := w.Builder(w.Signing)
	w.Settle(b)
	image := w.OnlyImage()
	pinned := string(image.Spec.PullSpec)

	w.Registry.Forget()
	written := len(w.Writes)
	result, err := w.ReconcileImage(b, image.Name)
	require.NoError(t, err)
	assert.Positive(t, result.RequeueAfter)
	assert.Len(t, w.Writes, written, "nothing is written where nothing changed")
	for _, request := range w.Registry.Forget() {
		assert.False(t, strings.HasPrefix(request, "PUT "), request)
	}

	tag := w.Registry.Parse(t, image.Status.Signature.Reference)
	require.NoError(t, ggcr.Delete(tag.Context().Digest(w.Registry.DigestOf(t, tag.String()))))
	require.NoError(t, ggcr.Delete(tag))
	require.ErrorContains(t, verify(w, pinned, worldtest.FirstKey()), "it has no signature")
	_, err = w.ReconcileImage(b, image.Name)
	require.NoError(t, err)
	require.NoError(t, verify(w, pinned, worldtest.FirstKey()), "a signature that someone deleted is made again")

	w.Remove(worldtest.FirstKey().Secret())
	result, err = w.ReconcileImage(b, image.Name)
	require.NoError(t, err)
	assert.Positive(t, result.RequeueAfter)
	assert.Contains(t, worldtest.SignedText(w.OnlyImage()), "True Signed it was trusted at the last successful check; it can't be checked now: no signing key in secret", "what is signed stays so without the key")

	w.Add(worldtest.SecondKey().Secret())
	_, err = w.ReconcileImage(b, image.Name)
	require.NoError(t, err)
	require.NoError(t, verify(w, pinned, worldtest.SecondKey()))
	require.NoError(t, verify(w, pinned, worldtest.FirstKey()), "until nodes know the new key, they know the one before")
	assert.Equal(t, worldtest.SecondKey().ID(), w.OnlyImage().Status.Signature.KeyID)
}

func TestImagesFromBeforeSigningAreSigned(t *testing.T) {
	t.Parallel()
	w := worldtest.Layered(t, "worker")
	w.Settle(w.Builder())
	w.Add(worldtest.FirstKey().Secret())
	image := w.OnlyImage()
	_, err := w.ReconcileImage(w.Builder(w.Signing), image.Name)
	require.NoError(t, err)
	assert.Equal(t, "True Signed", worldtest.SignedText(w.OnlyImage()))
	require.NoError(t, verify(w, string(image.Spec.PullSpec), worldtest.FirstKey()))
}

// Whoever may push can give any tag and any label to an image. Where nothing is signed, that is all
// which says whose it is.
func TestImageFromBeforeSigningIsNotSigned(t *testing.T) {
	t.Parallel()
	w := worldtest.Layered(t, "worker")
	w.Settle(w.Builder())
	w.Remove(w.OnlyImage())
	for _, build := range w.Builds() {
		w.Remove(&build)
	}
	w.Settle(w.Builder())
	image := w.OnlyImage()
	require.Equal(t, mcfgv1.ReasonReused, worldtest.EndedBy(w))
	assert.Equal(t, mcfgv1alpha1.ImageImported, image.Status.Origin)

	w.Add(worldtest.FirstKey().Secret())
	b := w.Builder(w.Signing)
	_, err := w.ReconcileImage(b, image.Name)
	require.NoError(t, err)
	assert.Contains(t, worldtest.SignedText(w.OnlyImage()), "False NotSigned the registry had this image before this cluster signed anything")

	w.EditConfig("worker", func(c *mcfgv1.MachineOSConfig) {
		metav1.SetMetaDataAnnotation(&c.ObjectMeta, mcfgv1.AnnotationRebuild, "")
	})
	w.Settle(b)
	assert.Equal(t, mcfgv1alpha1.ImageBuilt, w.OnlyImage().Status.Origin)
	assert.Equal(t, "True Signed", worldtest.SignedText(w.OnlyImage()))
}

func TestForeignImagesAreNotSigned(t *testing.T) {
	t.Parallel()
	w := worldtest.Layered(t, "worker")
	w.Add(worldtest.FirstKey().Secret())
	imported := &mcfgv1alpha1.MachineOSImage{ObjectMeta: metav1.ObjectMeta{Name: "imported"}}
	imported.Spec.PullSpec, imported.Spec.MachineConfigPool = mcfgv1.ImageDigestFormat(w.Base), "worker"
	w.Add(imported)
	b := w.Builder(w.Signing)
	_, err := w.ReconcileImage(b, "imported")
	require.NoError(t, err)
	assert.Contains(t, worldtest.SignedText(worldtest.Read(w, &mcfgv1alpha1.MachineOSImage{}, "imported")), "False NotTrusted no trusted signer is configured for the repository")
	w.Remove(imported)

	w.EditConfig("worker", func(c *mcfgv1.MachineOSConfig) {
		metav1.SetMetaDataAnnotation(&c.ObjectMeta, mcfgv1.AnnotationPreBuiltImage, w.Base)
	})
	w.Settle(b)
	assert.Equal(t, "True Succeeded", w.Says("worker", status.Ready))
	image := w.OnlyImage()
	_, err = w.ReconcileImage(b, image.Name)
	require.NoError(t, err)
	assert.Contains(t, worldtest.SignedText(w.OnlyImage()), "False BuiltElsewhere")
	for tag := range w.Registry.Tags(t, "stream/os") {
		assert.NotContains(t, tag, ".sig")
	}
}

func TestSignaturesGoWithTheirImage(t *testing.T) {
	t.Parallel()
	w := worldtest.Layered(t, "worker")
	w.Add(worldtest.FirstKey().Secret())
	b := w.Builder(w.Signing)
	w.Settle(b)
	signature := w.OnlyImage().Status.Signature.Reference
	require.True(t, w.Registry.Has(t, signature))
	digest := w.Registry.DigestOf(t, signature)
	w.Remove(w.OSConfig("worker"))
	w.Settle(b)
	assert.False(t, w.Registry.Has(t, w.Registry.Host+"/host/os@"+digest))
}

// refuser is a Signer that refuses.
type refuser struct{ err error }

func (f refuser) Sign(context.Context, sign.Registry, string) (sign.Signature, error) {
	return sign.Signature{}, f.err
}

func TestImageLostBeforeSigningIsRebuilt(t *testing.T) {
	t.Parallel()
	w := worldtest.Layered(t, "worker")
	w.Settle(w.Builder(w.Signing))
	image := w.OnlyImage().Spec.PullSpec
	require.NoError(t, ggcr.Delete(w.Registry.Parse(t, string(image))))
	w.Add(worldtest.FirstKey().Secret())
	w.Settle(w.Builder(w.Signing))
	assert.Equal(t, "True Succeeded", w.Says("worker", status.Ready))
	require.NoError(t, verify(w, string(image), worldtest.FirstKey()))
}

func TestTerminalErrorsOfSigningEndNoBuild(t *testing.T) {
	t.Parallel()
	w := worldtest.Layered(t, "worker")
	w.Settle(w.Builder(func(o *worldtest.Settings) {
		o.Signer = refuser{fault.NewTerminal(mcfgv1.ReasonPushDenied, errors.New("no"))}
	}))
	assert.Equal(t, mcfgv1.BuildStageBuilding, status.BuildStageOf(w.Builds()[0].Status.Conditions))
	assert.Contains(t, worldtest.SignedText(w.OnlyImage()), "False SigningFailed no")
}

// timed is a Signer that reports whether it may take forever.
type timed struct{ deadlines *[]bool }

func (s timed) Sign(ctx context.Context, _ sign.Registry, _ string) (sign.Signature, error) {
	_, has := ctx.Deadline()
	*s.deadlines = append(*s.deadlines, has)
	return sign.Signature{}, errors.New("no answer")
}

// A registry may accept a connection and never answer. Nothing that is done for one image may hold
// a worker, and the image's lock, for good.
func TestSigningTakesNoLongerThanAnAttempt(t *testing.T) {
	t.Parallel()
	w := worldtest.Layered(t, "worker")
	var deadlines []bool
	b := w.Builder(func(o *worldtest.Settings) { o.Signer = timed{&deadlines} })
	for range 4 { // it is pushed, and what was pushed is gone on with
		_ = w.Round(b)
	}
	require.GreaterOrEqual(t, len(deadlines), 2)
	assert.NotContains(t, deadlines, false)
}

// signingMovesOn is a Signer in whose time someone else writes the object.
type signingMovesOn struct{ then func() }

func (s signingMovesOn) Sign(context.Context, sign.Registry, string) (sign.Signature, error) {
	s.then()
	return sign.Signature{Reference: "r", KeyID: "k", Added: 1}, nil
}

func TestAnImageThatIsBeingBuiltIsNotJudged(t *testing.T) {
	t.Parallel()
	w := worldtest.Layered(t, "worker")
	w.Add(worldtest.FirstKey().Secret())
	b := w.Builder(w.Attesting(nil))
	w.Registry.Answer(failingPuts(".att", http.StatusBadGateway))
	w.Settle(b)
	build, image := w.Builds()[0], w.OnlyImage()
	require.Equal(t, build.Name, image.Labels[mcfgv1.LabelMachineOSBuild])
	build.Status.DigestedImagePushSpec = "" // as it is while the first reconcile has not ended
	w.Quietly(func() error { return w.Status().Update(t.Context(), &build) })
	result, err := w.ReconcileImage(b, image.Name)
	require.NoError(t, err)
	assert.Equal(t, sign.DeniedAgain, result.RequeueAfter)
	assert.Equal(t, "none", worldtest.SignedText(w.OnlyImage()))
}

// lagging is a client whose cache has not seen what was written into images.
type lagging struct{ client.Client }

func (l lagging) Get(ctx context.Context, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
	err := l.Client.Get(ctx, key, object, options...)
	if image, isImage := object.(*mcfgv1alpha1.MachineOSImage); isImage {
		image.Status = mcfgv1alpha1.MachineOSImageStatus{}
	}
	return err
}

func TestOwnImageIsRecognizedWithoutCache(t *testing.T) {
	t.Parallel()
	w := worldtest.Layered(t, "worker")
	w.Add(worldtest.FirstKey().Secret())
	b := w.Builder(w.Signing)
	w.Settle(b)
	before := w.OnlyImage()
	require.Equal(t, "True Signed", worldtest.SignedText(before))
	require.NotNil(t, before.Status.Signature.SignedTime)
	_, err := w.ReconcileImage(w.BuilderOn(lagging{w}, w.Signing), before.Name)
	require.NoError(t, err)
	assert.Equal(t, before.Status, w.OnlyImage().Status)
}

func TestALostRaceCostsNoSignature(t *testing.T) {
	t.Parallel()
	w := worldtest.Layered(t, "worker")
	races := 0
	b := w.Builder(func(o *worldtest.Settings) {
		o.Signer = signingMovesOn{func() {
			races++
			worldtest.Edit(w, &mcfgv1alpha1.MachineOSImage{}, w.OnlyImage().Name, func(i *mcfgv1alpha1.MachineOSImage) {
				metav1.SetMetaDataAnnotation(&i.ObjectMeta, "race", strconv.Itoa(races))
			})
		}}
	})
	w.Settle(b)
	assert.Equal(t, "True Signed", worldtest.SignedText(w.OnlyImage()))
	assert.Equal(t, "1", w.OnlyImage().Annotations["race"], "it is signed once, and written down beside what others wrote")
	assert.Equal(t, "True Succeeded", w.Says("worker", status.Ready))
}
