//go:build signing

package signing_test

import (
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/layerwright/layerwright/internal/fault"
	"github.com/layerwright/layerwright/test/cosign"
	"github.com/layerwright/layerwright/test/sigstore"
	"github.com/layerwright/layerwright/trust/sign"
	"github.com/layerwright/layerwright/trust/signaturepolicy"
)

// newReal signs with the real Fulcio and the real Rekor, and with a transport of the test's own.
func newReal(t *testing.T, transport func(*sigstore.Rekor) http.RoundTripper) (*identity, *sigstore.Rekor) {
	t.Helper()
	issuer, rekor := sigstore.NewIssuer(t), sigstore.NewRekor(t)
	fulcio := sigstore.NewFulcio(t, issuer)
	s := services{fulcioURL: fulcio.URL, roots: fulcio.Roots, rekorURL: rekor.URL, logKey: rekor.PublicKey}
	if transport != nil {
		s.transport = transport(rekor)
	}
	return newIdentity(t, issuer, s), rekor
}

var provenanceOf = sign.Statement{
	PredicateType: sign.PredicateProvenance,
	Predicate: json.RawMessage(`{"buildDefinition":{"buildType":"https://example.com/build","externalParameters":{}},` +
		`"runDetails":{"builder":{"id":"https://example.com"}}}`),
}

// TestFulcioCertifiesAndRekorLogs has the real ones do so, and all who verify take it.
func TestFulcioCertifiesAndRekorLogs(t *testing.T) {
	t.Parallel()
	i, rekor := newReal(t, nil)
	image, index := i.push("os/worker", "one"), i.pushIndex("os/worker")
	require.ErrorContains(t, i.pull(image, nil), "no signature exists")
	i.sign(image)
	i.sign(index)
	signed := append(i.children(index), index, image)
	for _, one := range signed {
		require.NoError(t, i.pull(one, nil))
		require.NoError(t, i.verify(one))
	}
	require.ErrorContains(t, i.pull(image, func(a *signaturepolicy.Identity) { a.Email = "other@example.com" }), "Required email")
	_, err := sign.NewSigner(i.keys).Attest(t.Context(), i.client, image, provenanceOf)
	require.NoError(t, err)

	require.Equal(t, len(signed)+1, rekor.Len(), "each signature, and the statement")
	for _, one := range signed {
		annotations := i.newest(one).Annotations
		var p promise
		require.NoError(t, json.Unmarshal([]byte(annotations[logged]), &p))
		entry := rekor.Entry(p.Payload.LogIndex)
		require.NoError(t, rekor.Proven(entry))
		require.Equal(t, p.Payload, entry.Entry, "it is what the signature says")
		require.Contains(t, string(entry.Body), annotations["dev.cosignproject.cosign/signature"])
		changed := entry
		changed.Body = append(slices.Clone(entry.Body), ' ')
		require.Error(t, rekor.Proven(changed), "another entry is not there")
		changed = entry
		changed.Verification.Proof.Checkpoint = strings.Replace(entry.Verification.Proof.Checkpoint, "\n", "0\n", 1)
		require.ErrorContains(t, rekor.Proven(changed), "the log has not signed its checkpoint")
	}
}

// TestCosignVerifiesWithoutAKey what the real ones stand for, with the commands of
// docs/signing-services.md.
func TestCosignVerifiesWithoutAKey(t *testing.T) {
	t.Parallel()
	i, rekor := newReal(t, nil)
	image, other := i.push("os/worker", "one"), i.push("os/worker", "other")
	i.sign(image)
	_, err := sign.NewSigner(i.keys).Attest(t.Context(), i.client, image, provenanceOf)
	require.NoError(t, err)
	login, err := account.DockerConfig(i.host)
	require.NoError(t, err)
	program := cosign.New(t, cosign.Options{Login: login, Roots: i.accept.Roots, LogKey: i.accept.LogKeys[0]})
	online := func(args []string) []string {
		return append(slices.DeleteFunc(slices.Clone(args), func(arg string) bool { return arg == "--offline" }), "--rekor-url", rekor.URL)
	}
	tests := map[string]struct{ subject, issuer, image, want string }{
		"the identity":   {builder, i.issuer.URL, image, ""},
		"another":        {"other@example.com", i.issuer.URL, image, "none of the expected identities matched"},
		"another issuer": {builder, "https://issuer.example.com", image, "none of the expected identities matched"},
		"another image":  {builder, i.issuer.URL, other, "no "},
	}
	for _, begin := range [][]string{{"verify"}, {"verify-attestation", "--type", "slsaprovenance1"}} {
		for name, tt := range tests {
			args := append(cosign.DocumentedKeyless(t, tt.image, tt.subject, tt.issuer, begin...), "--insecure-ignore-sct")
			for _, args := range [][]string{args, online(args)} {
				_, err := program.Try(t.Context(), args...)
				if tt.want == "" {
					require.NoError(t, err)
					continue
				}
				require.ErrorContains(t, err, tt.want, name)
			}
		}
	}

	// With what the log says beside the image, cosign asks no one. Without it, Rekor finds the
	// entry by the signature.
	layer := i.newest(image)
	delete(layer.Annotations, logged)
	i.replace(image, layer)
	args := append(cosign.DocumentedKeyless(t, image, builder, i.issuer.URL, "verify"), "--insecure-ignore-sct")
	_, err = program.Try(t.Context(), args...)
	require.Error(t, err)
	_, err = program.Try(t.Context(), online(args)...)
	require.NoError(t, err)
	require.ErrorContains(t, i.verify(image), "no transparency log has seen it", "nodes and the controller ask no one")
}

// onRekor does something at each new entry for Rekor.
type onRekor func(r *http.Request) (*http.Response, error)

func (f onRekor) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/log/entries") {
		return f(r)
	}
	return http.DefaultTransport.RoundTrip(r)
}

// TestRekorHasTheEntryAlready where something on the way has sent it twice: Rekor says so, and what
// it has is taken.
func TestRekorHasTheEntryAlready(t *testing.T) {
	t.Parallel()
	var conflicts atomic.Int64
	i, rekor := newReal(t, func(*sigstore.Rekor) http.RoundTripper {
		return onRekor(func(r *http.Request) (*http.Response, error) {
			again := r.Clone(r.Context())
			var err error
			if again.Body, err = r.GetBody(); err != nil {
				return nil, err
			}
			first, err := http.DefaultTransport.RoundTrip(r)
			if err != nil {
				return nil, err
			}
			if err := first.Body.Close(); err != nil {
				return nil, err
			}
			second, err := http.DefaultTransport.RoundTrip(again)
			if err == nil && second.StatusCode == http.StatusConflict {
				conflicts.Add(1)
			}
			return second, err
		})
	})
	image := i.push("os/worker", "one")
	i.sign(image)
	_, err := sign.NewSigner(i.keys).Attest(t.Context(), i.client, image, provenanceOf)
	require.NoError(t, err)
	require.EqualValues(t, 2, conflicts.Load())
	require.Equal(t, 2, rekor.Len(), "nothing is there twice")
	require.NoError(t, i.pull(image, nil))
	require.NoError(t, i.verify(image))
}

// TestRekorGoesAway while an index is signed: what is in the log by then stays signed, and the rest
// follows.
func TestRekorGoesAway(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		// taken reports whether Rekor has taken the entry whose answer is lost.
		taken   bool
		entries int
	}{
		"before it takes an entry":             {false, 3},
		"after it took one, before it answers": {true, 4},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var seen atomic.Int64
			i, rekor := newReal(t, func(rekor *sigstore.Rekor) http.RoundTripper {
				return onRekor(func(r *http.Request) (*http.Response, error) {
					if seen.Add(1) != 2 {
						return http.DefaultTransport.RoundTrip(r)
					}
					if tt.taken {
						response, err := http.DefaultTransport.RoundTrip(r)
						if err != nil {
							return nil, err
						}
						rekor.Stop()
						return nil, errors.Join(errors.New("the connection broke"), response.Body.Close())
					}
					rekor.Stop()
					return http.DefaultTransport.RoundTrip(r)
				})
			})
			index := i.pushIndex("os/worker")
			_, err := i.trySign(index)
			require.ErrorContains(t, err, "writing to the transparency log")
			require.Equal(t, fault.Transient, fault.ClassOf(err))
			require.ErrorContains(t, i.verify(index), "it has no signature")
			_, err = i.trySign(index)
			require.ErrorContains(t, err, "writing to the transparency log", "it is still away")

			rekor.Start()
			signed, err := i.trySign(index)
			require.NoError(t, err)
			require.Equal(t, 2, signed.Added, "one was signed before")
			require.Equal(t, tt.entries, rekor.Len())
			for _, one := range append(i.children(index), index) {
				require.NoError(t, i.pull(one, nil))
				require.NoError(t, i.verify(one))
			}
		})
	}
}
