package signing_test

import (
	"context"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/stretchr/testify/require"

	"github.com/layerwright/layerwright/internal/registry"
	"github.com/layerwright/layerwright/test/sigstore"
	"github.com/layerwright/layerwright/trust/sign"
	"github.com/layerwright/layerwright/trust/signaturepolicy"
)

const builder = "builder@example.com"

// services are what signing without a key needs.
type services struct {
	fulcioURL, rekorURL string
	roots, logKey       []byte
	// transport is for requests to them; nil is the usual one.
	transport http.RoundTripper
}

// identity is someone who signs without a key, and what nodes are to know of them.
type identity struct {
	*cluster
	issuer *sigstore.Issuer
	keys   *sign.Keyless
	accept signaturepolicy.Identity
}

func newIdentity(t *testing.T, issuer *sigstore.Issuer, s services) *identity {
	t.Helper()
	i := &identity{cluster: newCluster(t), issuer: issuer}
	dir := t.TempDir()
	file := func(name string, content []byte) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, content, 0o600))
		return path
	}
	i.keys = sign.NewKeyless(sign.KeylessOptions{
		FulcioURL: s.fulcioURL, RekorURL: s.rekorURL, Subject: builder, Issuer: i.issuer.URL, Transport: s.transport,
		TokenFile: file("token", []byte(i.issuer.EmailToken(builder, time.Now().Add(time.Hour)))),
		RootsFile: file("roots.pem", s.roots), LogKeyFile: file("rekor.pub", s.logKey),
	})
	trusted, err := i.keys.Trusted(t.Context())
	require.NoError(t, err)
	is := trusted.Identities[0]
	i.accept = signaturepolicy.Identity{Email: is.Subject(), Issuer: is.Issuer(), Roots: is.Roots(), LogKeys: is.LogKeys()}
	return i
}

// standIn signs with what stands in for both.
type standIn struct {
	*identity
	log *sigstore.Log
}

func newStandIn(t *testing.T) *standIn {
	t.Helper()
	issuer, log := sigstore.NewIssuer(t), sigstore.NewLog(t)
	a := sigstore.NewAuthority(t, issuer)
	return &standIn{newIdentity(t, issuer, services{fulcioURL: a.URL, roots: a.Roots(), rekorURL: log.URL, logKey: log.PublicKey()}), log}
}

func (i *identity) trySign(image string) (sign.Signature, error) {
	return sign.NewSigner(i.keys).Sign(i.t.Context(), i.client, image)
}

func (i *identity) sign(image string) {
	i.t.Helper()
	_, err := i.trySign(image)
	require.NoError(i.t, err)
}

// pull pulls as a node whose policy accepts the identity, changed as a test wants it.
func (i *identity) pull(image string, change func(*signaturepolicy.Identity)) error {
	i.t.Helper()
	accept := i.accept
	if change != nil {
		change(&accept)
	}
	return i.pullUnder(image, signaturepolicy.Repository{Name: i.host + "/os/worker", Identity: &accept})
}

// verify verifies as the controller does.
func (i *identity) verify(image string) error {
	i.t.Helper()
	trusted, err := i.keys.Trusted(i.t.Context())
	require.NoError(i.t, err)
	_, err = sign.Policy{trusted.In(i.host + "/os/worker")}.Verify(i.t.Context(), i.client, image)
	return err
}

// logged is where a signature has what the log says.
const logged = "dev.sigstore.cosign/bundle"

func TestNodesAcceptKeylessSignatures(t *testing.T) {
	t.Parallel()
	other := sigstore.NewLog(t)
	roots := sigstore.NewAuthority(t, sigstore.NewIssuer(t)).Roots()
	tests := map[string]struct {
		change func(*signaturepolicy.Identity)
		want   string
	}{
		"as it is":       {nil, ""},
		"another email":  {func(a *signaturepolicy.Identity) { a.Email = "other@example.com" }, "Required email"},
		"another issuer": {func(a *signaturepolicy.Identity) { a.Issuer = "https://issuer.example.com" }, "Unexpected Fulcio OIDC issuer"},
		"another root":   {func(a *signaturepolicy.Identity) { a.Roots = roots }, "certificate signed by unknown authority"},
		"another log": {
			func(a *signaturepolicy.Identity) { a.LogKeys = [][]byte{other.PublicKey()} }, "cryptographic signature verification of Rekor SET failed",
		},
		"roots that are rotated": {func(a *signaturepolicy.Identity) { a.Roots = append(append([]byte{}, roots...), a.Roots...) }, ""},
		"a log with a new key":   {func(a *signaturepolicy.Identity) { a.LogKeys = append([][]byte{other.PublicKey()}, a.LogKeys...) }, ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			i := newStandIn(t)
			image := i.push("os/worker", "one")
			i.sign(image)
			err := i.pull(image, tt.change)
			if tt.want == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, tt.want)
		})
	}
}

// promise is what the log has of a signature.
type promise struct {
	SignedEntryTimestamp []byte
	Payload              sigstore.Entry
}

func TestNodesRefuseSignaturesWithoutAKey(t *testing.T) {
	t.Parallel()
	promising := func(again bool, change func(*sigstore.Entry)) func(*standIn, map[string]string) {
		return func(i *standIn, annotations map[string]string) {
			var p promise
			require.NoError(i.t, json.Unmarshal([]byte(annotations[logged]), &p))
			change(&p.Payload)
			if again {
				p.SignedEntryTimestamp = i.log.Sign(p.Payload).Verification.SignedEntryTimestamp
			}
			text, err := json.Marshal(p)
			require.NoError(i.t, err)
			annotations[logged] = string(text)
		}
	}
	tests := map[string]struct {
		attack func(*standIn, map[string]string)
		want   string
	}{
		"expired when it was signed": {promising(true, func(e *sigstore.Entry) { e.IntegratedTime += 700 }), "has expired or is not yet valid"},
		"a log's promise that is not its own": {
			promising(false, func(e *sigstore.Entry) { e.LogIndex++ }), "cryptographic signature verification of Rekor SET failed",
		},
		"no log": {func(_ *standIn, a map[string]string) { delete(a, logged) }, "missing dev.sigstore.cosign/bundle annotation"},
		"no certificate": {
			func(_ *standIn, a map[string]string) { delete(a, "dev.sigstore.cosign/certificate") }, "missing dev.sigstore.cosign/certificate annotation",
		},
		"the entry of another image": {
			func(i *standIn, a map[string]string) {
				another := i.push("os/worker", "another")
				i.sign(another)
				a[logged] = i.newest(another).Annotations[logged]
			}, "signature in Rekor SET does not match",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			i := newStandIn(t)
			image := i.push("os/worker", "one")
			i.sign(image)
			layer := i.newest(image)
			tt.attack(i, layer.Annotations)
			i.replace(image, layer)
			require.ErrorContains(t, i.pull(image, nil), tt.want)
			require.Error(t, i.verify(image), "the controller says the same")
		})
	}
}

// replace leaves an image with one signature.
func (i *identity) replace(image string, layer registry.Attachment) {
	i.t.Helper()
	ref := i.ref(signatureTag(image))
	found, err := remote.Head(ref, i.options()...)
	require.NoError(i.t, err)
	require.NoError(i.t, remote.Delete(ref.Context().Digest(found.Digest.String()), i.options()...))
	_, err = i.client.Attach(i.t.Context(), image, sign.Signatures, layer)
	require.NoError(i.t, err)
}

// newest is the newest signature of an image.
func (i *identity) newest(image string) registry.Attachment {
	i.t.Helper()
	there, err := i.client.Attachments(context.WithoutCancel(i.t.Context()), image, sign.Signatures)
	require.NoError(i.t, err)
	require.NotEmpty(i.t, there)
	return there[0]
}
