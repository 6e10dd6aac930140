package drain

import (
	"encoding/json"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/nodes/nodestest"
	"github.com/layerwright/layerwright/test/install"
)

// tolerant is what runs on a cordoned node, and ends at once: nothing stands for its kubelet.
func tolerant(node string) corev1.PodSpec {
	return corev1.PodSpec{
		NodeName: node, TerminationGracePeriodSeconds: new(int64(0)), Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}}, Containers: containers(),
	}
}

// podsOn are the pods of a node.
func (c *cluster) podsOn(node string) []corev1.Pod {
	c.t.Helper()
	var list corev1.PodList
	require.NoError(c.t, c.List(c.t.Context(), &list, client.MatchingFields{"spec.nodeName": node}))
	return list.Items
}

func (c *cluster) isAnswered(node, answer string) bool {
	c.t.Helper()
	n := &corev1.Node{}
	require.NoError(c.t, c.Get(c.t.Context(), client.ObjectKey{Name: node}, n))
	return n.Annotations[mcfgv1.AnnotationLastAppliedDrain] == answer
}

// TestDeploymentThatReturnsOnARealControlPlane has pods that tolerate the cordon and are bound to
// the node.
func TestDeploymentThatReturnsOnARealControlPlane(t *testing.T) {
	c := newCluster(t)
	node := c.namespace + "-a"
	c.create(nodestest.New(node, nil), nodestest.New(c.namespace+"-b", nil), reportOf(node))
	app := map[string]string{"app": "stays"}
	_, err := c.clients.AppsV1().Deployments(c.namespace).Create(t.Context(), &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "stays"},
		Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{MatchLabels: app}, Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: app}, Spec: tolerant(node)},
		},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	require.Eventually(t, func() bool { return len(c.podsOn(node)) == 1 }, patience, 50*time.Millisecond)
	first := c.podsOn(node)[0].UID

	c.start()
	c.ask(node, "drain-1")
	c.until(node, answered("drain-1"))
	require.Eventually(t, func() bool { return len(c.podsOn(node)) == 1 }, patience, 50*time.Millisecond)
	assert.NotEqual(t, first, c.podsOn(node)[0].UID)
	made, err := c.clients.CoreV1().Events(c.namespace).List(t.Context(), metav1.ListOptions{FieldSelector: "reason=SuccessfulCreate"})
	require.NoError(t, err)
	assert.LessOrEqual(t, len(made.Items), 2, "it was evicted once")
}

// TestForeignDaemonSetOnARealControlPlane has a DaemonSet that is not Kubernetes' own, such as
// OpenKruise's. The test is its controller.
func TestForeignDaemonSetOnARealControlPlane(t *testing.T) {
	c := newCluster(t)
	node := c.namespace + "-a"
	c.create(nodestest.New(node, nil), nodestest.New(c.namespace+"-b", nil), reportOf(node))
	install.Definition(t, c.config, &apiextensionsv1.CustomResourceDefinition{
		TypeMeta:   metav1.TypeMeta{APIVersion: "apiextensions.k8s.io/v1", Kind: "CustomResourceDefinition"},
		ObjectMeta: metav1.ObjectMeta{Name: "daemonsets.apps.example.com"},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: "apps.example.com", Scope: apiextensionsv1.NamespaceScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Kind: "DaemonSet", ListKind: "DaemonSetList", Plural: "daemonsets", Singular: "daemonset"},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: "v1alpha1", Served: true, Storage: true, Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object"}},
			}},
		},
	})
	owner := &unstructured.Unstructured{}
	owner.SetAPIVersion("apps.example.com/v1alpha1")
	owner.SetKind("DaemonSet")
	owner.SetNamespace(c.namespace)
	owner.SetName("agent")
	c.create(owner)
	reference := metav1.OwnerReference{APIVersion: owner.GetAPIVersion(), Kind: "DaemonSet", Name: "agent", UID: owner.GetUID(), Controller: new(true)}
	pods := c.clients.CoreV1().Pods(c.namespace)
	made := 0
	ensure := func() {
		_, err := pods.Create(t.Context(), &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: "agent-a", OwnerReferences: []metav1.OwnerReference{reference}}, Spec: tolerant(node),
		}, metav1.CreateOptions{})
		if !apierrors.IsAlreadyExists(err) {
			require.NoError(t, err)
			made++
		}
	}
	ensure()

	c.start()
	c.ask(node, "drain-1")
	require.Eventually(t, func() bool {
		ensure()
		return c.isAnswered(node, "drain-1")
	}, patience, 50*time.Millisecond)
	assert.Equal(t, 2, made, "it was evicted once")
	assert.Len(t, c.podsOn(node), 1)
}

// refuseEvictions makes an admission webhook that refuses all evictions of the namespace, as
// KubeVirt's does while it moves a virtual machine away: with 429, a text and no cause.
func (c *cluster) refuseEvictions(text string) {
	c.t.Helper()
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var review admissionv1.AdmissionReview
		if !assert.NoError(c.t, json.NewDecoder(r.Body).Decode(&review)) {
			return
		}
		review.Response = &admissionv1.AdmissionResponse{
			UID: review.Request.UID, Result: &metav1.Status{Code: http.StatusTooManyRequests, Message: text},
		}
		assert.NoError(c.t, json.NewEncoder(w).Encode(review))
	}))
	c.t.Cleanup(server.Close)
	c.create(&admissionregistrationv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: c.namespace},
		Webhooks: []admissionregistrationv1.ValidatingWebhook{{
			Name: "evictions.example.com", AdmissionReviewVersions: []string{"v1"}, SideEffects: new(admissionregistrationv1.SideEffectClassNone),
			ClientConfig: admissionregistrationv1.WebhookClientConfig{
				URL: new(server.URL), CABundle: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}),
			},
			NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: c.namespace}},
			Rules: []admissionregistrationv1.RuleWithOperations{{
				Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
				Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods/eviction"}},
			}},
		}},
	})
}

func TestWebhookThatRefusesForNowOnARealControlPlane(t *testing.T) {
	c := newCluster(t)
	node := c.namespace + "-a"
	c.create(nodestest.New(node, nil), nodestest.New(c.namespace+"-b", nil), reportOf(node))
	const text = "the eviction of virtual machine default/a was triggered"
	c.refuseEvictions(text)
	c.run("virt-launcher-a", node)

	c.start()
	c.ask(node, "drain-1")
	require.Eventually(t, func() bool { return c.drained(node).Reason == mcfgv1.ReasonDrainBlocked }, patience, 50*time.Millisecond)
	assert.Regexp(t, "^pod "+c.namespace+`/virt-launcher-a blocked by the API server \(.*`+text+`\) since \S+Z$`, c.drained(node).Message)

	require.NoError(t, c.clients.CoreV1().Pods(c.namespace).Delete(t.Context(), "virt-launcher-a", metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}))
	require.Eventually(t, func() bool { return c.isAnswered(node, "drain-1") }, 2*blockedInterval, 50*time.Millisecond)
}

// TestControllerThatHasNoOtherNodeOnARealControlPlane has the rights that the controller has to
// look after itself.
func TestControllerThatHasNoOtherNodeOnARealControlPlane(t *testing.T) {
	c := newCluster(t)
	node, other := c.namespace+"-a", c.namespace+"-b"
	c.create(nodestest.New(node, nil), nodestest.New(other, nil, nodestest.Cordoned), reportOf(node))
	self := c.run("controller", node)

	c.start(func(o *Options) { o.OwnNode, o.OwnPod = node, client.ObjectKeyFromObject(self) })
	c.ask(node, "drain-1")
	require.Eventually(t, func() bool { return c.drained(node).Reason == mcfgv1.ReasonDrainBlocked }, patience, 50*time.Millisecond)
	assert.Contains(t, c.drained(node).Message, "/controller blocked by the lack of another node that can run this controller ("+other+" is cordoned")
	c.until(node, func(n *corev1.Node) (bool, string) { return !n.Spec.Unschedulable, "it is cordoned" })

	_, err := c.clients.CoreV1().Nodes().Patch(t.Context(), other, types.MergePatchType, []byte(`{"spec":{"unschedulable":false}}`), metav1.PatchOptions{})
	require.NoError(t, err)
	c.untilEvicted("controller")
	c.until(node, answered("drain-1"))
}
