package clustertest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/layerwright/layerwright/test/cluster/await"
)

func TestMain(m *testing.M) { Main(m) }

func TestControlPlaneRunsControllersAndRBAC(t *testing.T) {
	t.Parallel()
	config := ControlPlane(t)
	clients := kubernetes.NewForConfigOrDie(config)
	namespace := Namespace(t)

	// The controller manager gives every namespace its ServiceAccount ...
	require.NoError(t, await.ServiceAccount(t.Context(), clients, namespace, "default"))
	// ... which may do nothing.
	stranger := rest.CopyConfig(config)
	stranger.Impersonate = rest.ImpersonationConfig{UserName: "system:serviceaccount:" + namespace + ":default"}
	_, err := kubernetes.NewForConfigOrDie(stranger).CoreV1().Secrets(namespace).List(t.Context(), metav1.ListOptions{})
	require.True(t, apierrors.IsForbidden(err), "%v", err)
}

func TestControlPlaneIsShared(t *testing.T) {
	t.Parallel()
	a, b := ControlPlane(t), ControlPlane(t)
	require.Equal(t, a.Host, b.Host)
	require.NotSame(t, a, b, "a test may change its copy")
	require.True(t, strings.HasPrefix(a.Host, "https://127.0.0.1:"), a.Host)
	file, err := clientcmd.BuildConfigFromFlags("", Kubeconfig(t))
	require.NoError(t, err)
	require.Equal(t, a.Host, file.Host)
}

func TestNamespacesDiffer(t *testing.T) {
	t.Parallel()
	a, b := Namespace(t), Namespace(t)
	require.NotEqual(t, a, b)
	_, err := kubernetes.NewForConfigOrDie(ControlPlane(t)).CoreV1().ConfigMaps(a).Create(t.Context(),
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "x"}}, metav1.CreateOptions{})
	require.NoError(t, err)
}

func TestAbandonedFoldersAreRemoved(t *testing.T) {
	abandoned, err := os.MkdirTemp("", dirPrefix) //nolint:usetesting // where and how test programs make theirs
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(abandoned, lockFile), nil, 0o600))
	fresh, err := os.MkdirTemp("", dirPrefix) //nolint:usetesting // where and how test programs make theirs
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(fresh) })
	ControlPlane(t)
	require.NoError(t, removeAbandoned())
	require.NoDirExists(t, abandoned)
	require.DirExists(t, fresh, "one that is just being made stays")
	require.DirExists(t, shared.dir, "one in use stays")
}
