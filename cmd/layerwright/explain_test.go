package main

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/cmd/layerwright/explanation"
)

func TestExplain(t *testing.T) {
	t.Parallel()
	c := newImageCluster(t)
	build, isBuild := c.objects[5].(*mcfgv1.MachineOSBuild)
	require.True(t, isBuild)
	build.Spec.Decision.Action = mcfgv1.BuildActionBuild
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "build", Namespace: "layerwright", Labels: map[string]string{mcfgv1.LabelMachineOSBuild: "worker-2"}}}
	pod.Status.InitContainerStatuses = []corev1.ContainerStatus{{Name: "fetch", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
		Message: `{"step":"fetch","bytes":60000000,"layers":3,"tookMillis":2500}`,
	}}}}
	from := c.client(t, pod, &mcfgv1.MachineConfigPool{ObjectMeta: metav1.ObjectMeta{Name: "other"}})
	run := func(name, output string) (string, error) {
		var out, notes bytes.Buffer
		cmd := &cobra.Command{}
		cmd.SetContext(t.Context())
		cmd.SetOut(&out)
		cmd.SetErr(&notes)
		err := explain(cmd, from, "layerwright", name, output)
		assert.Empty(t, notes.String())
		return out.String(), err
	}
	for _, name := range []string{"worker", "worker-2", c.newer.Short(), string(c.newer)} {
		text, err := run(name, "text")
		require.NoError(t, err)
		for _, want := range []string{"Build worker-2 of pool worker\n", "since build worker-1\n", "file /etc/motd changed\n", "fetch        2.5s, 60 MB in 3 layers\n", "attested       AttestationFailed: no SBOM\n"} {
			assert.Contains(t, text, want, name)
		}
	}
	text, err := run("worker-1", "json")
	require.NoError(t, err)
	var said explanation.Explanation
	require.NoError(t, json.Unmarshal([]byte(text), &said))
	assert.Equal(t, mcfgv1.BuildActionAppend, said.Action)
	assert.Equal(t, c.older, said.Image.Image)

	_, err = run("worker-3", "text")
	require.ErrorContains(t, err, `there is no build, image or pool "worker-3"; do you mean "worker-1"?`)
	_, err = run("other", "text")
	require.ErrorContains(t, err, "pool other has no build")
}
