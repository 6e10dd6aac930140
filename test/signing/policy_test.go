package signing_test

import (
	"bytes"
	"io"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/sirupsen/logrus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.podman.io/image/v5/copy"
	"go.podman.io/image/v5/signature"
	"go.podman.io/image/v5/transports/alltransports"
	imagetypes "go.podman.io/image/v5/types"

	"github.com/layerwright/layerwright/internal/registry"
	distribution "github.com/layerwright/layerwright/test/cluster/registry"
	"github.com/layerwright/layerwright/trust/sign"
	"github.com/layerwright/layerwright/trust/sign/signtest"
	"github.com/layerwright/layerwright/trust/signaturepolicy"
)

func TestMain(m *testing.M) {
	logrus.SetOutput(io.Discard) // the registry logs every 404 as an error
	os.Exit(m.Run())
}

var account = distribution.Account{Name: "push", Password: "hunter2-push", Push: true}

var ours, others, third = sync.OnceValue(signtest.NewPair), sync.OnceValue(signtest.NewPair), sync.OnceValue(signtest.NewPair)

// cluster is a registry, and a node that pulls from it.
type cluster struct {
	t      *testing.T
	host   string
	server *httptest.Server
	client *registry.Client
	dir    string // where the registry has its content
}

func newCluster(t *testing.T) *cluster {
	t.Helper()
	dir := t.TempDir()
	server := httptest.NewServer(distribution.New(t.Context(), distribution.Options{Dir: dir, Accounts: []distribution.Account{account}}))
	t.Cleanup(server.Close)
	client := registry.New(registry.Options{Keychain: account})
	return &cluster{t: t, host: strings.TrimPrefix(server.URL, "http://"), server: server, client: client, dir: dir}
}

func (c *cluster) ref(text string) name.Reference {
	c.t.Helper()
	ref, err := name.ParseReference(text)
	require.NoError(c.t, err)
	return ref
}

func (c *cluster) options() []remote.Option {
	return []remote.Option{remote.WithAuth(account.Login())}
}

// push pushes an image and gives it by digest.
func (c *cluster) push(repository, tag string) string {
	c.t.Helper()
	image := newImage(c.t)
	ref := c.ref(c.host + "/" + repository + ":" + tag)
	require.NoError(c.t, remote.Write(ref, image, c.options()...))
	return pinned(c.t, ref, image.Digest)
}

func newImage(t *testing.T) v1.Image {
	t.Helper()
	image, err := random.Image(128, 2)
	require.NoError(t, err)
	config, err := image.ConfigFile()
	require.NoError(t, err)
	config = config.DeepCopy()
	config.OS, config.Architecture = "linux", "amd64"
	image, err = mutate.ConfigFile(image, config)
	require.NoError(t, err)
	return image
}

// pushIndex pushes an index and gives it by digest.
func (c *cluster) pushIndex(repository string) string {
	c.t.Helper()
	var images []mutate.IndexAddendum
	for _, arch := range []string{"amd64", "arm64"} {
		images = append(images, mutate.IndexAddendum{Add: newImage(c.t), Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: arch}}})
	}
	index := mutate.AppendManifests(mutate.IndexMediaType(empty.Index, types.OCIImageIndex), images...)
	ref := c.ref(c.host + "/" + repository + ":index")
	require.NoError(c.t, remote.WriteIndex(ref, index, c.options()...))
	return pinned(c.t, ref, index.Digest)
}

func pinned(t *testing.T, ref name.Reference, digest func() (v1.Hash, error)) string {
	t.Helper()
	hash, err := digest()
	require.NoError(t, err)
	return ref.Context().Digest(hash.String()).String()
}

// children are the images that an index lists, by digest.
func (c *cluster) children(index string) []string {
	c.t.Helper()
	all, err := c.client.Manifests(c.t.Context(), index)
	require.NoError(c.t, err)
	return all[:len(all)-1]
}

func (c *cluster) sign(with signtest.Pair, image string) {
	c.t.Helper()
	_, err := with.Signer().Sign(c.t.Context(), c.client, image)
	require.NoError(c.t, err)
}

// pull pulls an image as a node does whose policy lets it take images of os/worker that are signed
// with the keys.
func (c *cluster) pull(image string, trusted ...signtest.Pair) error {
	c.t.Helper()
	return c.pullAs(c.node(trusted...), image)
}

// pullUnder is pull with what else the policy says of a repository.
func (c *cluster) pullUnder(image string, r signaturepolicy.Repository) error {
	c.t.Helper()
	dir := c.t.TempDir()
	c.writeFor(dir, r)
	return c.pullAs(system(dir), image)
}

// write writes the files that make a node trust the keys below a folder.
func (c *cluster) write(dir string, trusted ...signtest.Pair) {
	c.t.Helper()
	r := signaturepolicy.Repository{Name: c.host + "/os/worker"}
	for _, p := range trusted {
		r.Keys = append(r.Keys, p.Public)
	}
	c.writeFor(dir, r)
}

// writeFor writes the files for repositories.
func (c *cluster) writeFor(dir string, repositories ...signaturepolicy.Repository) {
	c.t.Helper()
	files, err := signaturepolicy.MakeFiles(nil, repositories)
	require.NoError(c.t, err)
	for path, content := range files {
		target := filepath.Join(dir, path)
		require.NoError(c.t, os.MkdirAll(filepath.Dir(target), 0o700))
		require.NoError(c.t, os.WriteFile(target, content, 0o600))
	}
}

// node is one that trusts the keys.
func (c *cluster) node(trusted ...signtest.Pair) *imagetypes.SystemContext {
	c.t.Helper()
	dir := c.t.TempDir()
	c.write(dir, trusted...)
	return system(dir)
}

// system is a node with the files below a folder.
func system(dir string) *imagetypes.SystemContext {
	return &imagetypes.SystemContext{
		SignaturePolicyPath: filepath.Join(dir, signaturepolicy.PolicyPath), RegistriesDirPath: filepath.Join(dir, "etc/containers/registries.d"),
		DockerInsecureSkipTLSVerify: imagetypes.OptionalBoolTrue, SystemRegistriesConfPath: os.DevNull, ArchitectureChoice: "amd64", OSChoice: "linux",
		DockerAuthConfig: &imagetypes.DockerAuthConfig{Username: account.Name, Password: account.Password},
	}
}

func (c *cluster) pullAs(system *imagetypes.SystemContext, image string) error {
	c.t.Helper()
	policy, err := signature.DefaultPolicy(system)
	require.NoError(c.t, err)
	allowed, err := signature.NewPolicyContext(policy)
	require.NoError(c.t, err)
	defer func() { require.NoError(c.t, allowed.Destroy()) }()
	from, err := alltransports.ParseImageName("docker://" + image)
	require.NoError(c.t, err)
	to, err := alltransports.ParseImageName("dir:" + c.t.TempDir())
	require.NoError(c.t, err)
	_, err = copy.Image(c.t.Context(), allowed, to, from, &copy.Options{SourceCtx: system, DestinationCtx: system, RemoveSignatures: true})
	return err
}

// forge gives an image the signatures of another one, with other payloads.
func (c *cluster) forge(from, to string, change func([]byte) []byte) {
	c.t.Helper()
	there, err := c.client.Attachments(c.t.Context(), from, sign.Signatures)
	require.NoError(c.t, err)
	require.NotEmpty(c.t, there)
	forged := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	for _, a := range there {
		forged, err = mutate.Append(forged, mutate.Addendum{
			Layer: static.NewLayer(change(a.Content), sign.Signatures.MediaType), MediaType: sign.Signatures.MediaType, Annotations: a.Annotations,
		})
		require.NoError(c.t, err)
	}
	require.NoError(c.t, remote.Write(c.ref(signatureTag(to)), forged, c.options()...))
}

// refer attaches the signatures of an image in the way of OCI 1.1, with the tag that lists them
// where a registry does not.
func (c *cluster) refer(image string) {
	c.t.Helper()
	about, err := remote.Head(c.ref(image), c.options()...)
	require.NoError(c.t, err)
	signatures, err := remote.Image(c.ref(signatureTag(image)), c.options()...)
	require.NoError(c.t, err)
	referrer, isImage := mutate.Subject(mutate.ConfigMediaType(signatures, types.MediaType(sign.Signatures.ArtifactType)), *about).(v1.Image)
	require.True(c.t, isImage)
	digest, err := referrer.Digest()
	require.NoError(c.t, err)
	require.NoError(c.t, remote.Write(c.ref(image).Context().Digest(digest.String()), referrer, c.options()...))
	_, hash, _ := strings.Cut(image, "@")
	listed, err := remote.Referrers(c.ref(image).Context().Digest(hash), c.options()...)
	require.NoError(c.t, err)
	list, err := listed.IndexManifest()
	require.NoError(c.t, err)
	require.Len(c.t, list.Manifests, 1)
}

func signatureTag(image string) string {
	repository, digest, _ := strings.Cut(image, "@")
	return repository + ":" + strings.Replace(digest, ":", "-", 1) + ".sig"
}

func (c *cluster) copy(from, to string) {
	c.t.Helper()
	found, err := remote.Image(c.ref(from), c.options()...)
	require.NoError(c.t, err)
	require.NoError(c.t, remote.Write(c.ref(to), found, c.options()...))
}

func TestNodesAcceptSignedImages(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	image := c.push("os/worker", "one")
	c.sign(ours(), image)
	require.NoError(t, c.pull(image, ours()))
	require.NoError(t, c.pull(c.host+"/os/worker:one", ours()), "by tag")
	index := c.pushIndex("os/worker")
	require.ErrorContains(t, c.pull(index, ours()), "A signature was required, but no signature exists")
	c.sign(ours(), index)
	require.NoError(t, c.pull(index, ours()), "an index, and the image of the node's architecture")
	require.NoError(t, c.pull(c.push("elsewhere/app", "one"), ours()), "the policy is about no other image")
}

func TestKeysAreRotatedWithAnOverlap(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	before, after := c.push("os/worker", "before"), c.push("os/worker", "after")
	c.sign(others(), before)
	c.sign(ours(), after)
	require.NoError(t, c.pull(before, ours(), others()))
	require.NoError(t, c.pull(after, ours(), others()))
	require.Error(t, c.pull(before, ours()))
	c.sign(ours(), before)
	require.NoError(t, c.pull(before, ours()), "signed with both")
	require.NoError(t, c.pull(before, others()))
}

// deleteSignatures removes the tag with the signatures of an image.
func (c *cluster) deleteSignatures(image string) {
	c.t.Helper()
	ref := c.ref(signatureTag(image))
	found, err := remote.Head(ref, c.options()...)
	require.NoError(c.t, err)
	require.NoError(c.t, remote.Delete(ref.Context().Digest(found.Digest.String()), c.options()...))
}

// childOf is the image of an index that the nodes here pull.
func (c *cluster) childOf(index string) string {
	c.t.Helper()
	all, err := c.client.Manifests(c.t.Context(), index)
	require.NoError(c.t, err)
	require.Len(c.t, all, 3, "amd64, arm64 and the index")
	return all[0]
}

func (c *cluster) verify(image string, trusted ...signtest.Pair) error {
	c.t.Helper()
	var keys []*sign.PublicKey
	for _, p := range trusted {
		keys = append(keys, p.Key.Public())
	}
	resolved, err := c.client.Resolve(c.t.Context(), image)
	require.NoError(c.t, err)
	_, err = sign.Policy{{Repository: c.host + "/os/worker", Keys: keys}}.Verify(c.t.Context(), c.client, resolved.Image)
	return err
}

// TestOfAnIndexNodesVerifyTheirImage is what is known of the library that podman and Buildah copy
// images with: of an index it verifies the image that it chooses, and not the index. Whoever may
// push can therefore make an index of images that are signed. The controller is stricter.
func TestOfAnIndexNodesVerifyTheirImage(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	index := c.pushIndex("os/worker")
	child := c.childOf(index)
	c.sign(ours(), index)
	c.deleteSignatures(index)
	require.NoError(t, c.pull(index, ours()))
	require.ErrorContains(t, c.verify(index, ours()), "it has no signature")
	require.NoError(t, c.pull(child, ours()))
	require.NoError(t, c.verify(child, ours()))
}

func TestKeysAreRotatedInThreeSteps(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	before := c.push("os/worker", "before")
	c.sign(others(), before)
	require.NoError(t, c.pull(before, others(), ours()), "1: nodes know both keys")
	c.sign(ours(), before)
	after := c.push("os/worker", "after")
	c.sign(ours(), after)
	for _, image := range []string{before, after} {
		require.NoError(t, c.pull(image, others(), ours()), "2: images are signed with the new one")
		require.NoError(t, c.pull(image, ours()), "3: nodes know the new one alone")
	}
	require.ErrorContains(t, c.pull(after, others()), "Source image rejected", "a node that was left out before step 1")
	evil := c.push("os/worker", "evil")
	c.sign(third(), evil)
	require.ErrorContains(t, c.pull(evil, others(), ours()), "Source image rejected", "two keys are no more than these two")
}

// TestBuildsAcceptImagesOfTheController is how a build pulls what the controller has just made, in
// a repository where nodes want signatures.
func TestBuildsAcceptImagesOfTheController(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	image, index, evil := c.push("os/worker", "configs"), c.pushIndex("os/worker"), c.push("os/worker", "evil")
	system := c.node(ours())
	text, err := os.ReadFile(system.SignaturePolicyPath)
	require.NoError(t, err)
	text, err = signaturepolicy.Accept(text, image, index)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(system.SignaturePolicyPath, text, 0o600))
	require.NoError(t, c.pullAs(system, image))
	require.NoError(t, c.pullAs(system, index))
	require.ErrorContains(t, c.pullAs(system, evil), "no signature exists")
	require.ErrorContains(t, c.pullAs(system, c.host+"/os/worker:configs"), "no signature exists", "a tag may stand for another image by now")
}

// TestTwoFilesAboutOneRepository is why the file has the name that OpenShift's has: two of them
// would stop every pull.
func TestTwoFilesAboutOneRepository(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	image := c.push("os/worker", "one")
	c.sign(ours(), image)
	system := c.node(ours())
	require.NoError(t, c.pullAs(system, image))
	text, err := os.ReadFile(filepath.Join(system.RegistriesDirPath, filepath.Base(signaturepolicy.RegistryPath)))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(system.RegistriesDirPath, "other.yaml"), text, 0o600))
	require.ErrorContains(t, c.pullAs(system, image), "defined both in")
	require.ErrorContains(t, c.pullAs(system, c.push("elsewhere/app", "one")), "defined both in")
}

// signedIn is an image that was signed in one repository, and copied with its signature into
// another one.
func signedIn(from, to string) func(*cluster, string) string {
	return func(c *cluster, _ string) string {
		signed := c.push(from, "one")
		c.sign(ours(), signed)
		_, digest, _ := strings.Cut(signed, "@")
		there := c.host + "/" + to + "@" + digest
		c.copy(signed, there)
		c.copy(signatureTag(signed), signatureTag(there))
		return there
	}
}

func TestNodesRefuse(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		attack func(c *cluster, good string) string
		want   string
	}{
		"an image that no one signed": {
			func(c *cluster, _ string) string { return c.push("os/worker", "evil") }, "no signature exists",
		},
		"a signature by another key": {
			func(c *cluster, _ string) string {
				evil := c.push("os/worker", "evil")
				c.sign(others(), evil)
				return evil
			},
			"cryptographic signature verification failed",
		},
		"the signature of another image": {
			func(c *cluster, good string) string {
				evil := c.push("os/worker", "evil")
				c.copy(signatureTag(good), signatureTag(evil))
				return evil
			},
			"does not match",
		},
		"a tag that was moved to another image": {
			func(c *cluster, _ string) string {
				c.push("os/worker", "one")
				return c.host + "/os/worker:one"
			},
			"no signature exists",
		},
		"the signature was deleted": {
			func(c *cluster, good string) string {
				c.deleteSignatures(good)
				return good
			},
			"no signature exists",
		},
		"a tag that was moved between push and signing": {
			func(c *cluster, _ string) string {
				built := c.push("os/worker", "two")
				c.push("os/worker", "two")
				c.sign(ours(), built) // the digest that was pushed, whatever the tag stands for
				require.NoError(c.t, c.pull(built, ours()))
				return c.host + "/os/worker:two"
			},
			"no signature exists",
		},
		"another image under the tag with the earlier signatures": {
			func(c *cluster, good string) string {
				evil := c.push("os/worker", "one")
				c.copy(signatureTag(good), signatureTag(evil))
				return c.host + "/os/worker:one"
			},
			"does not match",
		},
		"a payload that was changed": {
			func(c *cluster, good string) string {
				evil := c.push("os/worker", "evil")
				_, was, _ := strings.Cut(good, "@")
				_, is, _ := strings.Cut(evil, "@")
				c.forge(good, evil, func(payload []byte) []byte { return bytes.ReplaceAll(payload, []byte(was), []byte(is)) })
				return evil
			},
			"cryptographic signature verification failed",
		},
		"a payload that has been lost": {
			func(c *cluster, good string) string {
				c.forge(good, good, func([]byte) []byte { return nil })
				return good
			},
			"cryptographic signature verification failed",
		},
		"a signature that is no tag but a referrer alone": {
			func(c *cluster, good string) string {
				c.refer(good)
				c.deleteSignatures(good)
				return good
			},
			"no signature exists",
		},
		"an index with an image that no one signed": {
			func(c *cluster, _ string) string {
				index := c.pushIndex("os/worker")
				c.sign(ours(), index)
				c.deleteSignatures(c.childOf(index))
				return index
			},
			"no signature exists",
		},
		"an index with an image of another key": {
			func(c *cluster, _ string) string {
				index := c.pushIndex("os/worker")
				c.sign(ours(), index)
				child := c.childOf(index)
				c.deleteSignatures(child)
				c.sign(others(), child)
				return index
			},
			"cryptographic signature verification failed",
		},
		"the signature of its index": {
			func(c *cluster, _ string) string {
				index := c.pushIndex("os/worker")
				c.sign(ours(), index)
				child := c.childOf(index)
				c.copy(signatureTag(index), signatureTag(child))
				return child
			},
			"does not match",
		},
		"a signed image of a repository above": {signedIn("os", "os/worker"), "is not accepted"},
		"an image of a sub-repository with the repository's signature": {
			func(c *cluster, good string) string {
				_, digest, _ := strings.Cut(good, "@")
				there := c.host + "/os/worker/below@" + digest
				c.copy(good, there)
				c.copy(signatureTag(good), signatureTag(there))
				return there
			},
			"is not accepted",
		},
		"a signed image of another repository below":             {signedIn("os/worker-evil", "os/worker/evil"), "is not accepted"},
		"a signed image of a repository whose name begins alike": {signedIn("os/worker-evil", "os/worker"), "is not accepted"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t)
			good := c.push("os/worker", "one")
			c.sign(ours(), good)
			require.NoError(t, c.pull(good, ours()))
			image := tt.attack(c, good)
			err := c.pull(image, ours())
			require.ErrorContains(t, err, "Source image rejected")
			require.ErrorContains(t, err, tt.want)

			assert.Error(t, c.verify(image, ours()), "the controller says the same")
		})
	}
}
