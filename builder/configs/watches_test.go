package configs

import (
	"testing"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/builder/watches"
	"github.com/layerwright/layerwright/internal/apitest"
)

// TestWhichConfigsANodeConcerns asks for the pools that select a node.
func TestWhichConfigsANodeConcerns(t *testing.T) {
	t.Parallel()
	const workerRole = "node-role.kubernetes.io/worker"
	clients := fake.NewClientBuilder().WithScheme(apitest.Scheme(t))
	for pool, selector := range map[string]*metav1.LabelSelector{"worker": {MatchLabels: map[string]string{workerRole: ""}}, "other": nil} {
		p := &mcfgv1.MachineConfigPool{ObjectMeta: metav1.ObjectMeta{Name: pool}, Spec: mcfgv1.MachineConfigPoolSpec{NodeSelector: selector}}
		config := &mcfgv1.MachineOSConfig{ObjectMeta: metav1.ObjectMeta{Name: pool}}
		config.Spec.MachineConfigPool.Name = pool
		clients = clients.WithObjects(p, config)
	}
	r := New(Options{Client: clients.Build()})
	var asked []string
	for _, labels := range []map[string]string{{workerRole: ""}, {"else": ""}} {
		for _, r := range r.configsOfNode(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: labels}}) {
			asked = append(asked, r.Name)
		}
	}
	assert.Equal(t, []string{"worker"}, asked)
}

func TestAMachineOSConfigIsNotLookedAtForever(t *testing.T) {
	t.Parallel()
	assert.Positive(t, watches.Options(maxConcurrent, reconcileTimeout).ReconciliationTimeout)
}

func TestMirrorsConcernEachConfig(t *testing.T) {
	t.Parallel()
	one, other := &mcfgv1.MachineOSConfig{ObjectMeta: metav1.ObjectMeta{Name: "one"}}, &mcfgv1.MachineOSConfig{ObjectMeta: metav1.ObjectMeta{Name: "other"}}
	r := New(Options{Namespace: "os", Client: fake.NewClientBuilder().WithScheme(apitest.Scheme(t)).WithObjects(one, other).Build()})
	mirrors := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "os", Name: "registry-mirrors"}}
	assert.Len(t, r.configsOfConfigMap(t.Context(), mirrors), 2)
	assert.Len(t, r.allConfigs(t.Context(), mirrors), 2, "whatever the object is")
}
