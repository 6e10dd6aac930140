package drain

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/nodes/nodestest"
)

var start = time.Date(2026, 11, 23, 19, 0, 0, 0, time.UTC)

func asking(desired, last string) func(*corev1.Node) {
	return func(n *corev1.Node) {
		n.Annotations[mcfgv1.AnnotationDesiredDrain] = desired
		if last != "" {
			n.Annotations[mcfgv1.AnnotationLastAppliedDrain] = last
		}
	}
}

func TestNext(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		changes []func(*corev1.Node)
		isAlone bool
		want    step
	}{
		"does nothing for a Node without an agent":   {want: stepNone},
		"does nothing twice":                         {changes: []func(*corev1.Node){asking("drain-1", "drain-1")}, want: stepNone},
		"drains":                                     {changes: []func(*corev1.Node){asking("drain-1", "uncordon-0")}, want: stepDrain},
		"drains a node that is cordoned":             {changes: []func(*corev1.Node){asking("drain-1", ""), nodestest.Cordoned}, want: stepDrain},
		"skips the drain of the only node":           {changes: []func(*corev1.Node){asking("drain-1", "")}, isAlone: true, want: stepSkip},
		"cordons":                                    {changes: []func(*corev1.Node){asking("cordon-1", "")}, want: stepCordon},
		"cordons the only node":                      {changes: []func(*corev1.Node){asking("cordon-1", "")}, isAlone: true, want: stepCordon},
		"uncordons":                                  {changes: []func(*corev1.Node){asking("uncordon-1", "drain-1"), nodestest.Cordoned}, want: stepUncordon},
		"uncordons the only node":                    {changes: []func(*corev1.Node){asking("uncordon-1", "drain-1")}, isAlone: true, want: stepUncordon},
		"drains again for another configuration":     {changes: []func(*corev1.Node){asking("drain-2", "drain-1")}, want: stepDrain},
		"knows that it does not know what is wanted": {changes: []func(*corev1.Node){asking("reboot-1", "")}, want: stepUnknown},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			assert.Equal(t, test.want, next(nodestest.New("a", nil, test.changes...), test.isAlone))
		})
	}
}

func TestCordon(t *testing.T) {
	t.Parallel()
	t.Run("marks its own and ends it", func(t *testing.T) {
		t.Parallel()
		n := nodestest.New("a", nil)
		Cordon(n, start)
		at, isOurs := cordonedAt(n)
		assert.True(t, n.Spec.Unschedulable && isOurs)
		assert.Equal(t, start, at)
		uncordon(n)
		assert.False(t, n.Spec.Unschedulable)
		assert.NotContains(t, n.Annotations, mcfgv1.AnnotationCordonedAt)
	})
	t.Run("leaves the cordon of others", func(t *testing.T) {
		t.Parallel()
		n := nodestest.New("a", nil, nodestest.Cordoned)
		Cordon(n, start)
		assert.NotContains(t, n.Annotations, mcfgv1.AnnotationCordonedAt)
		uncordon(n)
		assert.True(t, n.Spec.Unschedulable)
	})
	t.Run("keeps a node cordoned whose mark was removed", func(t *testing.T) {
		t.Parallel()
		n := nodestest.New("a", nil)
		Cordon(n, start)
		delete(n.Annotations, mcfgv1.AnnotationCordonedAt)
		uncordon(n)
		assert.True(t, n.Spec.Unschedulable)
	})
}

func endingAt(at time.Time) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.DeletionTimestamp = new(metav1.NewTime(at)) }
}

func TestAnswerOf(t *testing.T) {
	t.Parallel()
	pods := schema.GroupResource{Resource: "pods"}
	withCause := func(err *apierrors.StatusError, cause metav1.CauseType) error {
		if err.ErrStatus.Details == nil {
			err.ErrStatus.Details = &metav1.StatusDetails{}
		}
		err.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: cause}}
		return err
	}
	for name, test := range map[string]struct {
		err        error
		hasSeveral bool
		want       answer
	}{
		"accepted":                          {want: answerLeaving},
		"the pod has gone":                  {err: apierrors.NewNotFound(pods, "a"), want: answerGone},
		"another pod has its name":          {err: apierrors.NewConflict(pods, "a", errors.New("UID")), want: answerLeaving},
		"its namespace is being deleted":    {err: withCause(apierrors.NewForbidden(pods, "a", nil), corev1.NamespaceTerminatingCause), want: answerLeaving},
		"a budget does not allow it":        {err: withCause(apierrors.NewTooManyRequests("no", 0), policyv1.DisruptionBudgetCause), want: answerBudget},
		"a webhook refuses for now":         {err: apierrors.NewTooManyRequests("the machine is being moved", 0), want: answerRefused},
		"several budgets select the pod":    {err: apierrors.NewInternalError(errors.New("more than one")), hasSeveral: true, want: answerBudget},
		"a webhook does not answer":         {err: apierrors.NewInternalError(errors.New("calling webhook")), want: answerRefused},
		"a webhook never answers":           {err: fmt.Errorf("post: %w", context.DeadlineExceeded), want: answerRefused},
		"a webhook refuses":                 {err: apierrors.NewForbidden(pods, "a", errors.New("no")), want: answerRefused},
		"the connection breaks":             {err: errors.New("connection reset"), want: answerRefused},
		"the API server can't answer (504)": {err: apierrors.NewTimeoutError("no", 1), want: answerRefused},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			assert.Equal(t, test.want, answerOf(test.err, test.hasSeveral))
		})
	}
}

func TestDescribe(t *testing.T) {
	t.Parallel()
	of := func(name string, since time.Time) Blocker {
		return Blocker{types.NamespacedName{Namespace: "ns", Name: name}, "budget " + name, since}
	}
	const first = "pod ns/a blocked by budget a since 2026-11-23T19:00:00Z"
	assert.Equal(t, first, Describe([]Blocker{of("a", start)}))
	many := []Blocker{of("e", start), of("d", start), of("b", start), of("c", start.Add(-time.Minute)), of("a", start)}
	assert.Regexp(t, "^pod ns/c blocked by budget c since 2026-11-23T18:59:00Z; "+first+"; pod ns/b .*Z; pod ns/d .*Z; pod ns/e .*Z$", Describe(many))
	assert.Regexp(t, "Z; 2 more$", Describe(append(slices.Repeat([]Blocker{of("a", start)}, maxNamed), of("y", start), of("z", start))))
	assert.Equal(t, "ns/e", many[0].Pod.String(), "the caller's order is kept")
}

func TestDescribeEnding(t *testing.T) {
	t.Parallel()
	of := func(name string, after time.Duration, finalizers ...string) *corev1.Pod {
		p := pod(name, "a")
		endingAt(start.Add(after))(p)
		p.Finalizers = finalizers
		return p
	}
	assert.Empty(t, describeEnding(nil))
	assert.Equal(t, "pod ns/a has until 2026-11-23T19:00:30Z to end (finalizers example.com/backup)", describeEnding([]*corev1.Pod{of("a", 30*time.Second, "example.com/backup")}))
	assert.Equal(t, "pod ns/d has until 2026-11-23T19:01:00Z to end; pod ns/a has until 2026-11-23T19:00:30Z to end; "+
		"pod ns/b has until 2026-11-23T19:00:30Z to end; and others", describeEnding([]*corev1.Pod{of("c", 30*time.Second), of("b", 30*time.Second), of("d", 60*time.Second), of("a", 30*time.Second)}))

	assert.Equal(t, "its own termination, which is overdue", byTermination(of("a", 0*time.Second)))
	assert.Equal(t, "its finalizers a/b, c/d, which have not been removed", byTermination(of("a", 0*time.Second, "a/b", "c/d")))
}

func TestDescribeKubelet(t *testing.T) {
	t.Parallel()
	assert.Empty(t, describeKubelet(nodestest.New("a", nil)))
	for _, ready := range []corev1.ConditionStatus{corev1.ConditionFalse, corev1.ConditionUnknown} {
		n := nodestest.New("a", nil, nodestest.WithCondition(corev1.NodeReady, ready))
		for i := range n.Status.Conditions {
			n.Status.Conditions[i].LastTransitionTime = metav1.NewTime(start)
		}
		assert.Equal(t, "the node is not Ready since 2026-11-23T19:00:00Z: its pods end when its kubelet answers again", describeKubelet(n))
	}
}

// TestRoster has pods come to a node that is being drained.
func TestRoster(t *testing.T) {
	t.Parallel()
	tolerant := func(p *corev1.Pod) { p.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}} }
	for name, test := range map[string]struct {
		after   time.Duration
		changes []func(*corev1.Pod)
		want    bool
	}{
		"waits for those that are there":                   {after: 0, want: true},
		"waits for those that tolerate the cordon":         {after: 0, changes: []func(*corev1.Pod){tolerant}, want: true},
		"waits for one that the scheduler sent too late":   {after: time.Second, want: true},
		"leaves one that comes back at once":               {after: time.Second, changes: []func(*corev1.Pod){tolerant}},
		"leaves one that was given the node's name":        {after: schedulerLag},
		"leaves one that comes back after a long time too": {after: time.Hour, changes: []func(*corev1.Pod){tolerant}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := pod("one", "a")
			p.UID = "1"
			for _, change := range test.changes {
				change(p)
			}
			all := rosters{all: map[string]*roster{}}
			r := all.of(nodestest.New("a", nil, asking("drain-1", "")))
			if test.after > 0 {
				r.add(nil, start)
			}
			r.add([]corev1.Pod{*p}, start.Add(test.after))
			r.add([]corev1.Pod{*p}, start.Add(test.after+time.Hour))
			assert.Equal(t, test.want, r.leaves["1"], "and it stays with that")
		})
	}
	t.Run("begins anew for another drain", func(t *testing.T) {
		t.Parallel()
		all := rosters{all: map[string]*roster{}}
		first := all.of(nodestest.New("a", nil, asking("drain-1", "")))
		assert.Same(t, first, all.of(nodestest.New("a", nil, asking("drain-1", ""))))
		assert.NotSame(t, first, all.of(nodestest.New("b", nil, asking("drain-1", ""))))
		assert.NotSame(t, first, all.of(nodestest.New("a", nil, asking("drain-2", ""))))
	})
}

func TestOptionsAreChecked(t *testing.T) {
	t.Parallel()
	good := Options{Timeout: DefaultTimeout, TerminationTimeout: DefaultTerminationTimeout, GracePeriod: new(time.Duration(0))}
	require.NoError(t, good.check())
	for name, change := range map[string]func(*Options){
		"no timeout":              func(o *Options) { o.Timeout = 0 },
		"no termination timeout":  func(o *Options) { o.TerminationTimeout = -time.Second },
		"a negative grace period": func(o *Options) { o.GracePeriod = new(-time.Second) },
	} {
		t.Run("refuses "+name, func(t *testing.T) {
			t.Parallel()
			options := good
			change(&options)
			assert.Error(t, options.check())
		})
	}
}
