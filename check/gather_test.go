package check

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/test/cluster/clustertest"
	"github.com/layerwright/layerwright/test/install"
)

// TestGatherOnARealAPIServer asks as an administrator and as a user without rights.
func TestGatherOnARealAPIServer(t *testing.T) {
	config := clustertest.ControlPlane(t)
	install.Kinds(t, config)
	namespace := clustertest.Namespace(t)
	clients := kubernetes.NewForConfigOrDie(config)
	_, err := clients.CoreV1().Namespaces().Patch(t.Context(), namespace, "application/merge-patch+json",
		[]byte(`{"metadata":{"labels":{"pod-security.kubernetes.io/enforce":"restricted"}}}`), metav1.PatchOptions{})
	require.NoError(t, err)
	_, err = clients.CoreV1().Nodes().Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "checked"}}, metav1.CreateOptions{})
	require.NoError(t, err)

	states := func(config *rest.Config) map[string]State {
		facts, err := Gather(t.Context(), config, namespace, clock.RealClock{})
		require.NoError(t, err)
		found := map[string]State{}
		for _, finding := range Of(facts) {
			found[finding.Check] = finding.State
		}
		return found
	}
	administrators := states(config)
	assert.Equal(t, Mend, administrators["namespace"], "it enforces restricted")
	assert.Equal(t, Advice, administrators["user-namespaces"], "the node says nothing of them")
	for _, check := range []string{"api-server", "clocks", "rights", "controller", "tekton", "images"} {
		assert.Equal(t, OK, administrators[check], check)
	}
	// The kinds of a test carry no label of deploy/base: they were applied by hand.
	assert.Equal(t, Mend, administrators["kinds"])

	user := rest.CopyConfig(config)
	user.Impersonate = rest.ImpersonationConfig{UserName: "user"}
	withoutRights := states(user)
	assert.Equal(t, Unknown, withoutRights["rights"], "it may be installed already")
	for _, check := range []string{"clocks", "kinds", "namespace", "agent", "user-namespaces", "network-policies", "tekton", "streams", "images"} {
		assert.Equal(t, Unknown, withoutRights[check], check)
	}
}

// TestGatherAnchors: rendered MachineConfigs of pools say whether nodes trust more authorities.
func TestGatherAnchors(t *testing.T) {
	t.Parallel()
	scheme := runtime.NewScheme()
	require.NoError(t, mcfgv1.AddToScheme(scheme))
	var objects []client.Object
	facts := &Facts{Denied: map[string]bool{}}
	for name, path := range map[string]string{"with": "/etc/pki/ca-trust/source/anchors/ours.pem", "without": "/etc/motd", "built-by-none": "/etc/motd"} {
		config, pool := &mcfgv1.MachineConfig{}, &mcfgv1.MachineConfigPool{}
		config.Name, config.Spec.Config.Raw = "rendered-"+name, []byte(`{"storage":{"files":[{"path":"`+path+`"}]}}`)
		pool.Name, pool.Spec.Configuration.Name = name, config.Name
		objects = append(objects, config, pool)
		if name != "built-by-none" {
			facts.Configs = append(facts.Configs, mcfgv1.MachineOSConfig{Spec: mcfgv1.MachineOSConfigSpec{MachineConfigPool: mcfgv1.MachineConfigPoolReference{Name: name}}})
		}
	}
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).Build()
	require.NoError(t, (&reader{client: c, facts: facts}).anchors(t.Context()))
	assert.Equal(t, map[string]bool{"with": true, "without": false}, facts.Anchors)
}

func TestGatherWithoutACluster(t *testing.T) {
	t.Parallel()
	_, err := Gather(t.Context(), &rest.Config{Host: "https://127.0.0.1:1"}, "layerwright", clock.RealClock{})
	assert.ErrorContains(t, err, "asking the API server")
}
