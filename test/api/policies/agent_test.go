package policies

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/test/cluster/await"
	"github.com/layerwright/layerwright/test/cluster/clustertest"
)

const (
	unboundMessage         = "a node agent writes with the token of its pod, which is bound to a node"
	foreignMessage         = "the agent of node agent-a changes only this Node and its MachineConfigNode"
	agentKindsMessage      = "node agents change annotations of Nodes and the status of MachineConfigNodes, and neither make nor delete anything"
	agentAnnotationMessage = "a node agent may change only these annotations of Nodes: "
	agentNodesMessage      = "node agents change nothing of Nodes but annotations"
	agentEventsMessage     = "the agent of node agent-a writes events about this Node only, in namespace default"
)

// agents is a control plane with two nodes, whose agents have real tokens and all rights, so that
// only the policy can refuse.
type agents struct {
	config    *rest.Config
	admin     *kubernetes.Clientset
	namespace string
}

func newAgents(t *testing.T) *agents {
	t.Helper()
	config := clustertest.ControlPlane(t)
	installAll(t, config)
	a := &agents{config: config, admin: kubernetes.NewForConfigOrDie(config), namespace: clustertest.Namespace(t)}
	account := metav1.ObjectMeta{Namespace: a.namespace, Name: "layerwright-agent"}
	_, err := a.admin.CoreV1().ServiceAccounts(a.namespace).Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: account}, metav1.CreateOptions{})
	require.NoError(t, err)
	_, err = a.admin.RbacV1().ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "all-rights-" + a.namespace},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: a.namespace, Name: account.Name}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	require.NoError(t, await.ServiceAccount(t.Context(), a.admin, a.namespace, account.Name))
	for _, name := range []string{"agent-a", "agent-b"} {
		_, err := a.admin.CoreV1().Nodes().Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{
			Name: name, Labels: map[string]string{"zone": "a"}, Annotations: map[string]string{mcfgv1.AnnotationDesiredConfig: "rendered-1"},
		}}, metav1.CreateOptions{})
		require.NoError(t, err)
	}
	return a
}

// token is that of the agent's pod on a node, as a kubelet gets it; without a node one that is
// bound to nothing.
func (a *agents) token(t *testing.T, node string) *rest.Config {
	t.Helper()
	request := &authenticationv1.TokenRequest{}
	if node != "" {
		pod, err := a.admin.CoreV1().Pods(a.namespace).Create(t.Context(), &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{GenerateName: "agent-"},
			Spec: corev1.PodSpec{
				NodeName: node, ServiceAccountName: "layerwright-agent",
				Containers: []corev1.Container{{Name: "agent", Image: "agent"}},
			},
		}, metav1.CreateOptions{})
		require.NoError(t, err)
		request.Spec.BoundObjectRef = &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID}
	}
	token, err := a.admin.CoreV1().ServiceAccounts(a.namespace).CreateToken(t.Context(), "layerwright-agent", request, metav1.CreateOptions{})
	require.NoError(t, err)
	config := rest.AnonymousClientConfig(a.config)
	config.BearerToken = token.Status.Token
	return config
}

func TestAgentWrites(t *testing.T) {
	a := newAgents(t)
	own, unbound := a.token(t, "agent-a"), a.token(t, "")
	node := func(ctx context.Context, as *rest.Config, name, patch string, part ...string) error {
		_, err := kubernetes.NewForConfigOrDie(as).CoreV1().Nodes().Patch(ctx, name, types.MergePatchType, []byte(patch), metav1.PatchOptions{DryRun: dryRunOptions}, part...)
		return err
	}
	const done = `{"metadata":{"annotations":{"` + mcfgv1.AnnotationState + `":"Done"}}}`
	eventuallyRefused(t, foreignMessage, func(ctx context.Context) error { return node(ctx, own, "agent-b", done) })

	t.Run("accepts what an agent says of its node", func(t *testing.T) {
		for _, key := range []string{
			mcfgv1.AnnotationCurrentConfig, mcfgv1.AnnotationCurrentImage, mcfgv1.AnnotationStagedImage, mcfgv1.AnnotationState,
			mcfgv1.AnnotationReason, mcfgv1.AnnotationDesiredDrain,
		} {
			require.NoError(t, node(t.Context(), own, "agent-a", `{"metadata":{"annotations":{"`+key+`":"a"}}}`), key)
		}
	})
	t.Run("refuses a token that is bound to no node", func(t *testing.T) {
		require.ErrorContains(t, node(t.Context(), unbound, "agent-a", done), unboundMessage)
	})
	for name, test := range map[string]struct{ patch, message string }{
		"what the controller says": {`{"metadata":{"annotations":{"` + mcfgv1.AnnotationDesiredConfig + `":"rendered-2"}}}`, agentAnnotationMessage},
		"the end of a drain":       {`{"metadata":{"annotations":{"` + mcfgv1.AnnotationLastAppliedDrain + `":"drain-1"}}}`, agentAnnotationMessage},
		"an annotation that goes":  {`{"metadata":{"annotations":null}}`, agentAnnotationMessage},
		"an annotation of others":  {`{"metadata":{"annotations":{"example.com/a":"b"}}}`, agentAnnotationMessage},
		"a label":                  {`{"metadata":{"labels":{"node-role.kubernetes.io/control-plane":""}}}`, agentNodesMessage},
		"a taint":                  {`{"spec":{"taints":[{"key":"a","effect":"NoExecute"}]}}`, agentNodesMessage},
		"a cordon":                 {`{"spec":{"unschedulable":true}}`, agentNodesMessage},
		"a finalizer":              {`{"metadata":{"finalizers":["example.com/a"]}}`, agentNodesMessage},
	} {
		t.Run("refuses "+name, func(t *testing.T) {
			require.ErrorContains(t, node(t.Context(), own, "agent-a", test.patch), test.message)
		})
	}
	t.Run("refuses the status of its node", func(t *testing.T) {
		require.ErrorContains(t, node(t.Context(), own, "agent-a", `{"status":{"capacity":{"cpu":"64"}}}`, "status"), agentKindsMessage)
	})
	t.Run("refuses the end of its node", func(t *testing.T) {
		err := kubernetes.NewForConfigOrDie(own).CoreV1().Nodes().Delete(t.Context(), "agent-a", metav1.DeleteOptions{DryRun: dryRunOptions})
		require.ErrorContains(t, err, agentKindsMessage)
	})
	testReports(t, a, own, unbound)
	testEvents(t, a, own, unbound)
}

// testEvents is about events of both groups, which are the same objects.
func testEvents(t *testing.T, a *agents, own, unbound *rest.Config) {
	t.Helper()
	about := func(kind, name string) *eventsv1.Event {
		return &eventsv1.Event{
			ObjectMeta: metav1.ObjectMeta{Name: "drift-" + name}, EventTime: metav1.NowMicro(), Type: corev1.EventTypeWarning,
			Reason: "ConfigDriftDetected", Action: "Observe", Note: "x", ReportingController: "layerwright-agent", ReportingInstance: "a",
			Regarding: corev1.ObjectReference{APIVersion: "v1", Kind: kind, Name: name},
		}
	}
	create := func(as *rest.Config, namespace string, event *eventsv1.Event) error {
		event.Regarding.Namespace = ""
		if namespace != metav1.NamespaceDefault {
			event.Regarding.Namespace = namespace
		}
		_, err := kubernetes.NewForConfigOrDie(as).EventsV1().Events(namespace).Create(t.Context(), event, metav1.CreateOptions{DryRun: dryRunOptions})
		return err
	}
	t.Run("accepts an event about its node", func(t *testing.T) {
		require.NoError(t, create(own, metav1.NamespaceDefault, about("Node", "agent-a")))
	})
	t.Run("refuses an event about another node", func(t *testing.T) {
		require.ErrorContains(t, create(own, metav1.NamespaceDefault, about("Node", "agent-b")), agentEventsMessage)
	})
	t.Run("refuses an event about a pod", func(t *testing.T) {
		require.ErrorContains(t, create(own, metav1.NamespaceDefault, about("Pod", "agent-a")), agentEventsMessage)
	})
	t.Run("refuses an event in another namespace", func(t *testing.T) {
		require.ErrorContains(t, create(own, a.namespace, about("Node", "agent-a")), agentEventsMessage)
	})
	t.Run("refuses an event by a token without a node", func(t *testing.T) {
		require.ErrorContains(t, create(unbound, metav1.NamespaceDefault, about("Node", "agent-a")), unboundMessage)
	})
	t.Run("refuses an event of the other group", func(t *testing.T) {
		_, err := kubernetes.NewForConfigOrDie(own).CoreV1().Events(metav1.NamespaceDefault).Create(t.Context(), &corev1.Event{
			ObjectMeta: metav1.ObjectMeta{Name: "b"}, InvolvedObject: corev1.ObjectReference{Kind: "Node", Name: "agent-b"},
		}, metav1.CreateOptions{DryRun: dryRunOptions})
		require.ErrorContains(t, err, agentEventsMessage)
	})
	t.Run("refuses changes of events of others", func(t *testing.T) {
		others := about("Node", "agent-b")
		_, err := a.admin.EventsV1().Events(metav1.NamespaceDefault).Create(t.Context(), others, metav1.CreateOptions{})
		require.NoError(t, err)
		events := kubernetes.NewForConfigOrDie(own).EventsV1().Events(metav1.NamespaceDefault)
		_, err = events.Patch(t.Context(), others.Name, types.MergePatchType, []byte(`{"metadata":{"annotations":{"a":"b"}}}`), metav1.PatchOptions{DryRun: dryRunOptions})
		require.ErrorContains(t, err, agentEventsMessage)
		require.ErrorContains(t, events.Delete(t.Context(), others.Name, metav1.DeleteOptions{DryRun: dryRunOptions}), agentEventsMessage)
	})
}

// testReports is about MachineConfigNodes and other kinds of the group.
func testReports(t *testing.T, a *agents, own, unbound *rest.Config) {
	t.Helper()
	reports := mcfgv1.SchemeGroupVersion.WithResource("machineconfignodes")
	admin := dynamic.NewForConfigOrDie(a.config)
	for _, name := range []string{"agent-a", "agent-b"} {
		_, err := admin.Resource(reports).Create(t.Context(), object(t, `
apiVersion: machineconfiguration.openshift.io/v1
kind: MachineConfigNode
metadata: {name: `+name+`}
spec: {node: {name: `+name+`}, pool: {name: worker}, configVersion: {desired: rendered-1}}`), metav1.CreateOptions{})
		require.NoError(t, err)
	}
	const status = `{"status":{"observedGeneration":1}}`
	report := func(as *rest.Config, name, patch string, part ...string) error {
		_, err := dynamic.NewForConfigOrDie(as).Resource(reports).Patch(t.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{DryRun: dryRunOptions}, part...)
		return err
	}
	t.Run("accepts the status of its MachineConfigNode", func(t *testing.T) { require.NoError(t, report(own, "agent-a", status, "status")) })
	t.Run("refuses the status of another node's", func(t *testing.T) {
		require.ErrorContains(t, report(own, "agent-b", status, "status"), foreignMessage)
	})
	t.Run("refuses a status by a token without a node", func(t *testing.T) {
		require.ErrorContains(t, report(unbound, "agent-a", status, "status"), unboundMessage)
	})
	t.Run("refuses what its MachineConfigNode asks for", func(t *testing.T) {
		require.ErrorContains(t, report(own, "agent-a", `{"spec":{"configVersion":{"desired":"rendered-2"}}}`), agentKindsMessage)
	})
	t.Run("refuses MachineConfigs", func(t *testing.T) {
		mc := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": mcfgv1.SchemeGroupVersion.String(), "kind": "MachineConfig", "metadata": map[string]any{"name": "agent-a"}, "spec": map[string]any{},
		}}
		_, err := dynamic.NewForConfigOrDie(own).Resource(mcfgv1.SchemeGroupVersion.WithResource("machineconfigs")).
			Create(t.Context(), mc, metav1.CreateOptions{DryRun: dryRunOptions})
		require.ErrorContains(t, err, agentKindsMessage)
	})
}
