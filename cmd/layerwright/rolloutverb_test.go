package main

import (
	"bytes"
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	mcfgv1alpha1 "github.com/layerwright/layerwright/api/machineconfiguration/v1alpha1"
	"github.com/layerwright/layerwright/cmd/layerwright/survey"
)

// imagesOf are those of pool worker, and one of another: worker-3 is the newest, and worker-2 in
// quarantine.
func imagesOf() []mcfgv1alpha1.MachineOSImage {
	var all []mcfgv1alpha1.MachineOSImage
	for i, name := range []string{"worker-1", "worker-2", "worker-3", "other-1"} {
		image := mcfgv1alpha1.MachineOSImage{ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.Unix(int64(i), 0)}}
		image.Spec.MachineConfigPool, image.Spec.PullSpec = name[:len(name)-2], mcfgv1.ImageDigestFormat(name)
		image.Status.Conditions = []metav1.Condition{{Type: mcfgv1.ConditionReady, Status: metav1.ConditionTrue}}
		all = append(all, image)
	}
	all[1].Status.Quarantine = &mcfgv1alpha1.ImageQuarantine{Reason: "RolloutHalted", Message: "node-1 failed"}
	return all
}

func TestRolloutChanges(t *testing.T) {
	t.Parallel()
	paused := func(p *mcfgv1.MachineConfigPool) { p.Spec.Paused = true }
	halted := func(p *mcfgv1.MachineConfigPool) {
		p.Status.Conditions = []mcfgv1.MachineConfigPoolCondition{{
			Type: mcfgv1.PoolRolloutDegraded, Status: corev1.ConditionTrue, Reason: mcfgv1.ReasonRolloutHalted, LastTransitionTime: metav1.NewTime(time.Unix(0, 0)),
		}}
	}
	at := func(image string) func(*mcfgv1.MachineConfigPool) {
		return func(p *mcfgv1.MachineConfigPool) { p.Spec.MachineOSImage = image }
	}
	targeting := func(image string) func(*mcfgv1.MachineConfigPool) {
		return func(p *mcfgv1.MachineConfigPool) {
			p.Status.Rollout = &mcfgv1.RolloutStatus{TargetImagePullSpec: mcfgv1.ImageDigestFormat(image)}
		}
	}
	ignoring := func(p *mcfgv1.MachineConfigPool) {
		p.Annotations = map[string]string{mcfgv1.AnnotationIgnoreWindows: "CVE"}
	}
	for name, test := range map[string]struct {
		request rolloutRequest
		pool    func(*mcfgv1.MachineConfigPool)
		patch   string
		err     string
	}{
		"pause":             {rolloutRequest{pause: true}, nil, `{"metadata":{"resourceVersion":"7"},"spec":{"paused":true}}`, ""},
		"paused already":    {rolloutRequest{pause: true}, paused, "null", ""},
		"resume":            {rolloutRequest{resume: true}, paused, `{"metadata":{"resourceVersion":"7"},"spec":{"paused":false}}`, ""},
		"resume the halted": {rolloutRequest{resume: true}, halted, `{"metadata":{"resourceVersion":"7","annotations":{"machineconfiguration.openshift.io/resume-rollout":""}}}`, ""},
		"resume nothing":    {rolloutRequest{resume: true}, nil, "null", ""},
		"undo":              {rolloutRequest{undo: true}, nil, `{"metadata":{"resourceVersion":"7"},"spec":{"machineOSImage":"worker-1"}}`, ""},
		"undo what runs":    {rolloutRequest{undo: true}, targeting("worker-2"), `{"metadata":{"resourceVersion":"7"},"spec":{"machineOSImage":"worker-1"}}`, ""},
		"undo the oldest":   {rolloutRequest{undo: true}, targeting("worker-1"), "", "no image before worker-1 that is Ready"},
		"undo the first":    {rolloutRequest{undo: true}, at("worker-1"), "", "pool worker has no image before worker-1"},
		"undo the unknown":  {rolloutRequest{undo: true}, at("gone"), "", `pool worker has no MachineOSImage "gone"`},
		"to":                {rolloutRequest{to: "worker-1"}, nil, `{"metadata":{"resourceVersion":"7"},"spec":{"machineOSImage":"worker-1"}}`, ""},
		"to the newest":     {rolloutRequest{to: newest}, at("worker-1"), `{"metadata":{"resourceVersion":"7"},"spec":{"machineOSImage":null}}`, ""},
		"to another pool's": {rolloutRequest{to: "other-1"}, nil, "", "its images, the newest first: worker-3, worker-2, worker-1"},
		"to quarantine":     {rolloutRequest{to: "worker-2"}, nil, "", "in quarantine: RolloutHalted: node-1 failed; to try it again, add --resume"},
		"resume with it": {
			rolloutRequest{to: "worker-2", resume: true},
			nil,
			`{"metadata":{"resourceVersion":"7","annotations":{"machineconfiguration.openshift.io/resume-rollout":""}},"spec":{"machineOSImage":"worker-2"}}`, "",
		},
		"ignore windows": {
			rolloutRequest{windows: true, ignoreWindows: "CVE-1"},
			nil,
			`{"metadata":{"resourceVersion":"7","annotations":{"machineconfiguration.openshift.io/ignore-windows":"CVE-1"}}}`, "",
		},
		"heed them already": {rolloutRequest{windows: true}, nil, "null", ""},
		"heed windows":      {rolloutRequest{windows: true}, ignoring, `{"metadata":{"resourceVersion":"7","annotations":{"machineconfiguration.openshift.io/ignore-windows":null}}}`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pool := &mcfgv1.MachineConfigPool{ObjectMeta: metav1.ObjectMeta{Name: "worker", ResourceVersion: "7"}}
			if test.pool != nil {
				test.pool(pool)
			}
			change, said, err := test.request.change(pool, imagesOf())
			if test.err != "" {
				require.ErrorContains(t, err, test.err)
				return
			}
			require.NoError(t, err)
			patch, err := json.Marshal(change)
			require.NoError(t, err)
			assert.JSONEq(t, test.patch, string(patch))
			assert.NotEmpty(t, said)
		})
	}
}

func TestRolloutIsApplied(t *testing.T) {
	t.Parallel()
	scheme, err := survey.Scheme()
	require.NoError(t, err)
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(&mcfgv1.MachineConfigPool{ObjectMeta: metav1.ObjectMeta{Name: "worker"}}).Build()
	var out bytes.Buffer
	require.NoError(t, (&rolloutRequest{pool: "worker", pause: true}).apply(t.Context(), c, &out))
	assert.Equal(t, "pool worker: paused: no further node stages or changes\n", out.String())
	pool := &mcfgv1.MachineConfigPool{}
	require.NoError(t, c.Get(t.Context(), client.ObjectKey{Name: "worker"}, pool))
	assert.True(t, pool.Spec.Paused)
	require.NoError(t, (&rolloutRequest{pool: "worker", resume: true, dryRun: true}).apply(t.Context(), c, &out))
	require.NoError(t, c.Get(t.Context(), client.ObjectKey{Name: "worker"}, pool))
	assert.True(t, pool.Spec.Paused, "a dry run changes nothing")
	require.ErrorContains(t, (&rolloutRequest{pool: "wroker", pause: true}).apply(t.Context(), c, &out), `do you mean "worker"?`)
	var stderr bytes.Buffer
	assert.Equal(t, exitUsage, execute(t.Context(), []string{"rollout", "worker"}, &out, &stderr))
	assert.Contains(t, stderr.String(), "nothing to do: give --plan, --pause")
}
