package pools

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/internal/status"
	"github.com/layerwright/layerwright/test/install"
)

// TestStreamsOnAnAPIServer is about what only an API server can tell: whose label one is, and what
// OpenShift's kinds take.
func TestStreamsOnAnAPIServer(t *testing.T) { // it has the API server to itself, so nothing here is parallel
	c := newCluster(t)
	install.Definition(t, c.config, clusterOperatorDefinition(t))
	stream := newStream("rhel9-coreos", "rhel10-coreos")
	stream.Status.AvailableStreams[0].NodeLabels = map[string]string{mcfgv1.LabelNodeOSID: "rhcos", mcfgv1.LabelNodeOSVersionID: "9.6"}
	stream.Status.AvailableStreams[1].NodeLabels = map[string]string{mcfgv1.LabelNodeOSID: "rhcos", mcfgv1.LabelNodeOSVersionID: "10.2"}
	stream.Status.Conditions = []metav1.Condition{{Type: "Ready", Status: "True", Reason: "Succeeded", LastTransitionTime: metav1.NewTime(t0)}}
	c.offer(stream)
	c.create(newPool("worker"), newConfig("00-base", "worker", "/etc/base"), newNode("n1", worker, silent))
	labelled := newNode("n2", worker, silent)
	labelled.Labels[mcfgv1.LabelNodeOSVersionID] = "mine" // as a kubelet registers it
	c.create(labelled)
	c.start(Options{RenderedConfigLimit: 2, ControllerVersion: "v1.2.3"})

	name := c.settled("worker", joining("00-base")).Spec.Configuration.Name
	for _, n := range []string{"n1", "n2"} {
		c.changeNode(n, having(name))
	}
	c.labelled("n1", "rhcos", "9.6")
	c.labelled("n2", "rhcos", "mine")
	c.settled("worker", func(t *assert.CollectT, p *mcfgv1.MachineConfigPool) {
		assert.Equal(t, "rhel9-coreos", p.Status.OSImageStream.Name)
	})
	c.says(metav1.ConditionTrue, "")

	// A person takes one over, and keeps it when the stream's change.
	c.changeNode("n1", func(n *corev1.Node) { n.Labels[mcfgv1.LabelNodeOSID] = "person" })
	c.changeStreams(func(s *mcfgv1.OSImageStreamStatus) {
		s.AvailableStreams[0].NodeLabels[mcfgv1.LabelNodeOSVersionID] = "9.8"
	})
	c.labelled("n1", "person", "9.8")
	c.labelled("n2", "rhcos", "mine")

	c.changeStreams(func(s *mcfgv1.OSImageStreamStatus) { s.AvailableStreams[0].Lifecycle = mcfgv1.StreamDeprecated })
	c.settled("worker", saying("OSStreamDeprecated", "True StreamEndOfLife Stream 'rhel9-coreos' is deprecated and will be removed in a future release. "+
		"Migrate to 'rhel10-coreos' before upgrading."))
	c.says(metav1.ConditionTrue, "")
	c.changeStreams(func(s *mcfgv1.OSImageStreamStatus) { s.AvailableStreams[0].Lifecycle = mcfgv1.StreamEndOfLife })
	c.says(metav1.ConditionFalse, "Cannot upgrade: MachineConfigPool 'worker' is using deprecated stream 'rhel9-coreos' which is not supported in this release. "+
		"Migrate pool to 'rhel10-coreos' before upgrading.")

	c.changePool("worker", func(p *mcfgv1.MachineConfigPool) { p.Spec.OSImageStream.Name = "rhel10-coreos" })
	moved := c.settled("worker", func(t *assert.CollectT, p *mcfgv1.MachineConfigPool) {
		assert.Equal(t, "rhel10-coreos", p.Annotations[mcfgv1.AnnotationRememberedStream])
	})
	c.says(metav1.ConditionFalse, "Cannot upgrade: ")
	c.labelled("n1", "person", "9.8") // not there yet
	for _, n := range []string{"n1", "n2"} {
		c.changeNode(n, having(moved.Spec.Configuration.Name))
	}
	c.labelled("n1", "person", "10.2")
	c.settled("worker", saying("OSStreamDeprecated", "False AsExpected"))
	c.says(metav1.ConditionTrue, "")

	err := func() error {
		p := c.pool("worker")
		p.Spec.OSImageStream.Name = "rhel9-coreos"
		return c.Update(t.Context(), p)
	}()
	require.ErrorContains(t, err, "'rhel9-coreos' is older than 'rhel10-coreos', and nodes cannot go back")

	// Labels go when the stream has none any more, but for those that are someone else's.
	c.changeStreams(func(s *mcfgv1.OSImageStreamStatus) { s.AvailableStreams[1].NodeLabels = nil })
	c.labelled("n1", "person", "")
	c.labelled("n2", "", "mine")
	own := &mcfgv1.OSImageStream{}
	require.NoError(t, c.Get(t.Context(), client.ObjectKey{Name: mcfgv1.OSImageStreamName}, own))
	assert.True(t, status.IsTrue(own.Status.Conditions, "Ready"), "conditions of others stay")
}

// labelled waits until a node has the labels; an empty one is none.
func (c *cluster) labelled(node, id, version string) {
	c.t.Helper()
	c.eventually(func(t *assert.CollectT) {
		n := &corev1.Node{}
		if assert.NoError(t, c.Get(c.t.Context(), client.ObjectKey{Name: node}, n)) {
			assert.Equal(t, []string{id, version}, []string{n.Labels[mcfgv1.LabelNodeOSID], n.Labels[mcfgv1.LabelNodeOSVersionID]})
		}
	})
}

// says waits until OSImageStream and ClusterOperator say whether the cluster can be upgraded.
func (c *cluster) says(want metav1.ConditionStatus, message string) {
	c.t.Helper()
	c.eventually(func(t *assert.CollectT) {
		set := &mcfgv1.OSImageStream{}
		operator := &unstructured.Unstructured{}
		operator.SetGroupVersionKind(clusterOperatorKind)
		if !assert.NoError(t, c.Get(c.t.Context(), client.ObjectKey{Name: mcfgv1.OSImageStreamName}, set)) ||
			!assert.NoError(t, c.Get(c.t.Context(), client.ObjectKey{Name: "layerwright"}, operator)) {
			return
		}
		is := status.Find(set.Status.Conditions, "Upgradeable")
		if assert.NotNil(t, is) {
			assert.Equal(t, want, is.Status)
			assert.Contains(t, is.Message, message)
		}
		conditions, _, err := unstructured.NestedSlice(operator.Object, "status", "conditions")
		require.NoError(t, err)
		got := map[string]string{}
		for _, c := range conditions {
			if c, isMap := c.(map[string]any); isMap {
				got[c["type"].(string)] = c["status"].(string) //nolint:forcetypeassert // the schema says so
			}
		}
		assert.Equal(t, map[string]string{"Available": "True", "Progressing": "False", "Degraded": "False", "Upgradeable": string(want)}, got)
	})
}

// changeStreams edits the status of the OSImageStream, again if someone else was faster.
func (c *cluster) changeStreams(edit func(*mcfgv1.OSImageStreamStatus)) {
	c.t.Helper()
	c.eventually(func(t *assert.CollectT) {
		set := &mcfgv1.OSImageStream{}
		if assert.NoError(t, c.Get(c.t.Context(), client.ObjectKey{Name: mcfgv1.OSImageStreamName}, set)) {
			edit(&set.Status)
			assert.NoError(t, c.Status().Update(c.t.Context(), set))
		}
	})
}

// clusterOperatorDefinition is OpenShift's, as it is published.
func clusterOperatorDefinition(t *testing.T) *apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	out, err := exec.CommandContext(context.WithoutCancel(t.Context()), "go", "list", "-m", "-f", "{{.Dir}}", "github.com/openshift/api").Output()
	require.NoError(t, err)
	files, err := filepath.Glob(filepath.Join(strings.TrimSpace(string(out)), "config/v1/zz_generated.crd-manifests/*_clusteroperators*.crd.yaml"))
	require.NoError(t, err)
	require.NotEmpty(t, files)
	content, err := os.ReadFile(files[0])
	require.NoError(t, err)
	var definition apiextensionsv1.CustomResourceDefinition
	require.NoError(t, yaml.Unmarshal(content, &definition))
	definition.Status = apiextensionsv1.CustomResourceDefinitionStatus{}
	return &definition
}
