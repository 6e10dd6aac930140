package builder

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"

	ggcr "github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apitypes "k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	mcfgv1alpha1 "github.com/layerwright/layerwright/api/machineconfiguration/v1alpha1"
	"github.com/layerwright/layerwright/images"
	"github.com/layerwright/layerwright/internal/fault"
	"github.com/layerwright/layerwright/internal/registry"
	"github.com/layerwright/layerwright/internal/status"
	"github.com/layerwright/layerwright/trust/sign"
	"github.com/layerwright/layerwright/trust/sign/signtest"
)

// keyPair is what a Secret has.
type keyPair struct{ signtest.Pair }

// firstKey and secondKey are made once: encrypting takes its time.
var firstKey, secondKey = sync.OnceValue(newKeyPair), sync.OnceValue(newKeyPair)

func newKeyPair() keyPair { return keyPair{signtest.NewPair()} }

func (p keyPair) secret() *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "signing"},
		Data:       map[string][]byte{sign.SecretPrivateKey: p.Private, sign.SecretPassword: []byte(signtest.Password)},
	}
}

// secretKeys has the key of the Secret "signing".
func (w *world) secretKeys() *sign.SecretKeys {
	secret := apitypes.NamespacedName{Namespace: namespace, Name: "signing"}
	return sign.NewSecretKeys(sign.SecretOptions{Reader: w, Secret: secret, Load: signtest.LoadKey})
}

// signing makes a Builder sign with the key of the Secret "signing".
func (w *world) signing(o *settings) {
	keys := w.secretKeys()
	o.Signer, o.OwnKeys = sign.NewSigner(keys), keys
}

// takes is the policy of who takes images of the pools' repository by one key.
func (w *world) takes(by keyPair) sign.Policy {
	return sign.Policy{{Repository: w.registry.host + "/host/os", Keys: must(sign.ParsePublicKeys(by.Public))}}
}

// verify verifies an image as the key's holder would.
func (w *world) verify(image string, by keyPair) error {
	_, err := w.takes(by).Verify(w.t.Context(), registry.New(registry.Options{}), image)
	return err
}

// reconcileImage reconciles an image.
func (w *world) reconcileImage(b *process, image string) (ctrl.Result, error) {
	return (&images.Reconciler{Keeper: b.keeper}).Reconcile(w.t.Context(), request(image))
}

func (w *world) onlyImage() *mcfgv1alpha1.MachineOSImage {
	w.t.Helper()
	images := w.images()
	require.Len(w.t, images, 1)
	return &images[0]
}

func signedText(image *mcfgv1alpha1.MachineOSImage) string {
	return text(image.Status.Conditions, mcfgv1alpha1.ImageSigned)
}

func TestImagesAreSigned(t *testing.T) {
	t.Parallel()
	w := layered(t, "worker")
	w.add(firstKey().secret())
	w.settle(w.builder(w.signing))
	assert.Equal(t, "True Succeeded", w.says("worker", status.Ready))
	image := w.onlyImage()
	require.NoError(t, w.verify(string(image.Spec.PullSpec), firstKey()))
	assert.Equal(t, "True Signed", signedText(image))
	require.NotNil(t, image.Status.Signature)
	assert.Equal(t, firstKey().ID(), image.Status.Signature.KeyID)
	assert.Equal(t, w.registry.host+"/host/os:sha256-"+strings.TrimPrefix(image.Spec.PullSpec.Digest(), "sha256:")+".sig", image.Status.Signature.Reference)
	assert.NotNil(t, image.Status.Signature.SignedTime)
	assert.Equal(t, image.Spec.PullSpec, w.builds()[0].Status.DigestedImagePushSpec)
	told := strings.Join(w.told(), "\n")
	assert.Contains(t, told, "Normal ImageSigned The image "+string(image.Spec.PullSpec)+" is signed with the key "+firstKey().ID())
	assert.NotContains(t, told, signtest.Password)
}

func TestNoSignatureWithoutASigner(t *testing.T) {
	t.Parallel()
	w := layered(t, "worker")
	w.settle(w.builder())
	image := w.onlyImage()
	assert.Nil(t, image.Status.Signature)
	assert.Equal(t, "none", signedText(image))
	for tag := range w.registry.tags(t, "host/os") {
		assert.NotContains(t, tag, ".sig")
	}
}

func TestSeveralArchitecturesAreSigned(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.base = w.registry.pushBase(t, "stream/os", "both", "amd64", "arm64")
	w.add(firstKey().secret(), w.rendered("worker", "1", "/etc/motd", "one"), newPool("worker", "rendered-worker-1"), w.config("worker"))
	w.settle(w.builder(w.signing))
	build := w.builds()[0]
	require.Len(t, build.Status.Architectures, 2)
	for _, one := range build.Status.Architectures {
		require.NoError(t, w.verify(string(one.DigestedImagePushSpec), firstKey()), "nodes verify the image that they pull")
	}
	require.NoError(t, w.verify(string(build.Status.DigestedImagePushSpec), firstKey()))
}

func TestABuildWaitsForItsSignature(t *testing.T) {
	t.Parallel()
	wrong := firstKey().secret()
	wrong.Data[sign.SecretPassword] = []byte("battery staple")
	without := firstKey().secret()
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
			w := layered(t, "worker")
			if tt.secret != nil {
				w.add(tt.secret)
			}
			b := w.builder(w.signing)
			w.settle(b)
			image := w.onlyImage()
			assert.Nil(t, image.Status.Signature)
			assert.Contains(t, signedText(image), "False "+tt.reason)
			assert.Contains(t, signedText(image), tt.want)
			build := w.builds()[0]
			assert.Equal(t, image.Spec.PullSpec, build.Status.DigestedImagePushSpec)
			assert.Equal(t, mcfgv1.BuildStageBuilding, status.BuildStageOf(build.Status.Conditions))
			assert.Contains(t, text(build.Status.Conditions, status.Reconciling), "WaitingForSignature the image was pushed and is not trusted yet")
			assert.Empty(t, w.osConfig("worker").Status.CurrentImagePullSpec, "it is not trusted yet")
			assert.Contains(t, strings.Join(w.told(), "\n"), "Warning ImageNotSigned "+tt.reason)

			if tt.secret != nil {
				w.remove(tt.secret)
			}
			w.add(firstKey().secret())
			w.registry.requests()
			w.settle(b)
			assert.Equal(t, "True Succeeded", w.says("worker", status.Ready))
			assert.Equal(t, image.Spec.PullSpec, w.osConfig("worker").Status.CurrentImagePullSpec, "nothing was built again")
			for _, request := range w.registry.requests() {
				if strings.HasPrefix(request, "PUT ") && strings.Contains(request, "/manifests/") && !strings.HasSuffix(request, poolTagPath) {
					assert.Contains(t, request, ".sig", "nothing but the signature is pushed, and the pool's tag moved")
				}
			}
			require.NoError(t, w.verify(string(image.Spec.PullSpec), firstKey()))
		})
	}
}

func TestRegistriesThatTakeNoSignature(t *testing.T) {
	t.Parallel()
	for name, code := range map[string]int{"fails": http.StatusBadGateway, "refuses": http.StatusForbidden} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := layered(t, "worker")
			w.add(firstKey().secret())
			w.registry.answering(func(rw http.ResponseWriter, r *http.Request) bool {
				if r.Method != http.MethodPut || !strings.HasSuffix(r.URL.Path, ".sig") {
					return false
				}
				rw.WriteHeader(code)
				return true
			})
			b := w.builder(w.signing)
			w.settle(b)
			image := w.onlyImage()
			assert.Contains(t, signedText(image), "False SigningFailed")
			assert.Contains(t, text(w.builds()[0].Status.Conditions, status.Reconciling), "WaitingForSignature")
			w.registry.answering(nil)
			w.settle(b)
			assert.Equal(t, "True Signed", signedText(w.onlyImage()))
			assert.Equal(t, "True Succeeded", w.says("worker", status.Ready))
		})
	}
}

func TestATagThatMovesBeforeItIsSigned(t *testing.T) {
	t.Parallel()
	w := layered(t, "worker")
	b := w.builder(w.signing)
	w.settle(b)
	pushed := w.onlyImage().Spec.PullSpec
	evil := osImage(t, "evil", "amd64")
	config, err := evil.ConfigFile()
	require.NoError(t, err)
	config.Config.Labels = must(must(ggcr.Image(w.registry.parse(t, string(pushed)))).ConfigFile()).Config.Labels // it says that it is the same
	evil = must(mutateConfig(evil, config))
	for _, tag := range []string{w.builds()[0].Name, "worker"} {
		require.NoError(t, ggcr.Write(w.registry.parse(t, w.registry.host+"/host/os:"+tag), evil))
	}
	w.add(firstKey().secret())
	w.settle(w.builder(w.signing)) // also after a restart
	require.NoError(t, w.verify(string(pushed), firstKey()))
	digest, err := evil.Digest()
	require.NoError(t, err)
	require.ErrorContains(t, w.verify(w.registry.host+"/host/os@"+digest.String(), firstKey()), "it has no signature")
	assert.Equal(t, pushed, w.osConfig("worker").Status.CurrentImagePullSpec)
}

func TestImageUnderTheTagIsCheckedBeforeSigning(t *testing.T) {
	t.Parallel()
	w := layered(t, "worker")
	w.settle(w.builder())
	honest, build := w.onlyImage().Spec.PullSpec, w.builds()[0].Name
	evil := osImage(t, "evil", "amd64")
	config, err := evil.ConfigFile()
	require.NoError(t, err)
	config.Config.Labels = must(must(ggcr.Image(w.registry.parse(t, string(honest)))).ConfigFile()).Config.Labels
	evil = must(mutateConfig(evil, config))
	require.NoError(t, ggcr.Write(w.registry.parse(t, w.registry.host+"/host/os:"+build), evil))

	again := layered(t, "worker")
	again.registry, again.base = w.registry, w.base
	again.quietly(func() error {
		return errors.Join(again.Delete(t.Context(), again.osConfig("worker")), again.Delete(t.Context(), again.secret("push", "")), again.Delete(t.Context(), again.secret("pull", "")),
			again.Delete(t.Context(), &mcfgv1.MachineConfig{ObjectMeta: metav1.ObjectMeta{Name: "rendered-worker-1"}}))
	})
	again.add(again.secret("push", "hunter2"), again.secret("pull", "hunter2"), again.rendered("worker", "1", "/etc/motd", "one"), again.config("worker"), firstKey().secret())
	again.settle(again.builder(again.signing))
	assert.Equal(t, honest, again.onlyImage().Spec.PullSpec, "the image is made again, and is the same")
	require.NoError(t, again.verify(string(honest), firstKey()))
	digest, err := evil.Digest()
	require.NoError(t, err)
	require.ErrorContains(t, again.verify(w.registry.host+"/host/os@"+digest.String(), firstKey()), "it has no signature")
}

func TestImagesStaySigned(t *testing.T) {
	t.Parallel()
	w := layered(t, "worker")
	w.add(firstKey().secret())
	b := w.builder(w.signing)
	w.settle(b)
	image := w.onlyImage()
	pinned := string(image.Spec.PullSpec)

	w.registry.requests()
	written := len(w.writes)
	result, err := w.reconcileImage(b, image.Name)
	require.NoError(t, err)
	assert.Positive(t, result.RequeueAfter)
	assert.Len(t, w.writes, written, "nothing is written where nothing changed")
	for _, request := range w.registry.requests() {
		assert.False(t, strings.HasPrefix(request, "PUT "), request)
	}

	tag := w.registry.parse(t, image.Status.Signature.Reference)
	require.NoError(t, ggcr.Delete(tag.Context().Digest(w.registry.digestOf(t, tag.String()))))
	require.NoError(t, ggcr.Delete(tag))
	require.ErrorContains(t, w.verify(pinned, firstKey()), "it has no signature")
	_, err = w.reconcileImage(b, image.Name)
	require.NoError(t, err)
	require.NoError(t, w.verify(pinned, firstKey()), "a signature that someone deleted is made again")

	w.remove(firstKey().secret())
	result, err = w.reconcileImage(b, image.Name)
	require.NoError(t, err)
	assert.Positive(t, result.RequeueAfter)
	assert.Contains(t, signedText(w.onlyImage()), "True Signed it was trusted at the last successful check; it can't be checked now: no signing key in secret", "what is signed stays so without the key")

	w.add(secondKey().secret())
	_, err = w.reconcileImage(b, image.Name)
	require.NoError(t, err)
	require.NoError(t, w.verify(pinned, secondKey()))
	require.NoError(t, w.verify(pinned, firstKey()), "until nodes know the new key, they know the one before")
	assert.Equal(t, secondKey().ID(), w.onlyImage().Status.Signature.KeyID)
}

func TestImagesFromBeforeSigningAreSigned(t *testing.T) {
	t.Parallel()
	w := layered(t, "worker")
	w.settle(w.builder())
	w.add(firstKey().secret())
	image := w.onlyImage()
	_, err := w.reconcileImage(w.builder(w.signing), image.Name)
	require.NoError(t, err)
	assert.Equal(t, "True Signed", signedText(w.onlyImage()))
	require.NoError(t, w.verify(string(image.Spec.PullSpec), firstKey()))
}

// Whoever may push can give any tag and any label to an image. Where nothing is signed, that is all
// which says whose it is.
func TestImageFromBeforeSigningIsNotSigned(t *testing.T) {
	t.Parallel()
	w := layered(t, "worker")
	w.settle(w.builder())
	w.remove(w.onlyImage())
	for _, build := range w.builds() {
		w.remove(&build)
	}
	w.settle(w.builder())
	image := w.onlyImage()
	require.Equal(t, mcfgv1.ReasonReused, endedBy(w))
	assert.Equal(t, mcfgv1alpha1.ImageImported, image.Status.Origin)

	w.add(firstKey().secret())
	b := w.builder(w.signing)
	_, err := w.reconcileImage(b, image.Name)
	require.NoError(t, err)
	assert.Contains(t, signedText(w.onlyImage()), "False NotSigned the registry had this image before this cluster signed anything")

	w.editConfig("worker", func(c *mcfgv1.MachineOSConfig) {
		metav1.SetMetaDataAnnotation(&c.ObjectMeta, mcfgv1.AnnotationRebuild, "")
	})
	w.settle(b)
	assert.Equal(t, mcfgv1alpha1.ImageBuilt, w.onlyImage().Status.Origin)
	assert.Equal(t, "True Signed", signedText(w.onlyImage()))
}

func TestForeignImagesAreNotSigned(t *testing.T) {
	t.Parallel()
	w := layered(t, "worker")
	w.add(firstKey().secret())
	imported := &mcfgv1alpha1.MachineOSImage{ObjectMeta: metav1.ObjectMeta{Name: "imported"}}
	imported.Spec.PullSpec, imported.Spec.MachineConfigPool = mcfgv1.ImageDigestFormat(w.base), "worker"
	w.add(imported)
	b := w.builder(w.signing)
	_, err := w.reconcileImage(b, "imported")
	require.NoError(t, err)
	assert.Contains(t, signedText(read(w, &mcfgv1alpha1.MachineOSImage{}, "imported")), "False NotTrusted no trusted signer is configured for the repository")
	w.remove(imported)

	w.editConfig("worker", func(c *mcfgv1.MachineOSConfig) {
		metav1.SetMetaDataAnnotation(&c.ObjectMeta, mcfgv1.AnnotationPreBuiltImage, w.base)
	})
	w.settle(b)
	assert.Equal(t, "True Succeeded", w.says("worker", status.Ready))
	image := w.onlyImage()
	_, err = w.reconcileImage(b, image.Name)
	require.NoError(t, err)
	assert.Contains(t, signedText(w.onlyImage()), "False BuiltElsewhere")
	for tag := range w.registry.tags(t, "stream/os") {
		assert.NotContains(t, tag, ".sig")
	}
}

func TestSignaturesGoWithTheirImage(t *testing.T) {
	t.Parallel()
	w := layered(t, "worker")
	w.add(firstKey().secret())
	b := w.builder(w.signing)
	w.settle(b)
	signature := w.onlyImage().Status.Signature.Reference
	require.True(t, w.registry.has(t, signature))
	digest := w.registry.digestOf(t, signature)
	w.remove(w.osConfig("worker"))
	w.settle(b)
	assert.False(t, w.registry.has(t, w.registry.host+"/host/os@"+digest))
}

// refuser is a Signer that refuses.
type refuser struct{ err error }

func (f refuser) Sign(context.Context, sign.Registry, string) (sign.Signature, error) {
	return sign.Signature{}, f.err
}

func TestImageLostBeforeSigningIsRebuilt(t *testing.T) {
	t.Parallel()
	w := layered(t, "worker")
	w.settle(w.builder(w.signing))
	image := w.onlyImage().Spec.PullSpec
	require.NoError(t, ggcr.Delete(w.registry.parse(t, string(image))))
	w.add(firstKey().secret())
	w.settle(w.builder(w.signing))
	assert.Equal(t, "True Succeeded", w.says("worker", status.Ready))
	require.NoError(t, w.verify(string(image), firstKey()))
}

func TestTerminalErrorsOfSigningEndNoBuild(t *testing.T) {
	t.Parallel()
	w := layered(t, "worker")
	w.settle(w.builder(func(o *settings) { o.Signer = refuser{fault.NewTerminal(mcfgv1.ReasonPushDenied, errors.New("no"))} }))
	assert.Equal(t, mcfgv1.BuildStageBuilding, status.BuildStageOf(w.builds()[0].Status.Conditions))
	assert.Contains(t, signedText(w.onlyImage()), "False SigningFailed no")
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
	w := layered(t, "worker")
	var deadlines []bool
	b := w.builder(func(o *settings) { o.Signer = timed{&deadlines} })
	for range 4 { // it is pushed, and what was pushed is gone on with
		_ = w.round(b)
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
	w := layered(t, "worker")
	w.add(firstKey().secret())
	b := w.builder(w.attesting(nil))
	w.registry.answering(failingPuts(".att", http.StatusBadGateway))
	w.settle(b)
	build, image := w.builds()[0], w.onlyImage()
	require.Equal(t, build.Name, image.Labels[mcfgv1.LabelMachineOSBuild])
	build.Status.DigestedImagePushSpec = "" // as it is while the first reconcile has not ended
	w.quietly(func() error { return w.Status().Update(t.Context(), &build) })
	result, err := w.reconcileImage(b, image.Name)
	require.NoError(t, err)
	assert.Equal(t, sign.DeniedAgain, result.RequeueAfter)
	assert.Equal(t, "none", signedText(w.onlyImage()))
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
	w := layered(t, "worker")
	w.add(firstKey().secret())
	b := w.builder(w.signing)
	w.settle(b)
	before := w.onlyImage()
	require.Equal(t, "True Signed", signedText(before))
	require.NotNil(t, before.Status.Signature.SignedTime)
	_, err := w.reconcileImage(w.builderOn(lagging{w}, w.signing), before.Name)
	require.NoError(t, err)
	assert.Equal(t, before.Status, w.onlyImage().Status)
}

func TestALostRaceCostsNoSignature(t *testing.T) {
	t.Parallel()
	w := layered(t, "worker")
	races := 0
	b := w.builder(func(o *settings) {
		o.Signer = signingMovesOn{func() {
			races++
			edit(w, &mcfgv1alpha1.MachineOSImage{}, w.onlyImage().Name, func(i *mcfgv1alpha1.MachineOSImage) {
				metav1.SetMetaDataAnnotation(&i.ObjectMeta, "race", strconv.Itoa(races))
			})
		}}
	})
	w.settle(b)
	assert.Equal(t, "True Signed", signedText(w.onlyImage()))
	assert.Equal(t, "1", w.onlyImage().Annotations["race"], "it is signed once, and written down beside what others wrote")
	assert.Equal(t, "True Succeeded", w.says("worker", status.Ready))
}
