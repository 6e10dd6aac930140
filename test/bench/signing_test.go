//go:build e2e

package bench

import (
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	ggcrname "github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/sirupsen/logrus"
	"github.com/stretchr/testify/require"

	imageregistry "github.com/layerwright/layerwright/internal/registry"
	"github.com/layerwright/layerwright/internal/sign"
	"github.com/layerwright/layerwright/internal/trust"
	"github.com/layerwright/layerwright/test/cluster/registry"
)

// Budgets of signatures. The first is beyond the time that the registry takes to answer; here it has to do for both.
const (
	budgetSign   = 0.3 // seconds
	budgetVerify = 0.1 // seconds
)

// benchKey is a sign.Keys.
type benchKey struct{ key *sign.Key }

// Key is the key.
func (k benchKey) Key(context.Context) (*sign.Key, error) { return k.key, nil }

// Trusted is the key.
func (k benchKey) Trusted(context.Context) ([]*sign.PublicKey, error) {
	return []*sign.PublicKey{k.key.Public()}, nil
}

// BenchmarkGate verifies an image as the gate does before each rollout: its signature, and its provenance with builder and age, of an image for one
// architecture and of one for two. Keys are parsed and connections open: that is what it is like from the second image on.
func BenchmarkGate(b *testing.B) {
	private, public, err := sign.GenerateKey(rand.Reader, []byte("bench"))
	require.NoError(b, err)
	key, err := sign.LoadKey(private, []byte("bench"))
	require.NoError(b, err)
	logrus.SetOutput(io.Discard)
	server := httptest.NewServer(registry.New(b.Context(), registry.Options{Dir: b.TempDir(), Accounts: []registry.Account{appendAccount}}))
	b.Cleanup(server.Close)
	repository := strings.TrimPrefix(server.URL, "http://") + "/os/worker"
	policy, err := trust.Parse(fmt.Appendf(nil, "repositories: [{repository: %s, publicKeys: %q, builders: [ci], notOlderThan: 24h}]", repository, public))
	require.NoError(b, err)
	rule, has := policy.For(repository)
	require.True(b, has)
	now := time.Now()
	for name, platforms := range map[string]int{"image": 0, "index": 2} {
		b.Run(name, func(b *testing.B) {
			client := imageregistry.New(imageregistry.Options{Keychain: appendLogin{}})
			pinned := pushRandom(b, repository, platforms)
			signer := sign.NewSigner(benchKey{key})
			_, err := signer.Attest(b.Context(), client, pinned, sign.Statement{PredicateType: sign.PredicateProvenance, Predicate: fmt.Appendf(nil,
				`{"runDetails":{"builder":{"id":"ci"},"metadata":{"finishedOn":%q}}}`, now.UTC().Format(time.RFC3339))})
			require.NoError(b, err)
			_, err = signer.Sign(b.Context(), client, pinned)
			require.NoError(b, err)
			var verifying time.Duration
			for b.Loop() {
				began := time.Now()
				_, err = rule.Verify(b.Context(), client, pinned, now)
				verifying += time.Since(began)
				require.NoError(b, err)
			}
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(verifying.Seconds()/float64(b.N), "s-verify")
			b.ReportMetric(verifying.Seconds()/float64(b.N)/budgetVerify, "verify-of-budget")
		})
	}
}

// pushRandom pushes an image, or an index of some, and gives it by digest.
func pushRandom(b *testing.B, repository string, platforms int) string {
	b.Helper()
	login := remote.WithAuthFromKeychain(appendLogin{})
	if platforms == 0 {
		image, err := random.Image(1<<10, 2)
		require.NoError(b, err)
		digest, err := image.Digest()
		require.NoError(b, err)
		ref, err := ggcrname.NewDigest(repository + "@" + digest.String())
		require.NoError(b, err)
		require.NoError(b, remote.Write(ref, image, login))
		return ref.String()
	}
	index, err := random.Index(1<<10, 2, int64(platforms))
	require.NoError(b, err)
	digest, err := index.Digest()
	require.NoError(b, err)
	ref, err := ggcrname.NewDigest(repository + "@" + digest.String())
	require.NoError(b, err)
	require.NoError(b, remote.WriteIndex(ref, index, login))
	return ref.String()
}

// BenchmarkSign signs images, and verifies them.
func BenchmarkSign(b *testing.B) {
	private, public, err := sign.GenerateKey(rand.Reader, []byte("bench"))
	require.NoError(b, err)
	begin := time.Now()
	key, err := sign.LoadKey(private, []byte("bench"))
	require.NoError(b, err)
	loaded := time.Since(begin)
	trusted, err := sign.ParsePublicKeys(public)
	require.NoError(b, err)

	logrus.SetOutput(io.Discard) // the registry logs every 404 as an error
	server := httptest.NewServer(registry.New(b.Context(), registry.Options{Dir: b.TempDir(), Accounts: []registry.Account{appendAccount}}))
	b.Cleanup(server.Close)
	host := strings.TrimPrefix(server.URL, "http://")
	client := imageregistry.New(imageregistry.Options{Keychain: appendLogin{}})
	signer, policy := sign.NewSigner(benchKey{key}), sign.Policy{{Repository: host + "/os/worker", Keys: trusted}}

	var signing, verifying time.Duration
	for b.Loop() {
		b.StopTimer()
		image, err := random.Image(1<<10, 2)
		require.NoError(b, err)
		digest, err := image.Digest()
		require.NoError(b, err)
		ref, err := ggcrname.NewDigest(host + "/os/worker@" + digest.String())
		require.NoError(b, err)
		require.NoError(b, remote.Write(ref, image, remote.WithAuthFromKeychain(appendLogin{})))
		b.StartTimer()

		began := time.Now()
		_, err = signer.Sign(b.Context(), client, ref.String())
		require.NoError(b, err)
		signing += time.Since(began)
		began = time.Now()
		_, err = policy.Verify(b.Context(), client, ref.String())
		require.NoError(b, err)
		verifying += time.Since(began)
	}
	n := float64(b.N)
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(loaded.Seconds(), "s-to-load-key")
	b.ReportMetric(signing.Seconds()/n, "s-sign")
	b.ReportMetric(signing.Seconds()/n/budgetSign, "sign-of-budget")
	b.ReportMetric(verifying.Seconds()/n, "s-verify")
	b.ReportMetric(verifying.Seconds()/n/budgetVerify, "verify-of-budget")
}
