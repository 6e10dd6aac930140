package main

import (
	"context"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/layerwright/layerwright/internal/names"
	"github.com/layerwright/layerwright/test/cluster/await"
	"github.com/layerwright/layerwright/test/cluster/clustertest"
)

// TestProgramHandsItsLeaseOver runs the program twice against a real API
// server: the second instance leads as soon as the first is told to stop.
func TestProgramHandsItsLeaseOver(t *testing.T) {
	t.Parallel()
	namespace := clustertest.Namespace(t)
	clients := kubernetes.NewForConfigOrDie(clustertest.ControlPlane(t))
	args := []string{
		"controller", "--kubeconfig", clustertest.Kubeconfig(t), "--leader-election-namespace", namespace,
		"--metrics-bind-address=127.0.0.1:0", "--health-probe-bind-address=127.0.0.1:0",
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	t.Cleanup(cancel)
	target := await.Target{
		Client: clients.CoordinationV1().RESTClient(), Resource: "leases", Namespace: namespace, Name: names.ControllerLease,
	}
	// holder waits until somebody but the one named holds the lease.
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
