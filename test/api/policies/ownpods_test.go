package policies

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/test/cluster/await"
	"github.com/layerwright/layerwright/test/cluster/clustertest"
)

const ownPodsMessage = "you need the right to create machineconfigs.machineconfiguration.openshift.io"

// ownPods is a namespace with the accounts of Layerwright.
type ownPods struct {
	t      *testing.T
	config *rest.Config
	admin  *kubernetes.Clientset
}

func newOwnPods(t *testing.T) *ownPods {
	t.Helper()
	o := &ownPods{t: t, config: clustertest.ControlPlane(t)}
	installAll(t, o.config)
	ensureNamespace(t, dynamic.NewForConfigOrDie(o.config), ourNamespace)
	o.admin = kubernetes.NewForConfigOrDie(o.config)
	for _, name := range []string{"layerwright-agent", "layerwright-controller", "layerwright-build", "someone"} {
		_, err := o.admin.CoreV1().ServiceAccounts(ourNamespace).Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		require.NoError(t, err)
		require.NoError(t, await.ServiceAccount(t.Context(), o.admin, ourNamespace, name))
	}
	return o
}

func podOf(account string) corev1.PodSpec {
	return corev1.PodSpec{
		ServiceAccountName: account, AutomountServiceAccountToken: new(false),
		Containers: []corev1.Container{{
			Name: "c", Image: "registry.example.com/agent:1",
			Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("1Mi")}},
		}},
	}
}

func templateOf(account string) (*metav1.LabelSelector, corev1.PodTemplateSpec) {
	labels := map[string]string{"of": account}
	return &metav1.LabelSelector{MatchLabels: labels}, corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: podOf(account)}
}

func ownedBy(kind string) metav1.ObjectMeta {
	return metav1.ObjectMeta{GenerateName: "layerwright-agent-", OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: kind, Name: "owner", UID: "1", Controller: new(true)}}}
}

func (o *ownPods) createPod(by *kubernetes.Clientset, account string, meta metav1.ObjectMeta) error {
	_, err := by.CoreV1().Pods(ourNamespace).Create(o.t.Context(), &corev1.Pod{ObjectMeta: meta, Spec: podOf(account)}, metav1.CreateOptions{DryRun: dryRunOptions})
	return err
}

func (o *ownPods) createReplicaSet(by *kubernetes.Clientset, meta metav1.ObjectMeta) error {
	set := &appsv1.ReplicaSet{ObjectMeta: meta}
	set.Spec.Selector, set.Spec.Template = templateOf("layerwright-controller")
	_, err := by.AppsV1().ReplicaSets(ourNamespace).Create(o.t.Context(), set, metav1.CreateOptions{DryRun: dryRunOptions})
	return err
}

func TestOwnPods(t *testing.T) {
	o := newOwnPods(t)
	workloads := rule("apps", "*", "get", "create", "update", "patch")
	pods := rule("", "*", "get", "create", "update", "patch")
	editor := userWith(t, o.config, "edits-the-namespace", workloads, pods)
	nodeAdmin := userWith(t, o.config, "administers-nodes", workloads, pods, rule(mcfgv1.GroupName, "machineconfigs", "create"))
	ofKubernetes := func(name string) *kubernetes.Clientset {
		return impersonate(o.config, "system:serviceaccount:kube-system:"+name+"-controller")
	}
	refused := metav1.ObjectMeta{GenerateName: "any-"}
	eventuallyRefused(t, ownPodsMessage, func(context.Context) error { return o.createPod(editor, "layerwright-agent", refused) })

	t.Run("pods are made by Kubernetes' controllers", func(t *testing.T) {
		require.ErrorContains(t, o.createPod(editor, "layerwright-controller", refused), ownPodsMessage)
		require.ErrorContains(t, o.createPod(editor, "layerwright-agent", ownedBy("DaemonSet")), ownPodsMessage, "anyone can write that")
		require.NoError(t, o.createPod(editor, "someone", refused))
		require.NoError(t, o.createPod(ofKubernetes("daemon-set"), "layerwright-agent", ownedBy("DaemonSet")))
		require.NoError(t, o.createPod(ofKubernetes("replicaset"), "layerwright-controller", ownedBy("ReplicaSet")))
		for _, controller := range []string{"job", "statefulset"} {
			require.ErrorContains(t, o.createPod(ofKubernetes(controller), "layerwright-agent", ownedBy("Job")), ownPodsMessage, controller)
		}
		all := userWith(t, o.config, "system:serviceaccount:kube-system:replicaset-controller", pods, rule(mcfgv1.GroupName, "machineconfigs", "create"))
		require.ErrorContains(t, o.createPod(all, "layerwright-agent", ownedBy("Job")), ownPodsMessage, "where all share one account with all rights")
		require.NoError(t, o.createPod(all, "layerwright-agent", ownedBy("DaemonSet")))
		require.ErrorContains(t, o.createReplicaSet(editor, ownedBy("Deployment")), ownPodsMessage)
		require.NoError(t, o.createReplicaSet(ofKubernetes("deployment"), ownedBy("Deployment")))
	})
	t.Run("workloads are changed by who may write MachineConfigs", func(t *testing.T) { o.testWorkloads(t, editor, nodeAdmin) })
	for name, account := range map[string]string{
		"layerwright-agent-a": "layerwright-agent", "build-worker-0-a": "layerwright-build", "layerwright-check-a-1": "layerwright-build", "run-a": "layerwright-build",
		"verify-worker-0-a": "someone", "health-node-0-a": "someone",
	} {
		t.Run("running pods stay as they are: "+name, func(t *testing.T) { o.testRunning(t, editor, name, account) })
	}
	t.Run("Tekton ends sidecars of builds", func(t *testing.T) {
		tekton := userWith(t, o.config, "system:serviceaccount:tekton-pipelines:tekton-pipelines-controller", pods)
		require.NoError(t, o.patchPod(tekton, "run-a", otherImage))
		require.ErrorContains(t, o.patchPod(tekton, "layerwright-agent-a", otherImage), ownPodsMessage)
	})
}

func (o *ownPods) testWorkloads(t *testing.T, editor, nodeAdmin *kubernetes.Clientset) {
	t.Helper()
	set := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Name: "layerwright-agent"}}
	set.Spec.Selector, set.Spec.Template = templateOf("layerwright-agent")
	_, err := editor.AppsV1().DaemonSets(ourNamespace).Create(t.Context(), set, metav1.CreateOptions{})
	require.ErrorContains(t, err, ownPodsMessage)
	_, err = nodeAdmin.AppsV1().DaemonSets(ourNamespace).Create(t.Context(), set, metav1.CreateOptions{})
	require.NoError(t, err)
	patch := func(by *kubernetes.Clientset, text string) error {
		_, err := by.AppsV1().DaemonSets(ourNamespace).Patch(t.Context(), set.Name, types.StrategicMergePatchType, []byte(text), metav1.PatchOptions{DryRun: dryRunOptions})
		return err
	}
	const image = `{"spec":{"template":{"spec":{"containers":[{"name":"c","image":"registry.example.com/agent:2"}]}}}}`
	require.ErrorContains(t, patch(editor, image), ownPodsMessage)
	require.ErrorContains(t, patch(editor, `{"spec":{"template":{"spec":{"serviceAccountName":"someone","serviceAccount":"someone"}}}}`), ownPodsMessage)
	require.NoError(t, patch(nodeAdmin, image), "a rolling upgrade")
	require.NoError(t, patch(editor, `{"metadata":{"labels":{"a":"b"}}}`))

	deployment := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "mine"}}
	deployment.Spec.Selector, deployment.Spec.Template = templateOf("layerwright-controller")
	_, err = editor.AppsV1().Deployments(ourNamespace).Create(t.Context(), deployment, metav1.CreateOptions{DryRun: dryRunOptions})
	require.ErrorContains(t, err, ownPodsMessage)
	deployment.Spec.Selector, deployment.Spec.Template = templateOf("someone")
	_, err = editor.AppsV1().Deployments(ourNamespace).Create(t.Context(), deployment, metav1.CreateOptions{DryRun: dryRunOptions})
	require.NoError(t, err)
}

const otherImage = `{"spec":{"containers":[{"name":"c","image":"registry.example.com/root:1"}]}}`

func (o *ownPods) patchPod(by *kubernetes.Clientset, name, text string, part ...string) error {
	_, err := by.CoreV1().Pods(ourNamespace).Patch(o.t.Context(), name, types.StrategicMergePatchType, []byte(text), metav1.PatchOptions{DryRun: dryRunOptions}, part...)
	return err
}

func (o *ownPods) testRunning(t *testing.T, editor *kubernetes.Clientset, name, account string) {
	t.Helper()
	_, err := o.admin.CoreV1().Pods(ourNamespace).Create(t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: podOf(account)}, metav1.CreateOptions{})
	require.NoError(t, err)
	require.ErrorContains(t, o.patchPod(editor, name, otherImage), ownPodsMessage)
	require.ErrorContains(t, o.patchPod(editor, name, `{"spec":{"ephemeralContainers":[{"name":"debug","image":"registry.example.com/root:1"}]}}`, "ephemeralcontainers"), ownPodsMessage)
	require.ErrorContains(t, o.patchPod(editor, name, `{"spec":{"containers":[{"name":"c","resources":{"requests":{"memory":"2Mi"}}}]}}`, "resize"), ownPodsMessage)
	require.NoError(t, o.patchPod(editor, name, `{"metadata":{"annotations":{"a":"b"}}}`))
	if name == "run-a" {
		return // of a command only the name is seen
	}
	for _, part := range []string{"exec", "attach"} {
		err := editor.CoreV1().RESTClient().Post().Namespace(ourNamespace).Resource("pods").Name(name).SubResource(part).
			Param("command", "sh").Param("container", "c").Param("stdout", "true").Do(t.Context()).Error()
		require.ErrorContains(t, err, ownPodsMessage, part)
	}
}
