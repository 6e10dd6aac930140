package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"io"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	certutil "k8s.io/client-go/util/cert"
	clocktesting "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	mcfgv1alpha1 "github.com/layerwright/layerwright/api/machineconfiguration/v1alpha1"
	operatorv1 "github.com/layerwright/layerwright/api/operator/v1"
	"github.com/layerwright/layerwright/internal/lease"
	"github.com/layerwright/layerwright/internal/names"
	"github.com/layerwright/layerwright/machineconfigs"
)

// syncBuffer is a log that one goroutine writes and another reads.
type syncBuffer struct {
	mu     sync.Mutex
	buffer bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buffer.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buffer.String()
}

// addresses counts those that ownAddress has given.
var addresses atomic.Uint32

// ownAddress is a loopback address that nothing listens on: each has an IP address of its own, and
// a port that is never given to a connection.
func ownAddress(t *testing.T) string {
	t.Helper()
	n := uint32(os.Getpid())<<8 + addresses.Add(1) //nolint:gosec // which bits are cut off doesn't matter
	var ip [4]byte
	binary.BigEndian.PutUint32(ip[:], n)
	ip[0], ip[1] = 127, 1+ip[1]%100
	return netip.AddrPortFrom(netip.AddrFrom4(ip), 18443).String()
}

// get returns code and body, or 0 while nothing answers.
func get(ctx context.Context, url, token string) (int, string) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return 0, err.Error()
	}
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	client := &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{
		DisableKeepAlives: true,
		TLSClientConfig:   &tls.Config{InsecureSkipVerify: true}, //nolint:gosec // the certificate under test is self-signed
	}}
	response, err := client.Do(request)
	if err != nil {
		return 0, err.Error()
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return 0, err.Error()
	}
	return response.StatusCode, string(body)
}

func eventuallyStatus(t *testing.T, url string, want int) {
	t.Helper()
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		code, body := get(t.Context(), url, "")
		assert.Equal(c, want, code, body)
	}, 2*time.Minute, 50*time.Millisecond)
}

// testOptions are the defaults on loopback ports.
func testOptions(t *testing.T) *controllerOptions {
	t.Helper()
	options := defaultControllerOptions()
	options.leaderElectionNamespace, options.namespace = "layerwright-test", "layerwright-test"
	options.metricsBindAddress = ownAddress(t)
	options.healthProbeBindAddress = ownAddress(t)
	options.gracefulShutdownTimeout = 10 * time.Second
	return options
}

// start runs the controller and returns how to stop it; stopping returns what it ended with.
func start(t *testing.T, api *standIn, options *controllerOptions, parts ...part) (stop func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(logr.NewContext(t.Context(), logr.Discard()))
	ended := make(chan error, 1)
	go func() { ended <- runController(ctx, api.config(), options, parts...) }()
	stop = sync.OnceValue(func() error {
		cancel()
		return waitFor(t, ended)
	})
	t.Cleanup(func() { _ = stop() })
	return stop
}

func waitFor(t *testing.T, ended <-chan error) error {
	t.Helper()
	select {
	case err := <-ended:
		return err
	case <-time.After(2 * time.Minute):
		t.Error("the controller did not end")
		return nil
	}
}

func TestRunControllerServesProbes(t *testing.T) {
	t.Parallel()
	api := newStandIn(t)
	options := testOptions(t)
	stop := start(t, api, options, serverParts()...)
	health := "http://" + options.healthProbeBindAddress

	eventuallyStatus(t, health+"/healthz", http.StatusOK)
	eventuallyStatus(t, health+"/readyz", http.StatusOK)

	api.setDown(true)
	eventuallyStatus(t, health+"/readyz", http.StatusInternalServerError)
	code, _ := get(t.Context(), health+"/healthz", "")
	assert.Equal(t, http.StatusOK, code, "a restart does not cure the API server")
	code, body := get(t.Context(), health+"/readyz?verbose", "")
	assert.Equal(t, http.StatusInternalServerError, code)
	assert.Contains(t, body, "[-]api failed")
	assert.Contains(t, body, "[+]caches ok")

	api.setDown(false)
	eventuallyStatus(t, health+"/readyz", http.StatusOK)
	require.NoError(t, stop())
}

func TestRunControllerGuardsMetrics(t *testing.T) {
	t.Parallel()
	options := testOptions(t)
	start(t, newStandIn(t), options, serverParts()...)
	eventuallyStatus(t, "http://"+options.healthProbeBindAddress+"/readyz", http.StatusOK)
	metrics := "https://" + options.metricsBindAddress + "/metrics"

	eventuallyStatus(t, metrics, http.StatusUnauthorized)
	code, _ := get(t.Context(), "http://"+options.metricsBindAddress+"/metrics", scraperToken)
	assert.NotEqual(t, http.StatusOK, code, "plain HTTP is refused")

	tests := map[string]struct {
		token    string
		wantCode int
	}{
		"a caller without a token":         {wantCode: http.StatusUnauthorized},
		"someone the API server never saw": {token: "forged", wantCode: http.StatusUnauthorized},
		"someone without the right":        {token: strangerToken, wantCode: http.StatusForbidden},
		"a scraper":                        {token: scraperToken, wantCode: http.StatusOK},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			code, body := get(t.Context(), metrics, tt.token)
			assert.Equal(t, tt.wantCode, code, body)
			if tt.wantCode == http.StatusOK {
				assert.Regexp(t, `(?m)^layerwright_build_info\{goversion="go[^"]+",revision="[^"]+",version="[^"]+"\} 1$`, body)
			} else {
				assert.NotContains(t, body, "layerwright_build_info")
			}
		})
	}
}

func TestRunControllerServesTheGivenCertificate(t *testing.T) {
	t.Parallel()
	options := testOptions(t)
	options.metricsCertDir = t.TempDir()
	cert, key, err := certutil.GenerateSelfSignedCertKey("metrics.example.test", nil, nil)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(options.metricsCertDir, "tls.crt"), cert, 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(options.metricsCertDir, "tls.key"), key, 0o600))
	stop := start(t, newStandIn(t), options)

	require.EventuallyWithT(t, func(c *assert.CollectT) {
		dialer := tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true}} //nolint:gosec // looks at the certificate itself
		connection, err := dialer.DialContext(t.Context(), "tcp", options.metricsBindAddress)
		if !assert.NoError(c, err) {
			return
		}
		defer func() { _ = connection.Close() }()
		secured, ok := connection.(*tls.Conn)
		if assert.True(c, ok) {
			assert.NoError(c, secured.ConnectionState().PeerCertificates[0].VerifyHostname("metrics.example.test"))
		}
	}, 2*time.Minute, 50*time.Millisecond)
	require.NoError(t, stop())
}

func TestRunControllerRunsPartsOnlyWhileLeading(t *testing.T) {
	t.Parallel()
	api := newStandIn(t)
	started, finished := make(chan struct{}), make(chan struct{})
	work := func(m ctrl.Manager) error {
		return m.Add(manager.RunnableFunc(func(ctx context.Context) error {
			assert.Len(t, api.leaseHolders(), 1, "the Lease is held before work starts")
			close(started)
			<-ctx.Done()
			assert.Len(t, api.leaseHolders(), 1, "the Lease is held until work ended")
			close(finished)
			return nil
		}))
	}
	stop := start(t, api, testOptions(t), work)
	select {
	case <-started:
	case <-time.After(2 * time.Minute):
		t.Fatal("the part was not started")
	}
	require.NoError(t, stop())
	<-finished
	assert.Len(t, api.leaseHolders(), 2, "the Lease is given back")
}

func TestRunControllerWritesNothingWithoutItsLease(t *testing.T) {
	t.Parallel()
	api, options := newStandIn(t), testOptions(t)
	now := clocktesting.NewFakeClock(time.Now())
	options.guard = lease.NewGuard(names.ControllerLease, leaseDuration, now)
	managers := make(chan ctrl.Manager, 1)
	start(t, api, options, func(m ctrl.Manager) error {
		managers <- m
		return nil
	})
	m := <-managers
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		now.Step(leaseDuration)
		assert.Error(c, options.guard.Check(), "the Lease has been renewed once")
	}, 2*time.Minute, 50*time.Millisecond)
	api.setDown(true) // no renewal reaches it any more
	now.Step(leaseDuration)

	for name, client := range map[string]*http.Client{"the API server": m.GetHTTPClient(), "registries": {Transport: options.registryTransport()}} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, api.URL+"/apis/authentication.k8s.io/v1/tokenreviews", http.NoBody)
		require.NoError(t, err)
		resp, err := client.Do(req)
		if err == nil {
			_ = resp.Body.Close()
		}
		var expired *lease.ExpiredError
		require.ErrorAs(t, err, &expired, name)
	}
}

func TestRunControllerWithoutLeaderElection(t *testing.T) {
	t.Parallel()
	api := newStandIn(t)
	options := testOptions(t)
	options.leaderElect = false
	stop := start(t, api, options, serverParts()...)
	eventuallyStatus(t, "http://"+options.healthProbeBindAddress+"/readyz", http.StatusOK)
	require.NoError(t, stop())
	assert.Empty(t, api.leaseHolders())
}

func TestRunControllerEndsWhileWorkHangs(t *testing.T) {
	t.Parallel()
	options := testOptions(t)
	options.gracefulShutdownTimeout = 100 * time.Millisecond
	release, started := make(chan struct{}), make(chan struct{})
	defer close(release)
	stop := start(t, newStandIn(t), options, func(m ctrl.Manager) error {
		return m.Add(manager.RunnableFunc(func(context.Context) error {
			close(started)
			<-release
			return nil
		}))
	})
	<-started
	require.ErrorContains(t, stop(), "running the controller: failed waiting for all runnables to end within grace period of 100ms")
}

func TestRunControllerFails(t *testing.T) {
	t.Parallel()
	errPart := errors.New("no such kind")
	tests := map[string]struct {
		parts   []part
		change  func(t *testing.T, api *standIn, options *controllerOptions)
		wantErr string
	}{
		"when a part cannot be set up": {
			parts:   []part{func(ctrl.Manager) error { return errPart }},
			wantErr: "setting up the controller: no such kind",
		},
		"when a part fails": {
			parts: []part{func(m ctrl.Manager) error {
				return m.Add(manager.RunnableFunc(func(context.Context) error { return errPart }))
			}},
			wantErr: "running the controller: no such kind",
		},
		"when the API server answers with errors": {
			change:  func(_ *testing.T, api *standIn, _ *controllerOptions) { api.setDown(true) },
			wantErr: "reaching the API server at http://127.0.0.1:",
		},
		"when the API server is gone": {
			change:  func(_ *testing.T, api *standIn, _ *controllerOptions) { api.Close() },
			wantErr: "connection refused",
		},
		"when the health port is taken": {
			change: func(_ *testing.T, api *standIn, options *controllerOptions) {
				options.healthProbeBindAddress = api.Listener.Addr().String()
			},
			wantErr: "address already in use",
		},
		"when the metrics port is taken": {
			change: func(_ *testing.T, api *standIn, options *controllerOptions) {
				options.metricsBindAddress = api.Listener.Addr().String()
			},
			wantErr: "address already in use",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			api := newStandIn(t)
			options := testOptions(t)
			if tt.change != nil {
				tt.change(t, api, options)
			}
			ended := make(chan error, 1)
			ctx := logr.NewContext(t.Context(), logr.Discard())
			go func() { ended <- runController(ctx, api.config(), options, tt.parts...) }()
			require.ErrorContains(t, waitFor(t, ended), tt.wantErr)
		})
	}
}

func TestRunControllerEndsWhenTheLeaseIsLost(t *testing.T) {
	t.Parallel()
	api := newStandIn(t)
	ended := make(chan error, 1)
	ctx := logr.NewContext(t.Context(), logr.Discard())
	options := testOptions(t)
	go func() { ended <- runController(ctx, api.config(), options) }()
	require.Eventually(t, func() bool { return len(api.leaseHolders()) == 1 }, time.Minute, 20*time.Millisecond)

	api.steal()
	require.EqualError(t, waitFor(t, ended), "running the controller: leader election lost")
	assert.Len(t, api.leaseHolders(), 1, "someone else's Lease is left alone")
}

func TestNewSchemeHasOnlyUsedKinds(t *testing.T) {
	t.Parallel()
	scheme, err := newScheme()
	require.NoError(t, err)
	assert.ElementsMatch(t, []schema.GroupVersion{
		admissionv1.SchemeGroupVersion, corev1.SchemeGroupVersion, batchv1.SchemeGroupVersion, policyv1.SchemeGroupVersion, rbacv1.SchemeGroupVersion,
		mcfgv1.GroupVersion, mcfgv1alpha1.GroupVersion, operatorv1.GroupVersion,
		{Group: "tekton.dev", Version: "v1"},
	}, scheme.PrioritizedVersionsAllGroups())
	assert.True(t, scheme.Recognizes(corev1.SchemeGroupVersion.WithKind("Secret")))
}

func TestAddBuildInfoTwiceIsHarmless(t *testing.T) {
	t.Parallel()
	require.NoError(t, addBuildInfo(nil))
	require.NoError(t, addBuildInfo(nil))
}

func TestCacheKeepsReadFields(t *testing.T) {
	t.Parallel()
	keep := cacheOptions(testOptions(t)).DefaultTransform
	meta := metav1.ObjectMeta{Name: "n", Labels: map[string]string{"a": "b"}, ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "kubelet"}}}
	want := metav1.ObjectMeta{Name: "n", Labels: map[string]string{"a": "b"}}

	pool, err := keep(&mcfgv1.MachineConfigPool{ObjectMeta: meta})
	require.NoError(t, err)
	assert.Equal(t, &mcfgv1.MachineConfigPool{ObjectMeta: want}, pool)

	rendered := &mcfgv1.MachineConfig{ObjectMeta: meta}
	rendered.OwnerReferences = []metav1.OwnerReference{{APIVersion: mcfgv1.GroupVersion.String(), Kind: "MachineConfigPool"}}
	rendered.Spec.Config.Raw = []byte(`{"a":"much"}`)
	kept, err := keep(rendered.DeepCopy())
	require.NoError(t, err)
	trimmed, isConfig := kept.(*mcfgv1.MachineConfig)
	require.True(t, isConfig)
	assert.Empty(t, trimmed.Spec.Config.Raw)
	assert.True(t, machineconfigs.IsSameContent(rendered, trimmed))

	watched := &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}, ObjectMeta: meta}
	watched.UID, watched.ResourceVersion = "u", "1"
	watched.Annotations, watched.Finalizers = map[string]string{"a": strings.Repeat("b", 1000)}, []string{"example.com/a"}
	version, err := keep(watched)
	require.NoError(t, err)
	assert.Equal(t, &metav1.PartialObjectMetadata{TypeMeta: watched.TypeMeta, ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "u", ResourceVersion: "1"}}, version)

	conditions := []corev1.NodeCondition{{Type: corev1.NodeReady}}
	full := &corev1.Node{ObjectMeta: meta, Status: corev1.NodeStatus{Conditions: conditions, Images: []corev1.ContainerImage{{SizeBytes: 1}}}}
	node, err := keep(full)
	require.NoError(t, err)
	assert.Equal(t, &corev1.Node{ObjectMeta: want, Status: corev1.NodeStatus{Conditions: conditions}}, node)
}
