//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	mcfgv1alpha1 "github.com/layerwright/layerwright/api/machineconfiguration/v1alpha1"
	objects "github.com/layerwright/layerwright/internal/names"
	imageregistry "github.com/layerwright/layerwright/internal/registry"
	"github.com/layerwright/layerwright/internal/registry/dockerconfig"
	"github.com/layerwright/layerwright/internal/status"
	"github.com/layerwright/layerwright/test/cluster/stack"
	"github.com/layerwright/layerwright/trust"
	"github.com/layerwright/layerwright/trust/sign"
	"github.com/layerwright/layerwright/trust/sign/signtest"
)

// trustPolicy has the controller go by a trust policy.
const trustPolicy = "--trust-policy=" + objects.TrustPolicy

// testImagesBuiltElsewhere follows an image of an administrator from its object, which names it, to
// where a rollout may take it, and back.
func testImagesBuiltElsewhere(t *testing.T) {
	b := newBuilds(t)
	i := b.imported(t)
	i.writePolicy(i.entry(i.right.Public))
	b.withArguments(t, trustPolicy)

	i.eventually("False NotSigned", "it has no signature; the trust policy's "+i.repository+" accepts only the key "+i.right.ID()[:16])
	i.sign(i.wrong)
	i.touch()
	i.eventually("False NotSigned", "none of its signatures is by a trusted key")
	i.sign(i.right)
	i.touch()
	i.eventually("True Ready", "it is signed with the key "+i.right.ID())

	i.writePolicy("own: {}\nrepositories:\n  - repo: x\n")
	i.eventually("True Ready", `it can't be checked now: policy.yaml of the ConfigMap "`+objects.TrustPolicy+`"`)
	i.eventually("True Ready", `line 3: there is no field "repo"`)

	i.writePolicy(i.entry(i.right.Public) + "    builders: [https://ci.example.com/os]\n")
	i.eventually("False NotTrusted", "has no trusted statement https://slsa.dev/provenance/v1: it has none")
	i.attest(i.right, "https://ci.example.com/os")
	i.touch()
	i.eventually("True Ready", "it is signed with the key")

	i.unsign()
	i.touch()
	i.eventually("False NotSigned", "it has no signature")
}

// imported is an image that was built elsewhere, with its object.
type imported struct {
	*builds
	t                          *testing.T
	object, repository, pinned string
	right, wrong               signtest.Pair
	images                     *imageregistry.Client
	options                    []remote.Option
}

// imported pushes an image, and makes the object that deploy/examples/external-image.yaml shows.
func (b *builds) imported(t *testing.T) *imported {
	t.Helper()
	i := &imported{
		builds: b, t: t, object: "imported", repository: b.status.Registry + "/imported/os", right: signtest.NewPair(), wrong: signtest.NewPair(),
		options: b.registry.Options(t.Context(), "push"),
	}
	i.images = imageregistry.New(imageregistry.Options{Keychain: i.login("push"), Transport: trusting(t, b.status.RegistryCA)})
	image, err := random.Image(1<<10, 2)
	require.NoError(t, err)
	digest, err := image.Digest()
	require.NoError(t, err)
	i.pinned = i.repository + "@" + digest.String()
	require.NoError(t, remote.Write(i.ref(i.pinned), image, i.options...))
	b.secret(t, objects.GlobalPullSecret, i.dockerConfig("pull"))

	example, err := os.ReadFile(filepath.Join(repository, "deploy", "examples", "external-image.yaml"))
	require.NoError(t, err)
	first, _, _ := bytes.Cut(example, []byte("\n---\n"))
	object := &mcfgv1alpha1.MachineOSImage{}
	require.NoError(t, yaml.UnmarshalStrict(first, object))
	object.Name, object.Spec.PullSpec = i.object, mcfgv1.ImageDigestFormat(i.pinned)
	i.create(object)
	return i
}

// push pushes another image into the repository, and gives it by digest.
func (i *imported) push(t *testing.T, image v1.Image) string {
	t.Helper()
	digest, err := image.Digest()
	require.NoError(t, err)
	pinned := i.repository + "@" + digest.String()
	require.NoError(t, remote.Write(i.ref(pinned), image, i.options...))
	return pinned
}

// create makes an object that goes when the test ends.
func (i *imported) create(object client.Object) {
	i.t.Helper()
	require.NoError(i.t, i.Create(i.t.Context(), object))
	i.t.Cleanup(func() {
		require.NoError(i.t, client.IgnoreNotFound(i.Delete(context.WithoutCancel(i.t.Context()), object)))
	})
}

func (i *imported) dockerConfig(account string) []byte {
	i.t.Helper()
	text, err := os.ReadFile(named(i.t, i.cluster).DockerConfig(account) + "/config.json")
	require.NoError(i.t, err)
	return text
}

func (i *imported) login(account string) authn.Keychain {
	i.t.Helper()
	keychain, err := dockerconfig.Parse(&corev1.Secret{
		Type: corev1.SecretTypeDockerConfigJson, Data: map[string][]byte{corev1.DockerConfigJsonKey: i.dockerConfig(account)},
	})
	require.NoError(i.t, err)
	return keychain
}

func (i *imported) ref(text string) name.Reference {
	i.t.Helper()
	ref, err := name.ParseReference(text)
	require.NoError(i.t, err)
	return ref
}

// entry is the policy that trusts a key in the image's repository.
func (i *imported) entry(public []byte) string {
	return fmt.Sprintf("repositories:\n  - repository: %s\n    publicKeys: %q\n", i.repository, public)
}

func (i *imported) writePolicy(text string) {
	i.t.Helper()
	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: stack.Namespace, Name: objects.TrustPolicy}}
	if client.IgnoreNotFound(i.Get(i.t.Context(), client.ObjectKeyFromObject(object), object)) == nil && object.UID == "" {
		object.Data = map[string]string{trust.PolicyKey: text}
		i.create(object)
		return
	}
	i.edit(func(object *corev1.ConfigMap) { object.Data = map[string]string{trust.PolicyKey: text} })
}

// touch has all images looked at, sooner than within a minute: the policy might have changed.
func (i *imported) touch() {
	i.t.Helper()
	i.edit(func(object *corev1.ConfigMap) {
		metav1.SetMetaDataAnnotation(&object.ObjectMeta, "layerwright.test/touched", object.ResourceVersion)
	})
}

func (i *imported) edit(edit func(*corev1.ConfigMap)) {
	i.t.Helper()
	require.NoError(i.t, retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		object := &corev1.ConfigMap{}
		if err := i.Get(i.t.Context(), client.ObjectKey{Namespace: stack.Namespace, Name: objects.TrustPolicy}, object); err != nil {
			return err
		}
		edit(object)
		return i.Update(i.t.Context(), object)
	}))
}

func (i *imported) sign(by signtest.Pair) {
	i.t.Helper()
	_, err := by.Signer().Sign(i.t.Context(), i.images, i.pinned)
	require.NoError(i.t, err)
}

func (i *imported) attest(by signtest.Pair, builder string) {
	i.t.Helper()
	_, err := by.Signer().Attest(i.t.Context(), i.images, i.pinned, sign.Statement{
		PredicateType: sign.PredicateProvenance, Predicate: fmt.Appendf(nil, `{"runDetails":{"builder":{"id":%q}}}`, builder),
	})
	require.NoError(i.t, err)
}

func (i *imported) unsign() {
	i.t.Helper()
	tag, err := i.images.AttachmentTag(i.pinned, sign.Signatures)
	require.NoError(i.t, err)
	found, err := remote.Head(i.ref(tag), i.options...)
	require.NoError(i.t, err)
	require.NoError(i.t, remote.Delete(i.ref(i.repository+"@"+found.Digest.String()), i.options...))
}

// eventually waits for what Ready says.
func (i *imported) eventually(state, message string) {
	i.t.Helper()
	require.EventuallyWithT(i.t, func(t *assert.CollectT) {
		image := &mcfgv1alpha1.MachineOSImage{}
		require.NoError(t, i.Get(i.t.Context(), client.ObjectKey{Name: i.object}, image))
		text := conditionText(image.Status.Conditions, status.Ready)
		assert.True(t, strings.HasPrefix(text, state), text)
		assert.Contains(t, text, message)
	}, buildPatience, buildTick)
}

// withArguments has a new controller run with arguments beside the usual ones, until the test ends.
func (b *builds) withArguments(t *testing.T, arguments ...string) {
	t.Helper()
	b.setArguments(t, func(args []string) []string { return append(args, arguments...) })
	t.Cleanup(func() { b.setArguments(t, func(args []string) []string { return args[:len(args)-len(arguments)] }) })
}
