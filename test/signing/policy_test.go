package signing_test

import (
	"context"
	"crypto/rand"
	"io"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/sirupsen/logrus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.podman.io/image/v5/copy"
	"go.podman.io/image/v5/signature"
	"go.podman.io/image/v5/transports/alltransports"
	imagetypes "go.podman.io/image/v5/types"

	"github.com/layerwright/layerwright/internal/registry"
	"github.com/layerwright/layerwright/internal/sign"
	"github.com/layerwright/layerwright/machineconfigs/signaturepolicy"
	distribution "github.com/layerwright/layerwright/test/cluster/registry"
)

func TestMain(m *testing.M) {
	logrus.SetOutput(io.Discard) // the registry logs every 404 as an error
	os.Exit(m.Run())
}

var account = distribution.Account{Name: "push", Password: "hunter2-push", Push: true}

type logIn struct{}

// Resolve logs in everywhere.
func (logIn) Resolve(authn.Resource) (authn.Authenticator, error) {
	return &authn.Basic{Username: account.Name, Password: account.Password}, nil
}

type pair struct {
	public []byte
	key    *sign.Key
}

var ours, others = sync.OnceValue(newPair), sync.OnceValue(newPair)

func newPair() pair {
	private, public, err := sign.GenerateKey(rand.Reader, []byte("correct horse"))
	if err != nil {
		panic(err)
	}
	key, err := sign.LoadKey(private, []byte("correct horse"))
	if err != nil {
		panic(err)
	}
	return pair{public, key}
}

// cluster is a registry, and a node that pulls from it.
type cluster struct {
	t      *testing.T
	host   string
	client *registry.Client
}

func newCluster(t *testing.T) *cluster {
	t.Helper()
	server := httptest.NewServer(distribution.New(t.Context(), distribution.Options{Dir: t.TempDir(), Accounts: []distribution.Account{account}}))
	t.Cleanup(server.Close)
	return &cluster{t: t, host: strings.TrimPrefix(server.URL, "http://"), client: registry.New(registry.Options{Keychain: logIn{}})}
}

func (c *cluster) ref(text string) name.Reference {
	c.t.Helper()
	ref, err := name.ParseReference(text)
	require.NoError(c.t, err)
	return ref
}

func (c *cluster) options() []remote.Option {
	return []remote.Option{remote.WithAuthFromKeychain(logIn{})}
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

type fixed struct{ key *sign.Key }

// Key is the key.
func (f fixed) Key(context.Context) (*sign.Key, error) { return f.key, nil }

// Trusted is the key.
func (f fixed) Trusted(context.Context) (sign.Trusted, error) {
	return sign.Trusted{Keys: []*sign.PublicKey{f.key.Public()}}, nil
}

func (c *cluster) sign(with pair, image string) {
	c.t.Helper()
	_, err := sign.NewSigner(fixed{with.key}).Sign(c.t.Context(), c.client, image)
	require.NoError(c.t, err)
}

// pull pulls an image as a node does whose policy lets it take images of os/worker that are signed with the keys.
func (c *cluster) pull(image string, trusted ...pair) error {
	c.t.Helper()
	r := signaturepolicy.Repository{Name: c.host + "/os/worker"}
	for _, p := range trusted {
		r.Keys = append(r.Keys, p.public)
	}
	return c.pullUnder(image, r)
}

// pullUnder is pull with what else the policy says of a repository.
func (c *cluster) pullUnder(image string, r signaturepolicy.Repository) error {
	c.t.Helper()
	dir := c.t.TempDir()
	files, err := signaturepolicy.MakeFiles(nil, []signaturepolicy.Repository{r})
	require.NoError(c.t, err)
	for path, content := range files {
		target := filepath.Join(dir, path)
		require.NoError(c.t, os.MkdirAll(filepath.Dir(target), 0o700))
		require.NoError(c.t, os.WriteFile(target, content, 0o600))
	}
	system := &imagetypes.SystemContext{
		SignaturePolicyPath: filepath.Join(dir, signaturepolicy.PolicyPath), RegistriesDirPath: filepath.Join(dir, "etc/containers/registries.d"),
		DockerInsecureSkipTLSVerify: imagetypes.OptionalBoolTrue, SystemRegistriesConfPath: os.DevNull, ArchitectureChoice: "amd64", OSChoice: "linux",
		DockerAuthConfig: &imagetypes.DockerAuthConfig{Username: account.Name, Password: account.Password},
	}
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

func TestNodesTakeWhatIsSigned(t *testing.T) {
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

func TestKeysAreExchangedWithAnOverlap(t *testing.T) {
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

func TestNodesRefuse(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		attack func(c *cluster, good string) string
		want   string
	}{
		"an image that nobody signed": {
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
				ref := c.ref(signatureTag(good))
				found, err := remote.Head(ref, c.options()...)
				require.NoError(c.t, err)
				require.NoError(c.t, remote.Delete(ref.Context().Digest(found.Digest.String()), c.options()...))
				return good
			},
			"no signature exists",
		},
		"a signed image of another repository below": {
			func(c *cluster, _ string) string {
				elsewhere := c.push("os/worker-evil", "one")
				c.sign(ours(), elsewhere)
				_, digest, _ := strings.Cut(elsewhere, "@")
				there := c.host + "/os/worker/evil@" + digest
				c.copy(elsewhere, there)
				c.copy(signatureTag(elsewhere), signatureTag(there))
				return there
			},
			"is not accepted",
		},
		"a signed image of a repository whose name begins alike": {
			func(c *cluster, _ string) string {
				elsewhere := c.push("os/worker-evil", "one")
				c.sign(ours(), elsewhere)
				_, digest, _ := strings.Cut(elsewhere, "@")
				there := c.host + "/os/worker@" + digest
				c.copy(elsewhere, there)
				c.copy(signatureTag(elsewhere), signatureTag(there))
				return there
			},
			"is not accepted",
		},
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

			public, err := sign.ParsePublicKeys(ours().public)
			require.NoError(t, err)
			resolved, err := c.client.Resolve(t.Context(), image)
			require.NoError(t, err)
			_, err = sign.Policy{{Repository: c.host + "/os/worker", Keys: public}}.Verify(t.Context(), c.client, resolved.Image)
			assert.Error(t, err, "the controller says the same")
		})
	}
}
