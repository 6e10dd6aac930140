package eviction_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/layerwright/layerwright/rollout/drain/eviction"
)

var start = time.Date(2026, 11, 23, 19, 0, 0, 0, time.UTC)

func ownedBy(kind, apiVersion string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.OwnerReferences = []metav1.OwnerReference{{Kind: kind, APIVersion: apiVersion, Name: "owner", UID: "1", Controller: new(true)}}
	}
}

func endingAt(at time.Time) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.DeletionTimestamp = new(metav1.NewTime(at)) }
}

func TestFateOf(t *testing.T) {
	t.Parallel()
	ofDaemonSet := ownedBy("DaemonSet", appsv1.SchemeGroupVersion.String())
	for name, test := range map[string]struct {
		changes []func(*corev1.Pod)
		want    eviction.Fate
	}{
		"evicts a pod of a ReplicaSet":         {[]func(*corev1.Pod){ownedBy("ReplicaSet", "apps/v1")}, eviction.Evict},
		"evicts a pod of nothing":              {nil, eviction.Evict},
		"evicts a pod that has ended":          {[]func(*corev1.Pod){func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }}, eviction.Evict},
		"leaves a pod of a DaemonSet":          {[]func(*corev1.Pod){ofDaemonSet}, eviction.Stay},
		"leaves a DaemonSet's pod that ends":   {[]func(*corev1.Pod){ofDaemonSet, endingAt(start)}, eviction.Stay},
		"evicts a DaemonSet's pod that failed": {[]func(*corev1.Pod){ofDaemonSet, func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }}, eviction.Evict},
		"knows other kinds named DaemonSet":    {[]func(*corev1.Pod){ownedBy("DaemonSet", "apps.kruise.io/v1alpha1")}, eviction.Evict},
		"leaves a mirror pod": {[]func(*corev1.Pod){func(p *corev1.Pod) {
			p.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "x"}
		}}, eviction.Stay},
		"waits for a pod that ends":            {[]func(*corev1.Pod){endingAt(start.Add(time.Hour))}, eviction.Wait},
		"waits a while after the grace period": {[]func(*corev1.Pod){endingAt(start.Add(-time.Minute + time.Second))}, eviction.Wait},
		"sees a pod that does not end":         {[]func(*corev1.Pod){endingAt(start.Add(-time.Minute))}, eviction.Stuck},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := &corev1.Pod{}
			for _, change := range test.changes {
				change(p)
			}
			assert.Equal(t, test.want, eviction.FateOf(p, start, time.Minute))
		})
	}
}

func TestBudgetsOf(t *testing.T) {
	t.Parallel()
	budget := func(namespace, name string, selector *metav1.LabelSelector) policyv1.PodDisruptionBudget {
		return policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: policyv1.PodDisruptionBudgetSpec{Selector: selector}}
	}
	db := &metav1.LabelSelector{MatchLabels: map[string]string{"app": "db"}}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Labels: map[string]string{"app": "db"}}}
	names := eviction.BudgetsOf(pod, []policyv1.PodDisruptionBudget{
		budget("ns", "of-all", &metav1.LabelSelector{}), budget("ns", "db", db), budget("ns", "of-none", nil),
		budget("other", "db", db), budget("ns", "web", &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}),
	})
	require.Equal(t, []string{"db", "of-all"}, names)
	assert.Equal(t, "budget db", eviction.ByBudgets(names[:1]))
	assert.Contains(t, eviction.ByBudgets(names), "budgets db, of-all (")
	assert.Equal(t, "a budget", eviction.ByBudgets(nil))
}
