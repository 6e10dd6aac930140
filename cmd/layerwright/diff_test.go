package main

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/cmd/layerwright/difference"
)

func renderedWith(name, content string) *mcfgv1.MachineConfig {
	mc := &mcfgv1.MachineConfig{}
	mc.Name = name
	mc.Spec.Config = runtime.RawExtension{Raw: []byte(
		`{"ignition":{"version":"3.5.0"},"storage":{"files":[{"path":"/etc/motd","contents":{"source":"data:,` + content + `"}}]}}`,
	)}
	return mc
}

// diffImages runs the command on a cluster.
func diffImages(t *testing.T, from client.Reader, change func(*diffOptions)) (stdout string, err error) {
	t.Helper()
	o := &diffOptions{pool: "worker", cacheDir: t.TempDir(), cluster: newClusterFlags(&cobra.Command{})}
	o.output.Value = "text"
	if change != nil {
		change(o)
	}
	var out, notes bytes.Buffer
	err = o.run(t.Context(), from, &out, &notes)
	return out.String(), err
}

func TestDiff(t *testing.T) {
	t.Parallel()
	c := newImageCluster(t)
	pool, isPool := c.objects[0].(*mcfgv1.MachineConfigPool)
	require.True(t, isPool)
	pool.Spec.Configuration.Name, pool.Status.OSImagePullSpec = "rendered-worker-2", c.newer
	from := c.client(t, renderedWith("rendered-worker-1", "one"), renderedWith("rendered-worker-2", "two"))
	standard, err := diffImages(t, from, nil)
	require.NoError(t, err)
	for _, line := range []string{
		"Pool worker: from worker-1 (" + c.older.Short() + ") to worker-2 (" + c.newer.Short() + ")\n", "  configuration  rendered-worker-1 -> rendered-worker-2\n",
		"  node           drain and reboot: /etc/motd has changed, and no node disruption policy covers it\n", "  file /etc/motd changed\n",
		"  no difference: the content is the same, by its key content\n",
	} {
		assert.Contains(t, standard, line)
	}
	toAsked, err := diffImages(t, from, func(o *diffOptions) { o.a, o.b = c.older.Short(), asked })
	require.NoError(t, err)
	assert.Contains(t, toAsked, "to asked ("+c.newer.Short()+")\n")
	assert.Contains(t, toAsked, "  file /etc/motd changed\n")

	text, err := diffImages(t, from, func(o *diffOptions) { o.a, o.b, o.output.Value = "worker-2", "worker-2", "json" })
	require.NoError(t, err)
	var d difference.Difference
	require.NoError(t, json.Unmarshal([]byte(text), &d))
	assert.Equal(t, "nothing", d.Effect)

	gone, err := diffImages(t, c.client(t), nil)
	require.NoError(t, err)
	assert.Contains(t, gone, "its rendered MachineConfig rendered-worker-1 can't be read")
	assert.Contains(t, gone, "  file /etc/motd changed\n", "the builds know it")

	_, err = diffImages(t, from, func(o *diffOptions) { o.a, o.b = "worker-9", asked })
	require.ErrorContains(t, err, `pool worker has no MachineOSImage "worker-9"; its images, the newest first: [worker-2 worker-1], or "asked"`)
	_, err = diffImages(t, from, func(o *diffOptions) { o.pool = "wroker" })
	require.ErrorContains(t, err, `do you mean "worker"?`)
	var stdout, stderr bytes.Buffer
	assert.Equal(t, exitUsage, execute(t.Context(), []string{"diff", "worker", "asked"}, &stdout, &stderr))
	assert.Contains(t, stderr.String(), "it takes a pool, or a pool and two images")
}

func TestDiffOfPackages(t *testing.T) {
	t.Parallel()
	c := newImageCluster(t)
	build, isBuild := c.objects[5].(*mcfgv1.MachineOSBuild)
	require.True(t, isBuild)
	build.Spec.Decision.ContentKey = "another"
	two := func(o *diffOptions) { o.a, o.b = "worker-1", "worker-2" }
	text, err := diffImages(t, c.client(t), two)
	require.NoError(t, err)
	assert.Contains(t, text, "packages: --packages reads and compares them")
	text, err = diffImages(t, c.client(t), func(o *diffOptions) {
		two(o)
		o.packages = true
	})
	require.NoError(t, err)
	assert.Contains(t, text, "packages: image "+c.older.Short()+" has no package database of a kind that is known", "it is said, and the rest is there")
	for _, object := range c.objects {
		if n, isNode := object.(*corev1.Node); isNode {
			n.Annotations = nil
		}
	}
	_, err = diffImages(t, c.client(t), nil)
	require.ErrorContains(t, err, "no node of pool worker says which image it runs")
}
