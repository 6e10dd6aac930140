package clustertest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/layerwright/layerwright/test/cluster/await"
)

// TestAwait tests package await, which needs an API server that sends events.
func TestAwait(t *testing.T) {
	t.Parallel()
	clients := kubernetes.NewForConfigOrDie(ControlPlane(t))
	namespace := Namespace(t)
	target := func(name string) await.Target {
		return await.Target{Client: clients.CoreV1().RESTClient(), Resource: "configmaps", Namespace: namespace, Name: name}
	}
	hasData := func(c *corev1.ConfigMap) (bool, string) { return c.Data["done"] == "yes", "done is " + c.Data["done"] }
	create := func(t *testing.T, name string) *corev1.ConfigMap {
		t.Helper()
		object, err := clients.CoreV1().ConfigMaps(namespace).Create(t.Context(),
			&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{"done": "no"}}, metav1.CreateOptions{})
		require.NoError(t, err)
		return object
	}

	t.Run("ends when the object gets there", func(t *testing.T) {
		t.Parallel()
		object := create(t, "gets-there")
		ended := make(chan error, 1)
		go func() { ended <- await.Object(t.Context(), target("gets-there"), &corev1.ConfigMap{}, hasData) }()
		object.Data["done"] = "yes"
		_, err := clients.CoreV1().ConfigMaps(namespace).Update(t.Context(), object, metav1.UpdateOptions{})
		require.NoError(t, err)
		require.NoError(t, <-ended)
	})

	t.Run("says what it saw last when time is up", func(t *testing.T) {
		t.Parallel()
		create(t, "stays")
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err := await.Object(ctx, target("stays"), &corev1.ConfigMap{}, hasData)
		var timeout *await.TimeoutError
		require.ErrorAs(t, err, &timeout)
		require.Equal(t, "configmaps/"+namespace+"/stays", timeout.What)
		require.Equal(t, "done is no", timeout.LastSeen)
	})

	t.Run("says that there is no such object", func(t *testing.T) {
		t.Parallel()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err := await.Object(ctx, target("absent"), &corev1.ConfigMap{}, hasData)
		require.ErrorContains(t, err, "it does not exist")
	})

	t.Run("returns why the context was ended", func(t *testing.T) {
		t.Parallel()
		died := errors.New("etcd died")
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(died)
		require.ErrorIs(t, await.Object(ctx, target("absent"), &corev1.ConfigMap{}, hasData), died)
		require.ErrorIs(t, await.ServerReady(ctx, clients), died)
	})

	t.Run("knows a ready server", func(t *testing.T) {
		t.Parallel()
		require.NoError(t, await.ServerReady(t.Context(), clients))
	})
}

func TestDescribePod(t *testing.T) {
	t.Parallel()
	pod := &corev1.Pod{Status: corev1.PodStatus{
		Phase:      corev1.PodPending,
		Conditions: []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Message: "0/1 nodes are available"}},
		ContainerStatuses: []corev1.ContainerStatus{
			{Name: "a", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ErrImagePull", Message: "not found"}}},
			{Name: "b", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Reason: "Error", ExitCode: 3}}},
		},
	}}
	require.Equal(t, "phase Pending; 0/1 nodes are available; container a waits: ErrImagePull not found; container b ended: Error exit code 3",
		await.DescribePod(pod))
}
