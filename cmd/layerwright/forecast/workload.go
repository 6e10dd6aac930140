package forecast

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/layerwright/layerwright/rollout/drain/eviction"
	"github.com/layerwright/layerwright/view"
)

// Drains reports whether a node is to be drained, so that it matters what runs there.
func (f *Forecast) Drains() bool {
	for _, isDrained := range f.drained {
		if isDrained {
			return true
		}
	}
	return false
}

// Workload is what the nodes that are drained run. It keeps of pods only what issues are made of:
// a cluster may have more than memory has room for.
type Workload struct {
	of      *Forecast
	budgets map[string][]policyv1.PodDisruptionBudget
	owners  map[types.UID]*owner
	// kept are the first pods that budgets keep, by the namespace and names of these.
	kept map[string]*keptPod
}

// owner is the controller of pods, and node where one of them is that leaves.
type owner struct {
	object, node string
	count        int
	isKept       bool
}

type keptPod struct {
	pod, node string
	budgets   []string
	budget    *policyv1.PodDisruptionBudget
}

// Workload begins to look at pods, of which budgets are all there are.
func (f *Forecast) Workload(budgets []policyv1.PodDisruptionBudget) *Workload {
	w := &Workload{of: f, budgets: map[string][]policyv1.PodDisruptionBudget{}, owners: map[types.UID]*owner{}, kept: map[string]*keptPod{}}
	for _, b := range budgets {
		w.budgets[b.Namespace] = append(w.budgets[b.Namespace], b)
	}
	return w
}

// Add looks at a pod, wherever it runs.
func (w *Workload) Add(pod *corev1.Pod) {
	if pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed || !pod.DeletionTimestamp.IsZero() {
		return
	}
	leaves := w.of.drained[pod.Spec.NodeName] && eviction.FateOf(pod, w.of.now, time.Hour) == eviction.Evict
	by := metav1.GetControllerOf(pod)
	var of *owner
	switch {
	case by == nil && leaves:
		w.of.add(view.IssueUnmanagedPod, fmt.Sprintf("Pod %s/%s", pod.Namespace, pod.Name),
			"no controller owns it: the drain of Node "+pod.Spec.NodeName+" deletes it, and nothing makes it again", "move it, or have a Deployment or Job own it")
	case by != nil:
		if of = w.owners[by.UID]; of == nil {
			of = &owner{object: ownerOf(pod, by)}
			w.owners[by.UID] = of
		}
		of.count++
	}
	if !leaves {
		return
	}
	isKept := w.keep(pod)
	if of != nil && by.Kind != "Job" && !isController(pod) { // a Job makes another one, and is done once
		of.node, of.isKept = pod.Spec.NodeName, of.isKept || isKept
	}
}

// isController reports whether a pod is Layerwright's controller. It may be away: nodes go on, and
// so does the rollout when it is back.
func isController(pod *corev1.Pod) bool {
	return pod.Labels["app.kubernetes.io/name"] == "layerwright" && pod.Labels["app.kubernetes.io/component"] == "controller"
}

// ownerOf names what owns a pod. The name of a Deployment's ReplicaSet ends with the hash that its
// pods have as a label.
func ownerOf(pod *corev1.Pod, by *metav1.OwnerReference) string {
	kind, name := by.Kind, by.Name
	if hash := pod.Labels["pod-template-hash"]; kind == "ReplicaSet" && hash != "" {
		if of, isOf := strings.CutSuffix(name, "-"+hash); isOf {
			kind, name = "Deployment", of
		}
	}
	return fmt.Sprintf("%s %s/%s", kind, pod.Namespace, name)
}

// keep reports whether budgets keep a pod, as the API server would have them, and notes the first
// of each.
func (w *Workload) keep(pod *corev1.Pod) bool {
	if pod.Status.Phase == corev1.PodPending {
		return false
	}
	all := w.budgets[pod.Namespace]
	found := eviction.BudgetsOf(pod, all)
	if len(found) == 0 {
		return false
	}
	k := &keptPod{pod: pod.Namespace + "/" + pod.Name, node: pod.Spec.NodeName, budgets: found}
	if len(found) == 1 {
		k.budget = &all[slices.IndexFunc(all, func(b policyv1.PodDisruptionBudget) bool { return b.Name == found[0] })]
		policy := k.budget.Spec.UnhealthyPodEvictionPolicy
		isFree := !isReady(pod) && policy != nil && *policy == policyv1.AlwaysAllow
		if k.budget.Status.DisruptionsAllowed > 0 || isFree {
			return false
		}
	}
	key := pod.Namespace + "/" + strings.Join(found, ", ")
	if w.kept[key] == nil {
		w.kept[key] = k
	}
	return true
}

func isReady(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue })
}

// End adds the issues to the forecast, when all pods were looked at.
func (w *Workload) End() {
	for name, k := range w.kept {
		message, fix := k.says()
		w.of.add(view.IssueBudgetBlocksDrain, "PodDisruptionBudget "+name, message, fix)
	}
	for _, o := range w.owners {
		if o.count == 1 && o.node != "" && !o.isKept {
			w.of.add(view.IssueSingleReplica, o.object, "its only pod is on Node "+o.node+": it is away until the pod runs elsewhere", "run two replicas on different nodes")
		}
	}
	w.of.sort()
}

// says is why a pod is kept, and what to do.
func (k *keptPod) says() (message, fix string) {
	where := fmt.Sprintf("; pod %s on Node %s is one of them", k.pod, k.node)
	if k.budget == nil {
		return "pod " + k.pod + " on Node " + k.node + " is kept by " + eviction.ByBudgets(k.budgets), "change their selectors so that one selects the pod"
	}
	s := &k.budget.Status
	if s.DesiredHealthy >= s.ExpectedPods && s.ExpectedPods > 0 {
		return fmt.Sprintf("it can never let a pod leave: %d of %d pods must be healthy%s", s.DesiredHealthy, s.ExpectedPods, where),
			"run more replicas, or lower minAvailable (or raise maxUnavailable) of the budget"
	}
	return fmt.Sprintf("it lets no pod leave now: %d of %d pods are healthy, and %d must be%s", s.CurrentHealthy, s.ExpectedPods, s.DesiredHealthy, where),
		"find out why its pods are not Ready"
}
