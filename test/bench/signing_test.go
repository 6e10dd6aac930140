//go:build e2e

package bench

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	ggcrname "github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/sirupsen/logrus"
	"github.com/stretchr/testify/require"

	imageregistry "github.com/layerwright/layerwright/internal/registry"
	"github.com/layerwright/layerwright/test/cluster/registry"
	"github.com/layerwright/layerwright/test/kms"
	"github.com/layerwright/layerwright/trust"
	"github.com/layerwright/layerwright/trust/sign"
	"github.com/layerwright/layerwright/trust/sign/kmskey"
	"github.com/layerwright/layerwright/trust/sign/signtest"
)

// Budgets of signatures. The first is beyond the time that the registry takes to answer; verifying
// has to do for both.
const (
	budgetSign   = 0.3 // seconds, with attesting
	budgetVerify = 0.1 // seconds
)

// BenchmarkGate verifies an image as the gate does before each rollout: its signature, and its
// provenance with builder and age, of an image for one architecture and of one for two. Keys are
// parsed and connections open: that is what it is like from the second image on.
func BenchmarkGate(b *testing.B) {
	pair := signtest.NewPair()
	logrus.SetOutput(io.Discard)
	server := httptest.NewServer(registry.New(b.Context(), registry.Options{Dir: b.TempDir(), Accounts: []registry.Account{appendAccount}}))
	b.Cleanup(server.Close)
	repository := strings.TrimPrefix(server.URL, "http://") + "/os/worker"
	policy, err := trust.Parse(fmt.Appendf(nil, "repositories: [{repository: %s, publicKeys: %q, builders: [ci], notOlderThan: 24h}]", repository, pair.Public))
	require.NoError(b, err)
	rule, has := policy.For(repository)
	require.True(b, has)
	now := time.Now()
	for name, platforms := range map[string]int{"image": 0, "index": 2} {
		b.Run(name, func(b *testing.B) {
			client := imageregistry.New(imageregistry.Options{Keychain: appendAccount})
			pinned := pushRandom(b, repository, platforms)
			signer := pair.Signer()
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
	login := remote.WithAuth(appendAccount.Login())
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

// busy is how long something had anything to do, however many things at once.
type busy struct {
	mu      sync.Mutex
	working int
	since   time.Time
	total   time.Duration
}

// work begins something, and what it gives ends it.
func (b *busy) work() func() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.working++; b.working == 1 {
		b.since = time.Now()
	}
	return func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		if b.working--; b.working == 0 {
			b.total += time.Since(b.since)
		}
	}
}

func (b *busy) took() time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.total
}

// packagesOf is something of the size of an SBOM, some 1,500 bytes for each package.
func packagesOf(packages int) sign.Statement {
	text := strings.Repeat("x", packages*1500)
	return sign.Statement{PredicateType: sign.PredicateSPDX, Predicate: json.RawMessage(`{"packages":"` + text + `"}`)}
}

// BenchmarkSignByService attests and signs images with a key of a service: of what stands in for
// AWS KMS, on this machine. What it takes to answer is part of it.
func BenchmarkSignByService(b *testing.B) {
	aws := kms.NewAWS(b)
	keys := kmskey.New(kmskey.Options{URI: aws.URI, Environment: aws.Environment, LookPath: kms.FindPrograms(b).LookPath})
	_, err := keys.Key(b.Context())
	require.NoError(b, err)
	logrus.SetOutput(io.Discard)
	answers := registry.New(b.Context(), registry.Options{Dir: b.TempDir(), Accounts: []registry.Account{appendAccount}})
	var at busy
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer at.work()()
		answers.ServeHTTP(w, r)
	}))
	b.Cleanup(server.Close)
	repository := strings.TrimPrefix(server.URL, "http://") + "/os/worker"
	client, signer := imageregistry.New(imageregistry.Options{Keychain: appendAccount}), sign.NewSigner(keys)
	provenance := sign.Statement{PredicateType: sign.PredicateProvenance, Predicate: json.RawMessage(`{"of":"` + strings.Repeat("x", 4<<10) + `"}`)}
	small := packagesOf(100)
	var own time.Duration
	for b.Loop() {
		b.StopTimer()
		pinned := pushRandom(b, repository, 0)
		b.StartTimer()
		began, before := time.Now(), at.took()
		_, err := signer.Attest(b.Context(), client, pinned, provenance, small)
		require.NoError(b, err)
		_, err = signer.Sign(b.Context(), client, pinned)
		require.NoError(b, err)
		own += time.Since(began) - (at.took() - before)
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(own.Seconds()/float64(b.N), "s-attest-and-sign-beyond-registry")
	b.ReportMetric(own.Seconds()/float64(b.N)/budgetSign, "attest-and-sign-of-budget")
}

// heldMiB is the memory of the heap that the process has not given back.
func heldMiB() float64 {
	var memory runtime.MemStats
	runtime.ReadMemStats(&memory)
	return float64(memory.HeapSys-memory.HeapReleased) / (1 << 20)
}

// BenchmarkSign attests and signs images, and verifies them.
func BenchmarkSign(b *testing.B) {
	pair := signtest.NewPair()
	before := heldMiB()
	begin := time.Now()
	_, err := sign.LoadKey(pair.Private, []byte(signtest.Password))
	require.NoError(b, err)
	loaded := time.Since(begin)
	kept := heldMiB() - before
	trusted, err := sign.ParsePublicKeys(pair.Public)
	require.NoError(b, err)

	logrus.SetOutput(io.Discard) // the registry logs every 404 as an error
	answers := registry.New(b.Context(), registry.Options{Dir: b.TempDir(), Accounts: []registry.Account{appendAccount}})
	var at busy
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer at.work()()
		answers.ServeHTTP(w, r)
	}))
	b.Cleanup(server.Close)
	host := strings.TrimPrefix(server.URL, "http://")
	client := imageregistry.New(imageregistry.Options{Keychain: appendAccount})
	signer, policy := pair.Signer(), sign.Policy{{Repository: host + "/os/worker", Keys: trusted}}

	provenance := sign.Statement{PredicateType: sign.PredicateProvenance, Predicate: json.RawMessage(`{"of":"` + strings.Repeat("x", 4<<10) + `"}`)}
	small, large := packagesOf(100), packagesOf(5000)

	var attesting, signing, own, verifying, verifyingStatement, attestingLarge time.Duration
	for b.Loop() {
		b.StopTimer()
		image, err := random.Image(1<<10, 2)
		require.NoError(b, err)
		digest, err := image.Digest()
		require.NoError(b, err)
		ref, err := ggcrname.NewDigest(host + "/os/worker@" + digest.String())
		require.NoError(b, err)
		require.NoError(b, remote.Write(ref, image, remote.WithAuth(appendAccount.Login())))
		b.StartTimer()

		began, before := time.Now(), at.took()
		_, err = signer.Attest(b.Context(), client, ref.String(), provenance, small)
		require.NoError(b, err)
		attesting += time.Since(began)
		began = time.Now()
		_, err = signer.Sign(b.Context(), client, ref.String())
		require.NoError(b, err)
		signing += time.Since(began)
		own -= at.took() - before
		began = time.Now()
		_, err = policy.Verify(b.Context(), client, ref.String())
		require.NoError(b, err)
		verifying += time.Since(began)
		began = time.Now()
		_, err = policy.VerifyAttestation(b.Context(), client, ref.String(), sign.PredicateProvenance)
		require.NoError(b, err)
		verifyingStatement += time.Since(began)

		large.PredicateType = sign.PredicateSPDX + "#large"
		began = time.Now()
		_, err = signer.Attest(b.Context(), client, ref.String(), large)
		require.NoError(b, err)
		attestingLarge += time.Since(began)
	}
	own += attesting + signing
	n := float64(b.N)
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(loaded.Seconds(), "s-to-load-key")
	b.ReportMetric(kept, "MiB-kept-of-64-to-load-key")
	b.ReportMetric(signing.Seconds()/n, "s-sign")
	b.ReportMetric(attesting.Seconds()/n, "s-attest")
	b.ReportMetric(own.Seconds()/n, "s-attest-and-sign-beyond-registry")
	b.ReportMetric(own.Seconds()/n/budgetSign, "attest-and-sign-of-budget")
	b.ReportMetric(attestingLarge.Seconds()/n, "s-attest-5000-packages")
	b.ReportMetric(verifyingStatement.Seconds()/n, "s-verify-statement")
	b.ReportMetric(verifying.Seconds()/n, "s-verify")
	b.ReportMetric(verifying.Seconds()/n/budgetVerify, "verify-of-budget")
}
