//go:build e2e

package e2e

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/transport/spdy"

	"github.com/layerwright/layerwright/test/cluster/await"
	"github.com/layerwright/layerwright/test/cluster/stack"
)

const (
	metricsPort = 8443
	leaseName   = "layerwright-controller"
	selector    = "app.kubernetes.io/name=layerwright,app.kubernetes.io/component=controller"
)

// within is the deadline of a wait: far more than any takes, also on a slow disk.
func within(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// controllerPod returns the running controller's pod.
func controllerPod(t *testing.T) *corev1.Pod {
	t.Helper()
	return controllerPodAfter(t, "")
}

// controllerPodAfter waits until the controller's pod is ready and another than the one before. The
// Deployment may be Available for a moment after its pod has gone.
func controllerPodAfter(t *testing.T, before types.UID) *corev1.Pod {
	t.Helper()
	var pod *corev1.Pod
	require.EventuallyWithT(t, func(collect *assert.CollectT) {
		pods, err := clients(t).CoreV1().Pods(stack.Namespace).List(t.Context(), metav1.ListOptions{LabelSelector: selector})
		require.NoError(collect, err)
		ready := slices.DeleteFunc(pods.Items, func(p corev1.Pod) bool {
			return p.UID == before || p.DeletionTimestamp != nil || !slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
				return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
			})
		})
		require.Len(collect, ready, 1)
		pod = &ready[0]
	}, buildPatience, buildTick)
	return pod
}

// newControllerPod replaces the controller's pod, and gives the new one: what the old one did
// before is still in its memory.
func newControllerPod(t *testing.T) *corev1.Pod {
	t.Helper()
	old := controllerPod(t)
	require.NoError(t, clients(t).CoreV1().Pods(old.Namespace).Delete(t.Context(), old.Name, metav1.DeleteOptions{}))
	return controllerPodAfter(t, old.UID)
}

func TestControllerRunsUnderTheRestrictedProfile(t *testing.T) {
	pod := controllerPod(t)
	// A namespace of the level restricted takes it as it is.
	_, err := clients(t).CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: "e2e-restricted", Labels: map[string]string{"pod-security.kubernetes.io/enforce": "restricted"},
	}}, metav1.CreateOptions{})
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, clients(t).CoreV1().Namespaces().Delete(context.WithoutCancel(t.Context()), "e2e-restricted", metav1.DeleteOptions{}))
	})
	again := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "controller"}, Spec: *pod.Spec.DeepCopy()}
	again.Spec.NodeName, again.Spec.ServiceAccountName, again.Spec.DeprecatedServiceAccount, again.Spec.PriorityClassName = "", "default", "", ""
	again.Spec.Priority, again.Spec.PreemptionPolicy = nil, nil
	require.NoError(t, await.ServiceAccount(within(t), clients(t), "e2e-restricted", "default"))
	_, err = clients(t).CoreV1().Pods("e2e-restricted").Create(t.Context(), again, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	require.NoError(t, err)
	require.Zero(t, pod.Status.ContainerStatuses[0].RestartCount)
	require.True(t, strings.HasPrefix(pod.Spec.Containers[0].Image, "layerwright.test/layerwright:dev-"), pod.Spec.Containers[0].Image)
}

func TestControllerHandsItsLeaseOver(t *testing.T) {
	c := clients(t)
	old := controllerPod(t)
	require.NoError(t, holds(t, old.Name))
	require.NoError(t, c.CoreV1().Pods(stack.Namespace).Delete(t.Context(), old.Name, metav1.DeleteOptions{}))
	err := await.Object(within(t), await.Target{Client: c.CoordinationV1().RESTClient(), Resource: "leases", Namespace: stack.Namespace, Name: leaseName}, &coordinationv1.Lease{},
		func(lease *coordinationv1.Lease) (bool, string) {
			holder := ""
			if lease.Spec.HolderIdentity != nil {
				holder = *lease.Spec.HolderIdentity
			}
			return holder != "" && !strings.HasPrefix(holder, old.Name), "held by " + holder
		})
	require.NoError(t, err)
	require.NotEqual(t, old.Name, controllerPod(t).Name)
}

// holds waits until a pod holds the lease.
func holds(t *testing.T, pod string) error {
	t.Helper()
	return await.Object(within(t), await.Target{Client: clients(t).CoordinationV1().RESTClient(), Resource: "leases", Namespace: stack.Namespace, Name: leaseName}, &coordinationv1.Lease{},
		func(lease *coordinationv1.Lease) (bool, string) {
			if lease.Spec.HolderIdentity == nil {
				return false, "held by no one"
			}
			return strings.HasPrefix(*lease.Spec.HolderIdentity, pod), "held by " + *lease.Spec.HolderIdentity
		})
}

func TestMetricsNeedRights(t *testing.T) {
	pod := controllerPod(t)
	require.Equal(t, http.StatusUnauthorized, scrape(t, pod, "").status)
	require.Equal(t, http.StatusForbidden, scrape(t, pod, token(t, "e2e-stranger")).status)

	c := clients(t)
	_, err := c.RbacV1().ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "e2e-scraper"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "layerwright-metrics-reader"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: "e2e-scraper", Namespace: "default"}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, c.RbacV1().ClusterRoleBindings().Delete(context.WithoutCancel(t.Context()), "e2e-scraper", metav1.DeleteOptions{}))
	})
	metrics := scrape(t, pod, token(t, "e2e-scraper"))
	require.Equal(t, http.StatusOK, metrics.status)
	require.InDelta(t, 1, metrics.value(t, "layerwright_build_info"), 0)
	require.Positive(t, metrics.value(t, "process_resident_memory_bytes"))
}

// token makes a ServiceAccount and a token for it.
func token(t *testing.T, name string) string {
	t.Helper()
	accounts := clients(t).CoreV1().ServiceAccounts("default")
	_, err := accounts.Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, accounts.Delete(context.WithoutCancel(t.Context()), name, metav1.DeleteOptions{}))
	})
	request, err := accounts.CreateToken(t.Context(), name, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	require.NoError(t, err)
	return request.Status.Token
}

// forward makes a port of a pod reachable on loopback.
func forward(t *testing.T, pod *corev1.Pod, port int) (address string) {
	t.Helper()
	roundTripper, upgrader, err := spdy.RoundTripperFor(config(t))
	require.NoError(t, err)
	url := clients(t).CoreV1().RESTClient().Post().Resource("pods").Namespace(pod.Namespace).Name(pod.Name).SubResource("portforward").URL()
	dialer := spdy.NewDialer(upgrader, &http.Client{Transport: roundTripper}, http.MethodPost, url)
	stop, ready := make(chan struct{}), make(chan struct{})
	forwarder, err := portforward.NewOnAddresses(dialer, []string{"127.0.0.1"}, []string{fmt.Sprintf("0:%d", port)}, stop, ready, io.Discard, io.Discard)
	require.NoError(t, err)
	ended := make(chan error, 1)
	go func() { ended <- forwarder.ForwardPorts() }()
	t.Cleanup(func() { close(stop); <-ended })
	select {
	case <-ready:
	case err := <-ended:
		require.NoError(t, err)
	}
	ports, err := forwarder.GetPorts()
	require.NoError(t, err)
	return fmt.Sprintf("127.0.0.1:%d", ports[0].Local)
}

type scraped struct {
	status int
	body   string
}

// scrape asks a pod for its metrics, by a forwarding of its own: one ends with the first connection
// that is reset.
func scrape(t *testing.T, pod *corev1.Pod, bearer string) scraped {
	t.Helper()
	address := forward(t, pod, metricsPort)
	// Its certificate is its own; the test is about who may read.
	client := &http.Client{Transport: &http.Transport{
		TLSClientConfig:   &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS12}, //nolint:gosec // see above
		DisableKeepAlives: true,
	}}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+address+"/metrics", http.NoBody)
	require.NoError(t, err)
	if bearer != "" {
		request.Header.Set("Authorization", "Bearer "+bearer)
	}
	response, err := client.Do(request)
	require.NoError(t, err)
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	return scraped{status: response.StatusCode, body: string(body)}
}

// value returns the first sample of a metric.
func (s scraped) value(t *testing.T, metric string) float64 {
	t.Helper()
	lines := bufio.NewScanner(strings.NewReader(s.body))
	for lines.Scan() {
		if rest, ok := strings.CutPrefix(lines.Text(), metric); ok && (rest[0] == '{' || rest[0] == ' ') {
			value, err := strconv.ParseFloat(rest[strings.LastIndexByte(rest, ' ')+1:], 64)
			require.NoError(t, err)
			return value
		}
	}
	require.Fail(t, "no such metric", metric)
	return 0
}
