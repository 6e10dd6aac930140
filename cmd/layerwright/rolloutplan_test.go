package main

import (
	"bytes"
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/cmd/layerwright/forecast"
	"github.com/layerwright/layerwright/cmd/layerwright/survey"
	"github.com/layerwright/layerwright/nodes/nodestest"
)

// rolling is a cluster whose pool has a node that should get configuration b, and a pod on it that
// has no owner.
func rolling(t *testing.T, objects ...client.Object) client.WithWatch {
	t.Helper()
	scheme, err := survey.Scheme()
	require.NoError(t, err)
	pool := &mcfgv1.MachineConfigPool{ObjectMeta: metav1.ObjectMeta{Name: "worker"}}
	pool.Spec.NodeSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"node-role.kubernetes.io/worker": ""}}
	pool.Spec.Configuration.Name = "b"
	pool.Spec.Paused = true
	bare := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "bare"}, Spec: corev1.PodSpec{NodeName: "n-0"}, Status: corev1.PodStatus{Phase: corev1.PodRunning}}
	objects = append(objects, pool, nodestest.New("n-0", []string{"worker"}, nodestest.Having("a")), bare, &mcfgv1.MachineConfig{ObjectMeta: metav1.ObjectMeta{Name: "b"}})
	return fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).Build()
}

func TestPlanOfARollout(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		request rolloutRequest
		left    string
		says    string
	}{
		"issues":         {rolloutRequest{}, "pool worker: correct these, or name them with --accept: Paused,UnmanagedPod", "UnmanagedPod: Pod shop/bare"},
		"some accepted":  {rolloutRequest{plan: rolloutPlan{accepted: []string{"UnmanagedPod"}}}, "--accept: Paused", "UnmanagedPod (accepted): Pod shop/bare"},
		"all accepted":   {rolloutRequest{plan: rolloutPlan{accepted: []string{"Paused", "UnmanagedPod"}}}, "", "1     now       n-0 (not known yet)"},
		"resume":         {rolloutRequest{resume: true}, "pool worker was not resumed: correct these, or name them with --accept: UnmanagedPod", "UnmanagedPod"},
		"resume with it": {rolloutRequest{resume: true, plan: rolloutPlan{accepted: []string{"UnmanagedPod"}}}, "", "UnmanagedPod (accepted)"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := test.request
			r.pool = "worker"
			made, err := r.forecast(t.Context(), rolling(t), &forecast.Input{Now: time.Unix(0, 0), Resuming: r.resume}, "layerwright")
			require.NoError(t, err)
			var out bytes.Buffer
			err = r.judge(made, &out)
			assert.Contains(t, out.String(), test.says)
			if test.left == "" {
				require.NoError(t, err)
				return
			}
			var ended *endError
			require.ErrorAs(t, err, &ended)
			assert.Equal(t, exitHeld, ended.code)
			assert.Contains(t, ended.text, test.left)
		})
	}
}

// TestResumeIsOfThePoolThatWasPlanned: what came after the plan may have other issues.
func TestResumeIsOfThePoolThatWasPlanned(t *testing.T) {
	t.Parallel()
	c := rolling(t)
	r := rolloutRequest{pool: "worker", resume: true, plan: rolloutPlan{accepted: []string{"UnmanagedPod"}}}
	made, err := r.forecast(t.Context(), c, &forecast.Input{Now: time.Unix(0, 0), Resuming: true}, "layerwright")
	require.NoError(t, err)
	var out bytes.Buffer
	require.NoError(t, r.judge(made, &out))
	pool := &mcfgv1.MachineConfigPool{}
	require.NoError(t, c.Get(t.Context(), client.ObjectKey{Name: "worker"}, pool))
	pool.Spec.Configuration.Name = "c"
	require.NoError(t, c.Update(t.Context(), pool))
	require.ErrorContains(t, r.apply(t.Context(), c, &out), "pool worker was not changed, since it has changed after it was read: run the command again")
	require.NoError(t, c.Get(t.Context(), client.ObjectKey{Name: "worker"}, pool))
	assert.True(t, pool.Spec.Paused)
	_, err = r.forecast(t.Context(), c, &forecast.Input{Now: time.Unix(0, 0), Resuming: true}, "layerwright")
	require.NoError(t, err)
	require.NoError(t, r.apply(t.Context(), c, &out), "of the plan of what is there now")
}

func TestPlanForPrograms(t *testing.T) {
	t.Parallel()
	r := rolloutRequest{pool: "worker"}
	r.plan.format.Value = "json"
	made, err := r.forecast(t.Context(), rolling(t), &forecast.Input{Now: time.Unix(0, 0)}, "")
	require.NoError(t, err)
	var out bytes.Buffer
	require.Error(t, r.judge(made, &out))
	var read forecast.Forecast
	require.NoError(t, json.Unmarshal(out.Bytes(), &read))
	assert.Equal(t, "n-0", read.Steps[0].Nodes[0].Node)
	assert.Equal(t, "Paused", read.Issues[0].Name)
	require.ErrorIs(t, r.judge(made, brokenWriter{}), errBroken)
}

// TestPlanThatLacksSomething is refused: it would say that nothing is in the way.
func TestPlanThatLacksSomething(t *testing.T) {
	t.Parallel()
	r := rolloutRequest{pool: "worker"}
	denied := func(to client.WithWatch, is func(client.ObjectList) bool) client.Client {
		return interceptor.NewClient(to, interceptor.Funcs{List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
			if is(list) {
				return apierrors.NewForbidden(schema.GroupResource{}, "", nil)
			}
			return c.List(ctx, list, options...)
		}})
	}
	for says, is := range map[string]func(client.ObjectList) bool{
		"you may not list v1 pods of all namespaces":                                   func(l client.ObjectList) bool { _, is := l.(*corev1.PodList); return is },
		"a plan needs all of the cluster's objects: not shown, since you may not list": func(l client.ObjectList) bool { _, is := l.(*corev1.NodeList); return is },
	} {
		_, err := r.forecast(t.Context(), denied(rolling(t), is), &forecast.Input{}, "")
		require.ErrorContains(t, err, says)
	}
	unknown := rolloutRequest{pool: "wroker"}
	_, err := unknown.forecast(t.Context(), rolling(t), &forecast.Input{}, "")
	require.ErrorContains(t, err, `do you mean "worker"?`)
}

func TestPlanFlags(t *testing.T) {
	t.Parallel()
	for says, args := range map[string][]string{
		`there is no issue "All"; the issues are AgentMissing, `: {"--plan", "--accept", "All"},
		"goes with --resume alone":                               {"--plan", "--pause"},
		"--accept goes with --plan or --resume":                  {"--pause", "--accept", "Paused"},
		"--resume says what it does as text":                     {"--plan", "--resume", "-o", "json"},
	} {
		var stdout, stderr bytes.Buffer
		assert.Equal(t, exitUsage, execute(t.Context(), append([]string{"rollout", "worker"}, args...), &stdout, &stderr))
		assert.Contains(t, stderr.String(), says)
	}
}
