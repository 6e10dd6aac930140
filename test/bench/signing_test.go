//go:build e2e

package bench

import (
	"context"
	"crypto/rand"
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
func (k benchKey) Trusted(context.Context) (sign.Trusted, error) {
	return sign.Trusted{Keys: []*sign.PublicKey{k.key.Public()}}, nil
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
