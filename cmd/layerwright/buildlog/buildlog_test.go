package buildlog_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	clocktesting "k8s.io/utils/clock/testing"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/cmd/layerwright/buildlog"
)

const namespace = "layerwright"

func running() corev1.ContainerState {
	return corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
}

func pod(name, build, arch string, steps ...string) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace, Labels: map[string]string{mcfgv1.LabelMachineOSBuild: build}}}
	p.Spec.NodeSelector = map[string]string{corev1.LabelArchStable: arch}
	for _, step := range steps {
		p.Status.ContainerStatuses = append(p.Status.ContainerStatuses, corev1.ContainerStatus{Name: step, State: running()})
	}
	return p
}

func TestLogsOfABuild(t *testing.T) {
	t.Parallel()
	waiting := pod("worker-1-later", "worker-1", "amd64", "push")
	waiting.Status.ContainerStatuses[0].State = corev1.ContainerState{}
	run := pod("run", "pipeline-1", "amd64", "step-build")
	run.Labels["tekton.dev/pipelineTask"] = "build"
	objects := fake.NewClientset(
		pod("worker-1-a", "worker-1", "amd64", "fetch", "build"), waiting, pod("other", "worker-2", "amd64", "build"),
		pod("both-a", "both-1", "amd64", "build"), pod("both-b", "both-1", "arm64", "build"), run,
	)
	for build, want := range map[string][]string{
		"worker-1":   {"[fetch] fake logs", "[build] fake logs"},
		"both-1":     {"[amd64 build] fake logs", "[arm64 build] fake logs"},
		"pipeline-1": {"[build] fake logs"},
		"none":       nil,
	} {
		var out strings.Builder
		f := &buildlog.Follower{Pods: objects.CoreV1().Pods(namespace), Out: &out}
		count, err := f.Run(t.Context(), build)
		require.NoError(t, err)
		assert.Equal(t, len(want), count, build)
		assert.ElementsMatch(t, want, strings.FieldsFunc(out.String(), func(r rune) bool { return r == '\n' }), build)
	}
}

// jumping is a clock on which nothing takes time.
type jumping struct{ *clocktesting.FakeClock }

func (j jumping) After(d time.Duration) <-chan time.Time {
	j.Step(d)
	at := make(chan time.Time, 1)
	at <- j.Now()
	return at
}

// TestFollowTakesLaterSteps has a step begin while another one is followed, and the cluster be out
// of reach once. No line is written twice, although steps are read again as long as they run.
func TestFollowTakesLaterSteps(t *testing.T) {
	t.Parallel()
	first := pod("worker-1", "worker-1", "amd64", "fetch")
	objects := fake.NewClientset(first)
	looks := 0
	var out strings.Builder
	f := &buildlog.Follower{Pods: objects.CoreV1().Pods(namespace), Clock: jumping{clocktesting.NewFakeClock(time.Unix(0, 0))}, Out: &out, IsEnded: func(context.Context) (bool, error) {
		looks++
		if looks == 2 {
			later := pod("worker-1", "worker-1", "amd64", "fetch", "build")
			_, err := objects.CoreV1().Pods(namespace).UpdateStatus(t.Context(), later, metav1.UpdateOptions{})
			require.NoError(t, err)
		}
		if looks == 3 {
			return false, errors.New("connection refused")
		}
		return looks > 4, nil
	}}
	count, err := f.Run(t.Context(), "worker-1")
	require.NoError(t, err)
	assert.Equal(t, 2, count)
	assert.Equal(t, "[fetch] fake logs\n[build] fake logs\n", out.String())
}
