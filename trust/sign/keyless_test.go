package sign_test

import (
	"bytes"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/sigstore/sigstore/pkg/cryptoutils"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	clocktesting "k8s.io/utils/clock/testing"

	mcfgv1alpha1 "github.com/layerwright/layerwright/api/machineconfiguration/v1alpha1"
	"github.com/layerwright/layerwright/internal/fault"
	"github.com/layerwright/layerwright/internal/registry"
	"github.com/layerwright/layerwright/test/sigstore"
	"github.com/layerwright/layerwright/trust/sign"
)

const (
	builder = "builder@example.com"
	certKey = "dev.sigstore.cosign/certificate"
	chain   = "dev.sigstore.cosign/chain"
	logKey  = "dev.sigstore.cosign/bundle"
	sigKey  = "dev.cosignproject.cosign/signature"
)

// keyless is a world with an authority and a log, and someone who signs with them.
type keyless struct {
	*world
	issuer    *sigstore.Issuer
	authority *sigstore.Authority
	log       *sigstore.Log
	clock     *clocktesting.FakePassiveClock
	options   sign.KeylessOptions
	keys      *sign.Keyless
}

func newKeyless(t *testing.T) *keyless {
	t.Helper()
	k := &keyless{world: newWorld(t), issuer: sigstore.NewIssuer(t), log: sigstore.NewLog(t), clock: clocktesting.NewFakePassiveClock(time.Now())}
	k.authority = sigstore.NewAuthority(t, k.issuer)
	dir := t.TempDir()
	k.options = sign.KeylessOptions{
		FulcioURL: k.authority.URL, RekorURL: k.log.URL + "/", Subject: builder, Issuer: k.issuer.URL, Clock: k.clock,
		TokenFile: filepath.Join(dir, "token"), RootsFile: filepath.Join(dir, "roots.pem"), LogKeyFile: filepath.Join(dir, "rekor.pub"),
		Transport: &http.Transport{DisableKeepAlives: true},
	}
	k.write(k.options.TokenFile, []byte(k.token(builder)+"\n"))
	k.write(k.options.RootsFile, k.authority.Roots())
	k.write(k.options.LogKeyFile, k.log.PublicKey())
	k.restart()
	return k
}

// restart forgets what the process knows.
func (k *keyless) restart() { k.keys = sign.NewKeyless(k.options) }

func (k *keyless) write(path string, content []byte) {
	k.t.Helper()
	require.NoError(k.t, os.WriteFile(path, content, 0o600))
}

func (k *keyless) token(subject string) string {
	return k.issuer.EmailToken(subject, time.Now().Add(time.Hour))
}

func (k *keyless) trySign(image string) (sign.Signature, error) {
	return sign.NewSigner(k.keys).Sign(k.t.Context(), k.client, image)
}

func (k *keyless) sign(image string) sign.Signature {
	k.t.Helper()
	signed, err := k.trySign(image)
	require.NoError(k.t, err)
	return signed
}

// policy trusts the identity that signs in os/worker, changed as a test wants it.
func (k *keyless) policy(change func(*sign.IdentityOptions)) sign.Policy {
	k.t.Helper()
	options := sign.IdentityOptions{Subject: k.options.Subject, Issuer: k.issuer.URL, Roots: k.authority.Roots(), LogKeys: k.log.PublicKey()}
	if change != nil {
		change(&options)
	}
	identity, err := sign.NewIdentity(options)
	require.NoError(k.t, err)
	return sign.Policy{{Repository: k.host + "/os/worker", Identities: []*sign.Identity{identity}}}
}

// layer is the newest signature of an image.
func (k *keyless) layer(image string) registry.Attachment {
	k.t.Helper()
	there, err := k.client.Attachments(k.t.Context(), image, sign.Signatures)
	require.NoError(k.t, err)
	require.NotEmpty(k.t, there)
	return there[0]
}

// replace leaves an image with one signature.
func (k *keyless) replace(image string, layer registry.Attachment) {
	k.t.Helper()
	tag := k.ref(signatureTag(image))
	before, err := remote.Image(tag, k.world.options()...)
	require.NoError(k.t, err)
	manifest, err := before.Manifest()
	require.NoError(k.t, err)
	require.Len(k.t, manifest.Layers, 1)
	require.NoError(k.t, remote.Delete(tag.Context().Digest(k.digestOf(tag.String())), k.world.options()...))
	_, err = k.client.Attach(k.t.Context(), image, sign.Signatures, layer)
	require.NoError(k.t, err)
}

func TestKeylessSignsAndVerifies(t *testing.T) {
	t.Parallel()
	k := newKeyless(t)
	image := k.push("os/worker", "one")
	policy := k.policy(nil)
	require.ErrorContains(t, k.verify(policy, image), "it has no signature")
	signed := k.sign(image)
	assert.Equal(t, 1, signed.Added)
	assert.Len(t, signed.KeyID, 64)
	assert.Equal(t, signatureTag(image), signed.Reference)
	verified, err := policy.Verify(t.Context(), k.client, image)
	require.NoError(t, err)
	assert.Equal(t, signed.KeyID, verified.KeyID)

	layer := k.layer(image)
	assert.Len(t, layer.Annotations, 4)
	assert.Equal(t, 1, strings.Count(layer.Annotations[certKey], "BEGIN CERTIFICATE"))
	assert.Equal(t, 2, strings.Count(layer.Annotations[chain], "BEGIN CERTIFICATE"), "up to the root")
	assert.Contains(t, layer.Annotations[logKey], `"SignedEntryTimestamp":`)
	require.ErrorContains(t, k.verify(k.trusts("os/worker", ours()), image), "none of its signatures is by a trusted key")
}

func TestOneCertificateSignsAnIndex(t *testing.T) {
	t.Parallel()
	k := newKeyless(t)
	index, children := k.pushIndex("os/worker")
	image := k.push("os/worker", "one")
	assert.Equal(t, 3, k.sign(index).Added)
	assert.Equal(t, 1, k.sign(image).Added)
	assert.Equal(t, 1, k.authority.Issued(), "in its time, one certificate signs several images")
	assert.Equal(t, 4, k.log.Len(), "each signature is in the log")
	for _, one := range append(children, index, image) {
		require.NoError(t, k.verify(k.policy(nil), one))
	}

	k.pushes()
	k.restart()
	again := k.sign(index)
	assert.Zero(t, again.Added, "another key, and the same identity")
	assert.Empty(t, k.pushes())
	assert.Equal(t, 1, k.authority.Issued(), "no one is asked where there is nothing to sign")
	assert.Equal(t, 4, k.log.Len())

	k.sign(k.push("os/worker", "two"))
	assert.Equal(t, 2, k.authority.Issued())
	k.clock.SetTime(k.clock.Now().Add(7 * time.Minute))
	k.sign(k.push("os/worker", "three"))
	assert.Equal(t, 2, k.authority.Issued())
	k.clock.SetTime(k.clock.Now().Add(2 * time.Minute))
	k.sign(k.push("os/worker", "four"))
	assert.Equal(t, 3, k.authority.Issued(), "one that nears its end is not used")
}

func TestMachinesSignWithTheTokenOfTheirAccount(t *testing.T) {
	t.Parallel()
	k := newKeyless(t)
	const account = "https://kubernetes.io/namespaces/layerwright/serviceaccounts/layerwright-controller"
	k.options.Subject = account
	k.restart()
	k.write(k.options.TokenFile, []byte(k.issuer.Token(map[string]any{"sub": account}, time.Now().Add(time.Hour))))
	image := k.push("os/worker", "one")
	k.sign(image)
	require.NoError(t, k.verify(k.policy(nil), image))
	err := k.verify(k.policy(func(o *sign.IdentityOptions) { o.Subject = builder }), image)
	require.ErrorContains(t, err, `is for ["`+account+`"], not for "`+builder+`"`)
}

func TestKeysAndIdentitiesSignBesideEachOther(t *testing.T) {
	t.Parallel()
	k := newKeyless(t)
	image := k.push("os/worker", "one")
	k.world.sign(ours().Key, image)
	assert.Equal(t, 1, k.sign(image).Added)
	assert.Zero(t, k.world.sign(ours().Key, image).Added)
	require.NoError(t, k.verify(k.trusts("os/worker", ours()), image))
	require.NoError(t, k.verify(k.policy(nil), image))
	both := k.trusts("os/worker", others())
	both[0].Identities = k.policy(nil)[0].Identities
	require.NoError(t, k.verify(both, image), "one of them is enough")
}

func TestWhoIsNotTheIdentity(t *testing.T) {
	t.Parallel()
	other := sigstore.NewLog(t)
	rotated := newKeyless(t)
	tests := map[string]struct {
		change func(*sign.IdentityOptions)
		want   string
	}{
		"another subject":        {func(o *sign.IdentityOptions) { o.Subject = "other@example.com" }, `the certificate is for ["builder@example.com"], not for "other@example.com"`},
		"a part of the subject":  {func(o *sign.IdentityOptions) { o.Subject = "uilder@example.com" }, "not for"},
		"another issuer":         {func(o *sign.IdentityOptions) { o.Issuer = "https://evil.example.com" }, `not "https://evil.example.com"`},
		"another root":           {func(o *sign.IdentityOptions) { o.Roots = rotated.authority.Roots() }, "the certificate does not chain to a trusted root"},
		"another log":            {func(o *sign.IdentityOptions) { o.LogKeys = other.PublicKey() }, "is not trusted"},
		"roots that are rotated": {func(o *sign.IdentityOptions) { o.Roots = append(rotated.authority.Roots(), o.Roots...) }, ""},
		"a log with a new key":   {func(o *sign.IdentityOptions) { o.LogKeys = append(other.PublicKey(), o.LogKeys...) }, ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k := newKeyless(t)
			image := k.push("os/worker", "one")
			k.sign(image)
			err := k.verify(k.policy(tt.change), image)
			if tt.want == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, tt.want)
			assert.Equal(t, mcfgv1alpha1.ReasonNotSigned, fault.Reason(err))
			assert.True(t, fault.IsTerminal(err))
		})
	}
}

// promise is the annotation of the log.
type promise struct {
	SignedEntryTimestamp []byte
	Payload              sigstore.Entry
}

// promising changes the entry of a signature; again signs it, as a log could that is not to be
// trusted with time alone.
func (k *keyless) promising(layer registry.Attachment, again bool, change func(*sigstore.Entry)) registry.Attachment {
	k.t.Helper()
	var p promise
	require.NoError(k.t, json.Unmarshal([]byte(layer.Annotations[logKey]), &p))
	change(&p.Payload)
	if again {
		p.SignedEntryTimestamp = k.log.Sign(p.Payload).Verification.SignedEntryTimestamp
	}
	text, err := json.Marshal(p)
	require.NoError(k.t, err)
	layer.Annotations[logKey] = string(text)
	return layer
}

func TestAttacksOnSignaturesWithoutAKey(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		attack func(k *keyless, layer registry.Attachment) registry.Attachment
		want   string
	}{
		"no log": {
			func(_ *keyless, layer registry.Attachment) registry.Attachment {
				delete(layer.Annotations, logKey)
				return layer
			}, "no transparency log has seen it",
		},
		"no certificate": {
			func(_ *keyless, layer registry.Attachment) registry.Attachment {
				delete(layer.Annotations, certKey)
				return layer
			}, "none of its signatures is by a trusted key",
		},
		"no chain": {
			func(_ *keyless, layer registry.Attachment) registry.Attachment {
				delete(layer.Annotations, chain)
				return layer
			}, "the certificate does not chain to a trusted root",
		},
		"a log's promise that is not its own": {
			func(k *keyless, layer registry.Attachment) registry.Attachment {
				return k.promising(layer, false, func(e *sigstore.Entry) { e.IntegratedTime-- })
			}, "the transparency log has not signed this entry",
		},
		"a log's promise that can't be read": {
			func(_ *keyless, layer registry.Attachment) registry.Attachment {
				layer.Annotations[logKey] = "{"
				return layer
			}, "can't be read",
		},
		"made after the certificate expired": {
			func(k *keyless, layer registry.Attachment) registry.Attachment {
				return k.promising(layer, true, func(e *sigstore.Entry) { e.IntegratedTime += 601 })
			}, "was not valid when the log saw the signature",
		},
		"made before the certificate was": {
			func(k *keyless, layer registry.Attachment) registry.Attachment {
				return k.promising(layer, true, func(e *sigstore.Entry) { e.IntegratedTime -= 60 })
			}, "was not valid when the log saw the signature",
		},
		"the entry of another signature": {
			func(k *keyless, layer registry.Attachment) registry.Attachment {
				another := k.push("os/worker", "another")
				k.sign(another)
				layer.Annotations[logKey] = k.layer(another).Annotations[logKey]
				return layer
			}, "the log's entry is about another signature",
		},
		"the entry of another certificate": {
			func(k *keyless, layer registry.Attachment) registry.Attachment {
				another := k.push("os/worker", "another")
				k.restart()
				k.sign(another)
				layer.Annotations[logKey] = k.layer(another).Annotations[logKey]
				return layer
			}, "the log's entry is about another signature",
		},
		"another payload": {
			func(_ *keyless, layer registry.Attachment) registry.Attachment {
				layer.Content = bytes.Replace(layer.Content, []byte("optional"), []byte("OPTIONAL"), 1)
				return layer
			}, "the log's entry is about another signature",
		},
		"an entry of another kind": {
			func(k *keyless, layer registry.Attachment) registry.Attachment {
				return k.promising(layer, true, func(e *sigstore.Entry) { e.Body = []byte(`{"apiVersion":"0.0.2","kind":"intoto","spec":{}}`) })
			}, `is a "intoto"`,
		},
		"a log's promise about no text": {
			func(_ *keyless, layer registry.Attachment) registry.Attachment {
				layer.Annotations[logKey] = `{"Payload":{"body":1}}`
				return layer
			}, "can't be read",
		},
		"an entry of nothing": {
			func(k *keyless, layer registry.Attachment) registry.Attachment {
				return k.promising(layer, true, func(e *sigstore.Entry) { e.Body = []byte(`{"apiVersion":"0.0.1","kind":"hashedrekord","spec":{}}`) })
			}, "the log's entry is about another signature",
		},
		"two certificates": {
			func(_ *keyless, layer registry.Attachment) registry.Attachment {
				layer.Annotations[certKey] += layer.Annotations[chain]
				return layer
			}, "its certificate has to be one",
		},
		"an entry that is none": {
			func(k *keyless, layer registry.Attachment) registry.Attachment {
				return k.promising(layer, true, func(e *sigstore.Entry) { e.Body = []byte(`x`) })
			}, "the log's entry can't be read",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k := newKeyless(t)
			image := k.push("os/worker", "one")
			k.sign(image)
			k.replace(image, tt.attack(k, k.layer(image)))
			err := k.verify(k.policy(nil), image)
			require.ErrorContains(t, err, tt.want)
			assert.Equal(t, mcfgv1alpha1.ReasonNotSigned, fault.Reason(err))
			assert.Equal(t, 1, k.sign(image).Added, "and it is signed again")
			require.NoError(t, k.verify(k.policy(nil), image))
		})
	}
}

// TestAuthoritiesThatHadExpired is about what cosign 2 accepts (GO-2026-4529): it looks at the
// whole chain when the leaf's time began, and at the leaf alone when the log saw the signature.
func TestAuthoritiesThatHadExpired(t *testing.T) {
	t.Parallel()
	soon := time.Now().Add(5 * time.Minute)
	tests := map[string]func(*sigstore.Authority){
		"the authority in between": func(a *sigstore.Authority) { a.MiddleUntil = soon },
		"the root":                 func(a *sigstore.Authority) { a.RootUntil = soon },
	}
	for name, expires := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k := newKeyless(t)
			expires(k.authority)
			k.authority.Rotate()
			k.write(k.options.RootsFile, k.authority.Roots())
			image := k.push("os/worker", "one")
			k.sign(image)
			require.NoError(t, k.verify(k.policy(nil), image), "it is valid still")
			k.replace(image, k.promising(k.layer(image), true, func(e *sigstore.Entry) { e.IntegratedTime += 6 * 60 }))
			require.ErrorContains(t, k.verify(k.policy(nil), image), "the certificate does not chain to a trusted root")
		})
	}
}

// TestCertificatesThatNodesRefuse has those that cosign takes for the identity's.
func TestCertificatesThatNodesRefuse(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		change func(*x509.Certificate)
		want   string
	}{
		"an address that is a URI": {
			func(c *x509.Certificate) { c.EmailAddresses, c.URIs = nil, []*url.URL{{Path: builder}} }, `the certificate is for ["` + builder + `"], not for`,
		},
		"two issuers": {
			func(c *x509.Certificate) { c.ExtraExtensions[1].Value = append([]byte{0x0c, 4}, "evil"...) }, "has to name one issuer of identities",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k := newKeyless(t)
			k.authority.Change = tt.change
			_, err := k.trySign(k.push("os/worker", "one"))
			require.ErrorContains(t, err, tt.want)
			assert.Equal(t, mcfgv1alpha1.ReasonInvalidKey, fault.Reason(err))
			assert.Zero(t, k.log.Len())
		})
	}
}

// TestCosignAsksNoOneAndSaysNothing judges while all services are down, with an environment that
// has the log's client write to standard error. It is not parallel: both are of the process.
func TestCosignAsksNoOneAndSaysNothing(t *testing.T) { //nolint:paralleltest // see above
	t.Setenv("DEBUG", "1")
	said, err := os.Create(filepath.Join(t.TempDir(), "stderr"))
	require.NoError(t, err)
	before := os.Stderr
	os.Stderr = said
	t.Cleanup(func() { os.Stderr = before })
	k := newKeyless(t)
	image := k.push("os/worker", "one")
	k.sign(image)
	asked := func(w http.ResponseWriter, r *http.Request) bool {
		t.Errorf("asked: %s", r.URL)
		return answering(http.StatusInternalServerError, "")(w, r)
	}
	k.log.Answering(asked)
	k.authority.Answering(asked)
	require.NoError(t, k.verify(k.policy(nil), image))
	text, err := os.ReadFile(said.Name())
	require.NoError(t, err)
	assert.Empty(t, string(text))
}

func TestASignatureOfAnotherImageOfTheIdentity(t *testing.T) {
	t.Parallel()
	k := newKeyless(t)
	good, evil := k.push("os/worker", "good"), k.push("os/worker", "evil")
	k.sign(good)
	k.copySignatures(good, evil)
	require.ErrorContains(t, k.verify(k.policy(nil), evil), "a trusted key has signed something else")
}

func answering(code int, body string) func(http.ResponseWriter, *http.Request) bool {
	return func(w http.ResponseWriter, _ *http.Request) bool {
		w.WriteHeader(code)
		_, _ = w.Write([]byte(body))
		return true
	}
}

// silent never answers.
func silent(_ http.ResponseWriter, r *http.Request) bool {
	_, _ = io.Copy(io.Discard, r.Body) // whether the client is gone is only seen behind it
	<-r.Context().Done()
	return true
}

func TestWithoutACertificateNothingIsSigned(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		breaks func(k *keyless)
		reason string
		want   []string
	}{
		"no token": {
			func(k *keyless) { require.NoError(k.t, os.Remove(k.options.TokenFile)) },
			mcfgv1alpha1.ReasonWaitingForKey,
			[]string{"<token file>", "no such file"},
		},
		"an empty token": {
			func(k *keyless) { k.write(k.options.TokenFile, []byte("\n")) }, mcfgv1alpha1.ReasonWaitingForKey, []string{"<token file>", "it is empty"},
		},
		"a token that has expired": {
			func(k *keyless) {
				k.write(k.options.TokenFile, []byte(k.issuer.EmailToken(builder, time.Now().Add(-time.Minute))))
			},
			mcfgv1alpha1.ReasonInvalidKey,
			[]string{"<token file>", "it expired at ", "There was an error processing the identity token"},
		},
		"what is no token": {
			func(k *keyless) { k.write(k.options.TokenFile, []byte("hunter2")) },
			mcfgv1alpha1.ReasonInvalidKey,
			[]string{"<token file>", "it is no JSON web token"},
		},
		"a token of another issuer": {
			func(k *keyless) {
				k.write(k.options.TokenFile, []byte(sigstore.NewIssuer(k.t).EmailToken(builder, time.Now().Add(time.Hour))))
			},
			mcfgv1alpha1.ReasonInvalidKey,
			[]string{"<token file>", "gives no certificate"},
		},
		"someone else's token": {
			func(k *keyless) { k.write(k.options.TokenFile, []byte(k.token("other@example.com"))) },
			mcfgv1alpha1.ReasonInvalidKey,
			[]string{"<token file>", `the certificate is for ["other@example.com"], not for "builder@example.com"`},
		},
		"no roots": {
			func(k *keyless) { require.NoError(k.t, os.Remove(k.options.RootsFile)) },
			mcfgv1alpha1.ReasonWaitingForKey,
			[]string{"<roots file>", "Fulcio's root certificates", "no such file"},
		},
		"roots that are none": {
			func(k *keyless) { k.write(k.options.RootsFile, []byte("root")) },
			mcfgv1alpha1.ReasonInvalidKey,
			[]string{"<roots file>", "they have to be certificates in PEM"},
		},
		"no key of the log": {
			func(k *keyless) { require.NoError(k.t, os.Remove(k.options.LogKeyFile)) },
			mcfgv1alpha1.ReasonWaitingForKey,
			[]string{"<log key file>", "no such file"},
		},
		"a key of the log that is none": {
			func(k *keyless) { k.write(k.options.LogKeyFile, []byte("key")) },
			mcfgv1alpha1.ReasonInvalidKey,
			[]string{"<log key file>", "no PEM"},
		},
		"roots of another Fulcio": {
			func(k *keyless) { k.authority.Rotate() },
			mcfgv1alpha1.ReasonInvalidKey,
			[]string{"<roots file>", "the certificate does not chain to a trusted root"},
		},
		"Fulcio is down": {
			func(k *keyless) {
				k.options.FulcioURL = "http://127.0.0.1:1"
				k.restart()
			},
			mcfgv1alpha1.ReasonWaitingForKey,
			[]string{`Fulcio at "http://127.0.0.1:1"`, "connect"},
		},
		"Fulcio is slow": {
			func(k *keyless) {
				k.options.Timeout = 10 * time.Millisecond
				k.restart()
				k.authority.Answering(silent)
			},
			mcfgv1alpha1.ReasonWaitingForKey,
			[]string{"Fulcio at", "Timeout"},
		},
		"Fulcio fails": {
			func(k *keyless) {
				k.authority.Answering(answering(http.StatusInternalServerError, `{"code":13,"message":"error communicating with CA backend"}`))
			},
			mcfgv1alpha1.ReasonWaitingForKey,
			[]string{"500 Internal Server Error: error communicating with CA backend"},
		},
		"Fulcio's answer is none": {
			func(k *keyless) { k.authority.Answering(answering(http.StatusOK, `<html>`)) },
			mcfgv1alpha1.ReasonWaitingForKey,
			[]string{"its answer can't be read"},
		},
		"Fulcio's answer is empty": {
			func(k *keyless) { k.authority.Answering(answering(http.StatusOK, `{}`)) },
			mcfgv1alpha1.ReasonWaitingForKey,
			[]string{"its answer has no certificate"},
		},
		"Fulcio leads elsewhere": {
			func(k *keyless) {
				elsewhere := sigstore.NewAuthority(k.t, k.issuer)
				elsewhere.Answering(func(http.ResponseWriter, *http.Request) bool { panic("a token was sent elsewhere") })
				k.authority.Answering(func(w http.ResponseWriter, _ *http.Request) bool {
					w.Header().Set("Location", elsewhere.URL+"/api/v2/signingCert")
					w.WriteHeader(http.StatusTemporaryRedirect)
					return true
				})
			},
			mcfgv1alpha1.ReasonInvalidKey,
			[]string{"307 Temporary Redirect"},
		},
		"Fulcio tells the token": {
			func(k *keyless) {
				k.authority.Answering(func(w http.ResponseWriter, r *http.Request) bool {
					var said struct {
						Credentials struct {
							Token string `json:"oidcIdentityToken"`
						} `json:"credentials"`
					}
					assert.NoError(k.t, json.NewDecoder(r.Body).Decode(&said))
					return answering(http.StatusUnauthorized, "no entry with "+said.Credentials.Token)(w, r)
				})
			},
			mcfgv1alpha1.ReasonInvalidKey,
			[]string{"no entry with <token>"},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k := newKeyless(t)
			image := k.push("os/worker", "one")
			k.pushes()
			tt.breaks(k)
			token, _ := os.ReadFile(k.options.TokenFile)
			_, err := k.trySign(image)
			require.Error(t, err)
			assert.True(t, fault.IsWaiting(err), err.Error())
			assert.Equal(t, tt.reason, fault.Reason(err))
			assert.Positive(t, fault.After(err))
			names := strings.NewReplacer("<token file>", k.options.TokenFile, "<roots file>", k.options.RootsFile, "<log key file>", k.options.LogKeyFile)
			for _, want := range tt.want {
				require.ErrorContains(t, err, names.Replace(want))
			}
			if text := strings.TrimSpace(string(token)); text != "" {
				assert.NotContains(t, err.Error(), text)
			}
			assert.Empty(t, k.pushes())
			assert.Zero(t, k.log.Len())

			k.options.FulcioURL, k.options.Timeout = k.authority.URL, 0
			k.authority.Answering(nil)
			k.write(k.options.TokenFile, []byte(k.token(builder)))
			k.write(k.options.RootsFile, k.authority.Roots())
			k.write(k.options.LogKeyFile, k.log.PublicKey())
			if strings.HasPrefix(name, "Fulcio is") {
				k.restart()
			}
			assert.Equal(t, 1, k.sign(image).Added, "it goes on by itself when that is put right")
			require.NoError(t, k.verify(k.policy(nil), image))
		})
	}
}

func TestWithoutTheLogNothingIsSigned(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		breaks func(k *keyless)
		class  fault.Class
		want   string
	}{
		"it is down": {
			func(k *keyless) {
				k.options.RekorURL = "http://127.0.0.1:1"
				k.restart()
			}, fault.Transient, `writing to the transparency log "http://127.0.0.1:1"`,
		},
		"it is slow": {
			func(k *keyless) {
				k.options.Timeout = 2 * time.Second // Fulcio is to answer within it, also on a busy machine
				k.restart()
				k.log.Answering(silent)
			}, fault.Transient, "Timeout",
		},
		"it fails":      {func(k *keyless) { k.log.Answering(answering(http.StatusInternalServerError, "")) }, fault.Transient, "500 Internal Server Error"},
		"it has enough": {func(k *keyless) { k.log.Answering(answering(http.StatusTooManyRequests, "")) }, fault.Transient, "429 Too Many Requests"},
		"it refuses": {
			func(k *keyless) {
				k.log.Answering(answering(http.StatusBadRequest, `{"code":400,"message":"error processing entry"}`))
			},
			fault.Terminal, "does not take the signature: 400 Bad Request: error processing entry",
		},
		"its answer is none":        {func(k *keyless) { k.log.Answering(answering(http.StatusCreated, "<html>")) }, fault.Transient, "its answer is not one entry"},
		"its answer has no entry":   {func(k *keyless) { k.log.Answering(answering(http.StatusCreated, `{"a":{"verification":{}}}`)) }, fault.Terminal, "is not accepted"},
		"its answer has no promise": {func(k *keyless) { k.log.Answering(answering(http.StatusCreated, `{"a":{}}`)) }, fault.Terminal, "is not accepted"},
		"it has the entry and does not say where": {
			func(k *keyless) { k.log.Answering(answering(http.StatusConflict, "")) }, fault.Transient, "did not answer where",
		},
		"it has the entry and not yet in its place": {
			func(k *keyless) {
				k.log.Answering(func(w http.ResponseWriter, r *http.Request) bool {
					if r.Method == http.MethodGet {
						return answering(http.StatusNotFound, `{"code":404,"message":"entry not found"}`)(w, r)
					}
					w.Header().Set("Location", "/api/v1/log/entries/00ff")
					return answering(http.StatusConflict, "")(w, r)
				})
			}, fault.Transient, `reading the entry "00ff"`,
		},
		"it gives another entry": {
			func(k *keyless) {
				k.sign(k.push("os/worker", "before"))
				before, err := json.Marshal(k.log.First())
				require.NoError(k.t, err)
				k.log.Answering(answering(http.StatusCreated, string(before)))
			}, fault.Terminal, "is not accepted: the log's entry is about another signature",
		},
		"it is another log": {
			func(k *keyless) {
				k.options.RekorURL = sigstore.NewLog(k.t).URL
				k.restart()
			}, fault.Waiting, "is not trusted",
		},
		"its clock is wrong": {
			func(k *keyless) { k.log.Now = func() time.Time { return time.Now().Add(time.Hour) } },
			fault.Terminal, "their clocks may differ",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k := newKeyless(t)
			image := k.push("os/worker", "one")
			tt.breaks(k)
			k.pushes()
			_, err := k.trySign(image)
			require.ErrorContains(t, err, tt.want)
			assert.Equal(t, tt.class, fault.ClassOf(err))
			assert.Empty(t, k.pushes(), "what would not be accepted is not attached")

			k.log.Now = time.Now
			k.log.Answering(nil)
			k.options.RekorURL, k.options.Timeout = k.log.URL, 0
			k.restart()
			k.sign(image)
			require.NoError(t, k.verify(k.policy(nil), image))
		})
	}
}

// Entries of a log are there for ever. What is refused each time is not to make one each time.
func TestAnOutdatedKeyOfTheLogMakesOneEntry(t *testing.T) {
	t.Parallel()
	k := newKeyless(t)
	k.write(k.options.LogKeyFile, sigstore.NewLog(t).PublicKey())
	image, other := k.push("os/worker", "one"), k.push("os/worker", "two")
	refused := func(image string) {
		t.Helper()
		_, err := k.trySign(image)
		require.ErrorContains(t, err, "is not trusted")
		require.ErrorContains(t, err, fmt.Sprintf("write the public key that it has now (%s/api/v1/log/publicKey) into the file %q", k.log.URL, k.options.LogKeyFile))
		assert.Equal(t, mcfgv1alpha1.ReasonInvalidKey, fault.Reason(err))
		assert.True(t, fault.IsWaiting(err))
	}
	refused(image)
	require.Equal(t, 1, k.log.Len())
	for range 9 {
		k.clock.SetTime(k.clock.Now().Add(time.Minute))
		refused(image)
		refused(other)
		_, err := sign.NewSigner(k.keys).Attest(t.Context(), k.client, image, sign.Statement{PredicateType: sign.PredicateSPDX, Predicate: []byte("{}")})
		require.ErrorContains(t, err, "the next try is at "+k.clock.Now().UTC().Format("2006"))
		assert.Equal(t, 1, k.log.Len())
	}
	k.clock.SetTime(k.clock.Now().Add(time.Minute))
	refused(image)
	assert.Equal(t, 2, k.log.Len(), "it may have changed its key again")
	k.clock.SetTime(k.clock.Now().Add(19 * time.Minute))
	refused(image)
	assert.Equal(t, 2, k.log.Len(), "the pause is twice as long")
	k.write(k.options.LogKeyFile, k.log.PublicKey())
	assert.Equal(t, 1, k.sign(image).Added, "once the file is in order, at once")
	assert.Equal(t, 1, k.sign(other).Added)
	require.NoError(t, k.verify(k.policy(nil), image))
}

func TestALogWhoseClockIsWrongGetsFewEntries(t *testing.T) {
	t.Parallel()
	k := newKeyless(t)
	k.log.Now = func() time.Time { return time.Now().Add(time.Hour) }
	image := k.push("os/worker", "one")
	for range 3 {
		_, err := k.trySign(image)
		require.ErrorContains(t, err, "their clocks may differ")
		assert.True(t, fault.IsTerminal(err))
		assert.Equal(t, 2, k.log.Len(), "one for each of two certificates")
	}
	k.log.Now = time.Now
	k.clock.SetTime(k.clock.Now().Add(10 * time.Minute))
	assert.Equal(t, 1, k.sign(image).Added)
}

func TestAnEntryThatIsThereIsTaken(t *testing.T) {
	t.Parallel()
	k := newKeyless(t)
	var once sync.Once
	k.log.Answering(func(_ http.ResponseWriter, r *http.Request) bool {
		once.Do(func() { // the answer to the first request was lost on its way
			body, err := io.ReadAll(r.Body)
			assert.NoError(t, err) //nolint:testifylint // not the test's goroutine
			k.log.Answering(nil)
			first, err := http.NewRequestWithContext(t.Context(), http.MethodPost, k.log.URL+"/api/v1/log/entries", bytes.NewReader(body))
			if assert.NoError(t, err) {
				response, err := http.DefaultClient.Do(first)
				if assert.NoError(t, err) {
					assert.NoError(t, response.Body.Close())
				}
			}
			r.Body = io.NopCloser(bytes.NewReader(body))
		})
		return false
	})
	image := k.push("os/worker", "one")
	k.sign(image)
	assert.Equal(t, 1, k.log.Len())
	require.NoError(t, k.verify(k.policy(nil), image))
}

func TestACertificateThatExpiresWhileSigning(t *testing.T) {
	t.Parallel()
	k := newKeyless(t)
	// This process's clock stands still: to it, the first certificate is good for ever.
	k.sign(k.push("os/worker", "one"))
	later := func() time.Time { return time.Now().Add(11 * time.Minute) }
	k.log.Now, k.authority.Now = later, later
	image := k.push("os/worker", "two")
	assert.Equal(t, 1, k.sign(image).Added)
	assert.Equal(t, 2, k.authority.Issued(), "another one was asked for at once")
	require.NoError(t, k.verify(k.policy(nil), image))
}

func TestClocksThatDiffer(t *testing.T) {
	t.Parallel()
	for name, skew := range map[string]time.Duration{"ahead": 24 * time.Hour, "behind": -24 * time.Hour} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k := newKeyless(t)
			k.clock.SetTime(time.Now().Add(skew))
			first, second := k.push("os/worker", "one"), k.push("os/worker", "two")
			k.sign(first)
			k.sign(second)
			assert.Equal(t, 1, k.authority.Issued(), "the time that counts is Fulcio's and the log's")
			require.NoError(t, k.verify(k.policy(nil), first))
		})
	}
}

func TestRootsThatAreRotated(t *testing.T) {
	t.Parallel()
	k := newKeyless(t)
	before := k.push("os/worker", "before")
	k.sign(before)
	old := k.authority.Roots()
	k.authority.Rotate()
	k.write(k.options.RootsFile, append(k.authority.Roots(), old...))
	after := k.push("os/worker", "after")
	k.sign(after)
	assert.Zero(t, k.sign(before).Added, "while both roots are trusted")
	k.write(k.options.RootsFile, k.authority.Roots())
	assert.Equal(t, 1, k.sign(before).Added, "without the old root it is signed again")
	assert.Equal(t, 1, k.sign(after).Added, "its certificate was of the old root: in its time it signed on")
	require.NoError(t, k.verify(k.policy(nil), before))
	assert.Equal(t, 2, k.authority.Issued())
}

func TestManySignAtOnce(t *testing.T) {
	t.Parallel()
	k := newKeyless(t)
	images := make([]string, 4)
	for i := range images {
		images[i] = k.push("os/worker", fmt.Sprint("n", i))
	}
	var all sync.WaitGroup
	for _, image := range images {
		all.Go(func() {
			_, err := k.trySign(image)
			assert.NoError(t, err)
		})
	}
	all.Wait()
	assert.Equal(t, 1, k.authority.Issued())
}

func TestTrustedIdentity(t *testing.T) {
	t.Parallel()
	k := newKeyless(t)
	trusted, err := k.keys.Trusted(t.Context())
	require.NoError(t, err)
	require.Empty(t, trusted.Keys)
	require.Len(t, trusted.Identities, 1)
	identity := trusted.Identities[0]
	assert.Equal(t, builder, identity.Subject())
	assert.Equal(t, k.issuer.URL, identity.Issuer())
	assert.Equal(t, strings.TrimSpace(string(k.authority.Roots())), string(identity.Roots()))
	require.Len(t, identity.LogKeys(), 1)
	assert.Equal(t, string(k.log.PublicKey()), string(identity.LogKeys()[0]))
	image := k.push("os/worker", "one")
	k.sign(image)
	require.NoError(t, k.verify(sign.Policy{trusted.In(k.host + "/os/worker")}, image))
	key, err := k.keys.Key(t.Context())
	require.NoError(t, err)
	assert.Equal(t, identity.ID(), fmt.Sprint(key))
	require.NoError(t, os.Remove(k.options.RootsFile))
	_, err = k.keys.Trusted(t.Context())
	assert.Equal(t, mcfgv1alpha1.ReasonWaitingForKey, fault.Reason(err))
}

func TestWhatIsNoIdentity(t *testing.T) {
	t.Parallel()
	k := newKeyless(t)
	good := sign.IdentityOptions{Subject: builder, Issuer: k.issuer.URL, Roots: k.authority.Roots(), LogKeys: k.log.PublicKey()}
	tests := map[string]struct {
		change func(*sign.IdentityOptions)
		want   string
	}{
		"no subject":       {func(o *sign.IdentityOptions) { o.Subject = "" }, "a subject and an issuer"},
		"no issuer":        {func(o *sign.IdentityOptions) { o.Issuer = "" }, "a subject and an issuer"},
		"no roots":         {func(o *sign.IdentityOptions) { o.Roots = nil }, "certificates in PEM"},
		"a key as root":    {func(o *sign.IdentityOptions) { o.Roots = k.log.PublicKey() }, "certificates in PEM"},
		"no log":           {func(o *sign.IdentityOptions) { o.LogKeys = nil }, "there is none"},
		"a log with RSA":   {func(o *sign.IdentityOptions) { o.LogKeys = rsaKey(t) }, "ECDSA keys alone"},
		"a log's old name": {func(o *sign.IdentityOptions) { o.LogKeys = k.authority.Roots() }, "the keys of the transparency log"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			options := good
			tt.change(&options)
			_, err := sign.NewIdentity(options)
			require.ErrorContains(t, err, tt.want)
		})
	}
}

func TestOwnSignatureAmongForeignCertificates(t *testing.T) {
	t.Parallel()
	k := newKeyless(t)
	image := k.push("os/worker", "one")
	k.sign(image)
	before, err := remote.Image(k.ref(signatureTag(image)), k.world.options()...)
	require.NoError(t, err)
	more, err := mutate.Append(before, mutate.Addendum{
		Layer: static.NewLayer([]byte("x"), sign.Signatures.MediaType),
		Annotations: map[string]string{
			sigKey: base64.StdEncoding.EncodeToString([]byte("x")), certKey: "-----BEGIN CERTIFICATE-----", chain: "x", logKey: "x",
		},
	})
	require.NoError(t, err)
	require.NoError(t, remote.Write(k.ref(signatureTag(image)), more, k.world.options()...))
	require.NoError(t, k.verify(k.policy(nil), image))
}

func rsaKey(t *testing.T) []byte {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	require.NoError(t, err)
	text, err := cryptoutils.MarshalPublicKeyToPEM(&key.PublicKey)
	require.NoError(t, err)
	return text
}

func TestKeylessAttestations(t *testing.T) {
	t.Parallel()
	k := newKeyless(t)
	index, _ := k.pushIndex("os/worker")
	signer, said := sign.NewSigner(k.keys), sign.Statement{PredicateType: sign.PredicateProvenance, Predicate: json.RawMessage(`{"a":1}`)}
	attested, err := signer.Attest(t.Context(), k.client, index, said)
	require.NoError(t, err)
	assert.Equal(t, 3, attested[0].Added)
	assert.Equal(t, 1, k.log.Len(), "one statement is about all")
	predicates, err := k.policy(nil).VerifyAttestation(t.Context(), k.client, index, said.PredicateType)
	require.NoError(t, err)
	require.Len(t, predicates, 1)
	assert.JSONEq(t, `{"a":1}`, string(predicates[0]))
	predicates, err = signer.Statements(t.Context(), k.client, index, said.PredicateType)
	require.NoError(t, err)
	assert.Len(t, predicates, 1)

	k.restart()
	attested, err = sign.NewSigner(k.keys).Attest(t.Context(), k.client, index, said)
	require.NoError(t, err)
	assert.Zero(t, attested[0].Added, "another key, and the same identity")
	has, err := sign.NewSigner(k.keys).Attested(t.Context(), k.client, index)
	require.NoError(t, err)
	assert.True(t, has[said.PredicateType])
	assert.Equal(t, 1, k.authority.Issued())

	_, err = k.policy(func(o *sign.IdentityOptions) { o.Subject = "other@example.com" }).VerifyAttestation(t.Context(), k.client, index, said.PredicateType)
	assert.Equal(t, mcfgv1alpha1.ReasonNotAttested, fault.Reason(err))
	_, err = k.trusts("os/worker", ours()).VerifyAttestation(t.Context(), k.client, index, said.PredicateType)
	assert.Equal(t, mcfgv1alpha1.ReasonNotAttested, fault.Reason(err))
}

func TestAttacksOnKeylessAttestations(t *testing.T) {
	t.Parallel()
	said := sign.Statement{PredicateType: sign.PredicateProvenance, Predicate: json.RawMessage(`{}`)}
	stated := func(k *keyless, image string) registry.Attachment {
		_, err := sign.NewSigner(k.keys).Attest(k.t.Context(), k.client, image, said)
		require.NoError(k.t, err)
		there, err := k.client.Attachments(k.t.Context(), image, sign.Attestations)
		require.NoError(k.t, err)
		return there[0]
	}
	tests := map[string]func(k *keyless, layer registry.Attachment) registry.Attachment{
		"no log": func(_ *keyless, layer registry.Attachment) registry.Attachment {
			delete(layer.Annotations, logKey)
			return layer
		},
		"made after the certificate expired": func(k *keyless, layer registry.Attachment) registry.Attachment {
			return k.promising(layer, true, func(e *sigstore.Entry) { e.IntegratedTime += 601 })
		},
		"the entry of another statement": func(k *keyless, layer registry.Attachment) registry.Attachment {
			layer.Annotations[logKey] = stated(k, k.push("os/worker", "another")).Annotations[logKey]
			return layer
		},
		"the entry of another certificate": func(k *keyless, layer registry.Attachment) registry.Attachment {
			k.restart()
			layer.Annotations[logKey] = stated(k, k.push("os/worker", "another")).Annotations[logKey]
			return layer
		},
		"the entry of a signature": func(k *keyless, layer registry.Attachment) registry.Attachment {
			another := k.push("os/worker", "another")
			k.sign(another)
			layer.Annotations[logKey] = k.layer(another).Annotations[logKey]
			return layer
		},
		"another statement": func(_ *keyless, layer registry.Attachment) registry.Attachment {
			layer.Content = bytes.Replace(layer.Content, []byte(`"payload":"`), []byte(`"payload":"e30`), 1)
			return layer
		},
	}
	for name, attack := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k := newKeyless(t)
			image := k.push("os/worker", "one")
			layer := stated(k, image)
			_, err := k.policy(nil).VerifyAttestation(t.Context(), k.client, image, said.PredicateType)
			require.NoError(t, err)
			layer = attack(k, layer)
			tag := k.ref(strings.TrimSuffix(signatureTag(image), "sig") + "att")
			require.NoError(t, remote.Delete(tag.Context().Digest(k.digestOf(tag.String())), k.world.options()...))
			_, err = k.client.Attach(t.Context(), image, sign.Attestations, layer)
			require.NoError(t, err)
			_, err = k.policy(nil).VerifyAttestation(t.Context(), k.client, image, said.PredicateType)
			assert.Equal(t, mcfgv1alpha1.ReasonNotAttested, fault.Reason(err))
		})
	}
}
