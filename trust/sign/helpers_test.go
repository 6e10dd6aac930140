package sign_test

import (
	"fmt"
	"io"
	"log"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	memory "github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/stretchr/testify/require"

	"github.com/layerwright/layerwright/internal/registry"
	"github.com/layerwright/layerwright/internal/registry/registrytest"
	distribution "github.com/layerwright/layerwright/test/cluster/registry"
	"github.com/layerwright/layerwright/trust/sign"
	"github.com/layerwright/layerwright/trust/sign/signtest"
)

var pusher = distribution.Account{Name: "push", Password: "hunter2-push", Push: true}

// ours and others are made once: encrypting and decrypting take their time.
var ours, others = sync.OnceValue(signtest.NewPair), sync.OnceValue(signtest.NewPair)

// world is a registry, and a client of it.
type world struct {
	t        *testing.T
	registry *registrytest.Server
	host     string
	client   *registry.Client
}

// newWorld has the registry that most clusters run; it has no referrers.
func newWorld(t *testing.T) *world {
	t.Helper()
	return newWorldOf(t, distribution.New(t.Context(), distribution.Options{Dir: t.TempDir(), Accounts: []distribution.Account{pusher}}))
}

// withReferrers is one whose registry has the referrers API of OCI 1.1.
func withReferrers(t *testing.T) *world {
	t.Helper()
	return newWorldOf(t, memory.New(memory.Logger(log.New(io.Discard, "", 0)), memory.WithReferrersSupport(true)))
}

func newWorldOf(t *testing.T, handler http.Handler) *world {
	t.Helper()
	server := registrytest.New(t, handler)
	return &world{t: t, registry: server, host: server.Host, client: registry.New(registry.Options{
		Keychain: pusher, Transport: &http.Transport{DisableKeepAlives: true}, Backoff: remote.Backoff{Duration: time.Millisecond, Factor: 1, Steps: 2},
	})}
}

func (w *world) answering(answer func(http.ResponseWriter, *http.Request) bool) {
	w.registry.Answer(answer)
}

// pushes are the uploads of manifests since the last call.
func (w *world) pushes() []string {
	var out []string
	for _, request := range w.registry.Forget() {
		if path, is := strings.CutPrefix(request, "PUT "); is && strings.Contains(path, "/manifests/") {
			out = append(out, path[strings.LastIndex(path, "/")+1:])
		}
	}
	return out
}

func (w *world) ref(text string) name.Reference {
	w.t.Helper()
	ref, err := name.ParseReference(text)
	require.NoError(w.t, err)
	return ref
}

// push pushes an image under a tag and gives it by digest.
func (w *world) push(repository, tag string) string {
	w.t.Helper()
	image, err := random.Image(64, 2)
	require.NoError(w.t, err)
	ref := w.ref(w.host + "/" + repository + ":" + tag)
	require.NoError(w.t, remote.Write(ref, image, w.options()...))
	return w.pinned(ref, image.Digest)
}

// pushIndex pushes an index of two images and gives it by digest, with what it lists.
func (w *world) pushIndex(repository string) (string, []string) {
	w.t.Helper()
	index, err := random.Index(64, 1, 2)
	require.NoError(w.t, err)
	ref := w.ref(w.host + "/" + repository + ":index")
	require.NoError(w.t, remote.WriteIndex(ref, index, w.options()...))
	manifest, err := index.IndexManifest()
	require.NoError(w.t, err)
	var children []string
	for _, child := range manifest.Manifests {
		children = append(children, ref.Context().Digest(child.Digest.String()).String())
	}
	return w.pinned(ref, index.Digest), children
}

func (w *world) pinned(ref name.Reference, digest func() (v1.Hash, error)) string {
	w.t.Helper()
	hash, err := digest()
	require.NoError(w.t, err)
	return ref.Context().Digest(hash.String()).String()
}

func (w *world) options() []remote.Option {
	return []remote.Option{remote.WithAuth(pusher.Login())}
}

func (w *world) sign(key *sign.Key, image string) sign.Signature {
	w.t.Helper()
	signed, err := sign.NewSigner(signtest.Keys{One: key}).Sign(w.t.Context(), w.client, image)
	require.NoError(w.t, err)
	return signed
}

// trusts is the policy that trusts keys in a repository.
func (w *world) trusts(repository string, pairs ...signtest.Pair) sign.Policy {
	w.t.Helper()
	var public []*sign.PublicKey
	for _, p := range pairs {
		public = append(public, p.Key.Public())
	}
	return sign.Policy{{Repository: w.host + "/" + repository, Keys: public}}
}

func (w *world) verify(policy sign.Policy, image string) error {
	_, err := policy.Verify(w.t.Context(), w.client, image)
	return err
}

// signatureTag is where an image's signatures are.
func signatureTag(image string) string {
	repository, digest, _ := strings.Cut(image, "@")
	return fmt.Sprintf("%s:%s.sig", repository, strings.Replace(digest, ":", "-", 1))
}

// copySignatures gives an image the signatures of another one, as whoever may push can.
func (w *world) copySignatures(from, to string) {
	w.t.Helper()
	found, err := remote.Image(w.ref(signatureTag(from)), w.options()...)
	require.NoError(w.t, err)
	require.NoError(w.t, remote.Write(w.ref(signatureTag(to)), found, w.options()...))
}

// flood adds layers that look like signatures.
func flood(tb testing.TB, image v1.Image, n int) v1.Image {
	tb.Helper()
	var more []mutate.Addendum
	for i := range n {
		more = append(more, mutate.Addendum{
			Layer: static.NewLayer([]byte(fmt.Sprint(i)), sign.Signatures.MediaType), Annotations: map[string]string{"dev.cosignproject.cosign/signature": "AAAA"},
		})
	}
	flooded, err := mutate.Append(image, more...)
	require.NoError(tb, err)
	return flooded
}
