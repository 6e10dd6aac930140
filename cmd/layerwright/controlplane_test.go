package main

import (
	"context"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/internal/names"
	"github.com/layerwright/layerwright/internal/version"
	"github.com/layerwright/layerwright/test/cluster/await"
	"github.com/layerwright/layerwright/test/cluster/clustertest"
	"github.com/layerwright/layerwright/test/install"
)

// controlPlane is an API server with Layerwright's kinds, and a namespace on it for the Lease.
func controlPlane(t *testing.T) (clients kubernetes.Interface, namespace string) {
	t.Helper()
	config := clustertest.ControlPlane(t)
	install.Kinds(t, config)
	return kubernetes.NewForConfigOrDie(config), clustertest.Namespace(t)
}

func TestSignalReleasesTheLease(t *testing.T) {
	t.Parallel()
	for name, signal := range map[string]os.Signal{"SIGTERM": syscall.SIGTERM, "SIGINT": os.Interrupt} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			clients, namespace := controlPlane(t)
			health := ownAddress(t)
			cmd, stderr := program(t, []string{"POD_NAMESPACE=" + namespace}, "controller", "--kubeconfig="+clustertest.Kubeconfig(t),
				"--metrics-bind-address=0", "--health-probe-bind-address="+health, "--graceful-shutdown-timeout=10s")
			require.NoError(t, cmd.Start())
			eventuallyStatus(t, "http://"+health+"/readyz", 200)
			holder := func() string {
				lease, err := clients.CoordinationV1().Leases(namespace).Get(t.Context(), names.ControllerLease, metav1.GetOptions{})
				if err != nil {
					return ""
				}
				return ptr.Deref(lease.Spec.HolderIdentity, "")
			}
			require.Eventually(t, func() bool { return holder() != "" }, time.Minute, 20*time.Millisecond)
			// The program knows of its Lease a moment later, and then tells by an event.
			require.Eventually(t, func() bool {
				told, err := clients.CoreV1().Events(namespace).List(t.Context(), metav1.ListOptions{FieldSelector: "reason=LeaderElection"})
				return err == nil && len(told.Items) > 0
			}, time.Minute, 20*time.Millisecond)

			require.NoError(t, cmd.Process.Signal(signal))
			require.Equal(t, 0, exitCodeOf(t, cmd.Wait()), stderr.String())

			assert.Empty(t, holder(), "held, then given back")
			assertLogLines(t, stderr.String(), "Starting Layerwright", "Stopped")
			assert.NotRegexp(t, `goroutine \d+ \[`, stderr.String(), "no stack trace")
		})
	}
}

// TestProgramRendersPools runs the program as it ships on a pool, and looks at what becomes of it.
// It is not parallel: the programs of other tests, with leases of their own, would render the pool
// too.
func TestProgramRendersPools(t *testing.T) {
	_, namespace := controlPlane(t)
	scheme, err := newScheme()
	require.NoError(t, err)
	c, err := client.New(clustertest.ControlPlane(t), client.Options{Scheme: scheme})
	require.NoError(t, err)
	pool := &mcfgv1.MachineConfigPool{ObjectMeta: metav1.ObjectMeta{Name: "program"}}
	require.NoError(t, c.Create(t.Context(), pool))
	t.Cleanup(func() { require.NoError(t, c.Delete(context.WithoutCancel(t.Context()), pool)) })

	cmd, stderr := program(t, nil, "controller", "--kubeconfig", clustertest.Kubeconfig(t), "--leader-election-namespace", namespace,
		"--metrics-bind-address=0", "--health-probe-bind-address=0", "--rendered-config-limit=3", "--release-version=1.0")
	require.NoError(t, cmd.Start())
	require.EventuallyWithT(t, func(collect *assert.CollectT) {
		if assert.NoError(collect, c.Get(t.Context(), client.ObjectKeyFromObject(pool), pool)) {
			assert.NotEmpty(collect, pool.Status.Configuration.Name, stderr.String())
		}
	}, 2*time.Minute, 50*time.Millisecond)
	mc := &mcfgv1.MachineConfig{}
	require.NoError(t, c.Get(t.Context(), client.ObjectKey{Name: pool.Status.Configuration.Name}, mc))
	assert.Equal(t, "1.0", mc.Annotations[mcfgv1.AnnotationReleaseImageVersion])
	assert.Equal(t, version.Current().Version, mc.Annotations[mcfgv1.AnnotationGeneratedByControllerVersion])

	require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
	require.NoError(t, cmd.Wait())
}

// TestProgramHandsItsLeaseOver runs the program twice against a real API
// server: the second instance leads as soon as the first is told to stop.
func TestProgramHandsItsLeaseOver(t *testing.T) {
	t.Parallel()
	clients, namespace := controlPlane(t)
	args := []string{
		"controller", "--kubeconfig", clustertest.Kubeconfig(t), "--leader-election-namespace", namespace,
		"--metrics-bind-address=127.0.0.1:0", "--health-probe-bind-address=127.0.0.1:0",
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	t.Cleanup(cancel)
	target := await.Target{
		Client: clients.CoordinationV1().RESTClient(), Resource: "leases", Namespace: namespace, Name: names.ControllerLease,
	}
	// holder waits until someone but the one named holds the lease.
	holder := func(but string) (now string) {
		require.NoError(t, await.Object(ctx, target, &coordinationv1.Lease{}, func(lease *coordinationv1.Lease) (bool, string) {
			if lease.Spec.HolderIdentity != nil {
				now = *lease.Spec.HolderIdentity
			}
			return now != "" && now != but, "held by " + now
		}))
		return now
	}

	first, firstLog := program(t, nil, args...)
	require.NoError(t, first.Start())
	before := holder("")
	second, _ := program(t, nil, args...)
	require.NoError(t, second.Start())
	require.NoError(t, first.Process.Signal(syscall.SIGTERM))
	require.NoError(t, first.Wait(), firstLog.String())
	require.NotEqual(t, before, holder(before))
	require.Contains(t, firstLog.String(), `"msg":"Stopped"`)

	require.NoError(t, second.Process.Signal(syscall.SIGTERM))
	require.NoError(t, second.Wait())
}
