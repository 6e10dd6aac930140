package jobs

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/builder/backend"
	"github.com/layerwright/layerwright/builder/buildertest"
	"github.com/layerwright/layerwright/builder/pods"
	"github.com/layerwright/layerwright/internal/fault"
)

func TestHowLongANodeMayNotAnswer(t *testing.T) {
	t.Parallel()
	wait := func(key string) corev1.Toleration {
		return corev1.Toleration{Key: key, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: new(int64(60))}
	}
	notReady, unreachable := wait("node.kubernetes.io/not-ready"), wait("node.kubernetes.io/unreachable")
	longer := corev1.Toleration{Key: "node.kubernetes.io/unreachable", Operator: corev1.TolerationOpExists, TolerationSeconds: new(int64(600)), Effect: corev1.TaintEffectNoExecute}
	everything := corev1.Toleration{Operator: corev1.TolerationOpExists}
	forSchedulers := corev1.Toleration{Key: "node.kubernetes.io/unreachable", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule}
	for name, test := range map[string]struct{ said, want []corev1.Toleration }{
		"nothing is said":       {nil, []corev1.Toleration{notReady, unreachable}},
		"another taint":         {[]corev1.Toleration{{Key: "build"}}, []corev1.Toleration{{Key: "build"}, notReady, unreachable}},
		"a time for one":        {[]corev1.Toleration{longer}, []corev1.Toleration{longer, notReady}},
		"everything, for ever":  {[]corev1.Toleration{everything}, []corev1.Toleration{everything}},
		"another effect of one": {[]corev1.Toleration{forSchedulers}, []corev1.Toleration{forSchedulers, notReady, unreachable}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			placement := &mcfgv1.BuildPlacement{Tolerations: test.said}
			assert.Equal(t, test.want, pods.TolerationsOf(placement))
			assert.Equal(t, test.said, placement.Tolerations, "what the administrator wrote stays as it is")
		})
	}
	assert.Equal(t, []corev1.Toleration{notReady, unreachable}, pods.TolerationsOf(nil))
}

func TestWhichPodsAreLost(t *testing.T) {
	t.Parallel()
	const lost = time.Minute
	for name, test := range map[string]struct {
		pod    []func(*corev1.Pod)
		silent bool
		after  time.Duration
		want   bool
	}{
		"one that runs": {[]func(*corev1.Pod){buildertest.Runs(backend.Build)}, false, 0, false},
		"on a silent node, and no one has ended it":    {[]func(*corev1.Pod){buildertest.Runs(backend.Build)}, true, time.Hour, false},
		"on a silent node, in its last seconds":        {[]func(*corev1.Pod){buildertest.Runs(backend.Build), buildertest.Deleted(t0.Add(30 * time.Second))}, true, 29 * time.Second, false},
		"on a silent node, after them":                 {[]func(*corev1.Pod){buildertest.Runs(backend.Build), buildertest.Deleted(t0.Add(30 * time.Second))}, true, 30 * time.Second, true},
		"on a node that is a little late":              {[]func(*corev1.Pod){buildertest.Runs(backend.Build), buildertest.Deleted(t0)}, false, lost, false},
		"on a node that answers, and can't end it":     {[]func(*corev1.Pod){buildertest.Runs(backend.Build), buildertest.Deleted(t0)}, false, lost + 1, true},
		"on a silent node, and it had ended":           {[]func(*corev1.Pod){buildertest.Ends(backend.Build, 1, "Error", ""), buildertest.Deleted(t0)}, true, time.Hour, false},
		"that was never on a node":                     {[]func(*corev1.Pod){unschedulable(""), buildertest.Deleted(t0)}, true, time.Hour, false},
		"on a silent node, and it was given up before": {[]func(*corev1.Pod){buildertest.Runs(backend.Build), buildertest.Deleted(t0), buildertest.Fails(pods.ReasonNodeLost, "")}, true, time.Hour, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newScene(t).pod(test.pod...).at(test.after)
			if test.silent {
				s.silence()
			}
			assert.Equal(t, test.want, pods.IsLost(&s.Facts, &s.Pods[0]))
		})
	}
}

// TestAPodOnASilentNodeIsGivenUp writes into the pod what its Job has to know, and says why.
func TestAPodOnASilentNodeIsGivenUp(t *testing.T) {
	t.Parallel()
	node := newNode("node-1", "amd64", true)
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionUnknown}}
	w := newWorld(t, &node)
	b := w.backend()
	require.NoError(t, b.Ensure(t.Context(), *plainSpec(mcfgv1.ArchitectureAMD64)))
	pod := w.podFor("build-"+buildName, buildertest.Runs(backend.Build), func(p *corev1.Pod) { p.Finalizers = []string{"batch.kubernetes.io/job-tracking"} })
	require.NoError(t, w.Delete(t.Context(), pod))
	state, err := b.Observe(t.Context(), key)
	require.NoError(t, err)
	assert.Equal(t, backend.Running, state.Phase)
	assert.Contains(t, state.Message, "node node-1 does not answer; another attempt follows at ")
	require.NoError(t, w.Get(t.Context(), client.ObjectKeyFromObject(pod), pod))
	assert.Equal(t, corev1.PodRunning, pod.Status.Phase)

	w.clock.SetTime(metav1.Now().Add(time.Hour))
	state, err = b.Observe(t.Context(), key)
	require.NoError(t, err)
	assert.Equal(t, backend.Running, state.Phase)
	assert.Equal(t, &backend.Failure{
		Class: fault.Transient, Reason: mcfgv1.ReasonRetryingBuild, Message: "node node-1 stopped answering while the build ran there",
	}, state.Failure)
	require.NoError(t, w.Get(t.Context(), client.ObjectKeyFromObject(pod), pod))
	assert.Equal(t, corev1.PodFailed, pod.Status.Phase)
	assert.Equal(t, "NodeLost", pod.Status.Reason)
}
