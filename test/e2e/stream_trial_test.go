//go:build e2e

package e2e

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/internal/status"
	"github.com/layerwright/layerwright/test/cluster/stack"
	"github.com/layerwright/layerwright/test/fixtures"
)

// runcConfig is what a pool must not have on version 10, in the place of what the test's pool has.
func runcConfig(mc *mcfgv1.MachineConfig) {
	mc.Spec.OSImageURL = ""
	mc.Spec.KernelArguments = []string{"systemd.unified_cgroup_hierarchy=0"}
	mc.Spec.Config.Raw = []byte(`{"ignition":{"version":"3.5.0"},"storage":{"files":[{"path":"/etc/motd","overwrite":true,"contents":{"source":"data:,mine"}},` +
		`{"path":"/etc/crio/crio.conf.d/50-runtime","contents":{"source":"data:,%5Bcrio.runtime%5D%0Adefault_runtime%20%3D%20%22runc%22%0A"}}]}}`)
}

// testTryingAStream tries the move of a pool to the younger stream as an administrator would: what
// is in the way is named, the image for the other stream is in the registry, and nothing that the
// pool has, or any node, changes.
func testTryingAStream(t *testing.T) {
	b := newBuilds(t)
	b.base, b.host = tinyImage(t), statusOf(t).Registry
	both := fixtureStreams(t)
	set := b.offer(t, nine, both[nine], both[ten])
	p := b.unasked(t, "trying", runcConfig)
	p.ask(containing("FROM os-base-image\nRUN echo built > /usr/share/built\n"), func(c *mcfgv1.MachineOSConfig) {
		c.Spec.BaseImagePullSecret.Name, c.Spec.RenderedImagePushSecret.Name = stack.PullSecret, stack.PushSecret
	})
	p.eventually(func(t *assert.CollectT) {
		require.Contains(t, conditionText(p.config(t).Status.Conditions, status.Ready), "True Succeeded")
		require.Equal(t, string(fixtures.RHEL9), p.config(t).Status.OSImageStream.Name)
	})
	before := p.config(t)
	builds, images := p.machineOSBuilds(t.Context(), t), p.machineOSImages(t.Context(), t)

	try := func(stream string) {
		p.changeConfig(func(c *mcfgv1.MachineOSConfig) {
			if metav1.SetMetaDataAnnotation(&c.ObjectMeta, mcfgv1.AnnotationTryStream, stream); stream == "" {
				delete(c.Annotations, mcfgv1.AnnotationTryStream)
			}
		})
	}
	reported := func(condition func(t require.TestingT, trial *mcfgv1.StreamTrial)) *mcfgv1.StreamTrial {
		var trial *mcfgv1.StreamTrial
		p.eventually(func(t *assert.CollectT) {
			trial = p.config(t).Status.StreamTrial
			require.NotNil(t, trial)
			require.Equal(t, mcfgv1.StreamTrialReported, trial.State, trial.Message)
			condition(t, trial)
		})
		return trial
	}
	try(string(fixtures.RHEL10))
	trial := reported(func(require.TestingT, *mcfgv1.StreamTrial) {})
	assert.Equal(t, []string{
		`CgroupV1: MachineConfig "50-trying", spec.kernelArguments`, `RuncDefaultRuntime: MachineConfig "50-trying", /etc/crio/crio.conf.d/50-runtime:2`,
	}, trial.Blockers)
	require.NotNil(t, trial.Packages)
	assert.EqualValues(t, 12, trial.Packages.Upgraded)
	assert.Zero(t, trial.Packages.Removed)

	report := &corev1.ConfigMap{}
	key := client.ObjectKey{Namespace: trial.Report.Namespace, Name: trial.Report.Name}
	require.NoError(t, b.Get(t.Context(), key, report))
	text := report.Data["report.txt"]
	t.Log("\n" + text)
	assert.Contains(t, text, "kernel-core 5.14.0-570.72.1.el9_6 -> 6.12.0-124.21.1.el10_1")
	assert.Contains(t, text, `/etc/motd (MachineConfig "50-trying")`)

	image := string(trial.ImagePullSpec)
	require.NotEmpty(t, image, text)
	assert.Equal(t, "built\n", p.inLayers(image, "usr/share/built"), "the Containerfile was built on the other stream")
	assert.Equal(t, "mine", p.inLayers(image, "etc/motd"))
	assert.Contains(t, p.inLayers(image, "usr/lib/os-release"), "platform:el10")

	after := p.config(t)
	assert.Equal(t, before.Status.CurrentImagePullSpec, after.Status.CurrentImagePullSpec)
	assert.Equal(t, before.Status.MachineOSBuild, after.Status.MachineOSBuild)
	assert.Len(t, p.machineOSBuilds(t.Context(), t), len(builds))
	assert.Len(t, p.machineOSImages(t.Context(), t), len(images))
	pool := &mcfgv1.MachineConfigPool{}
	require.NoError(t, b.Get(t.Context(), client.ObjectKey{Name: p.name}, pool))
	assert.Empty(t, pool.Spec.OSImageStream.Name)
	p.toldOf(p.name, "StreamBlocked", "A move to stream rhel10-coreos was tried: 2 blockers")

	// What is in the way is put right: the report follows.
	change(p, &mcfgv1.MachineConfig{}, "50-trying", func(mc *mcfgv1.MachineConfig) {
		mc.Spec.KernelArguments = nil
		mc.Spec.Config.Raw = []byte(`{"ignition":{"version":"3.5.0"}}`)
	})
	trial = reported(func(t require.TestingT, trial *mcfgv1.StreamTrial) {
		require.Zero(t, trial.BlockerCount, trial.Message)
	})
	p.toldOf(p.name, "StreamTried", "A move to stream rhel10-coreos was tried: no blockers")

	// The same from the outside.
	p.trialCommand(set, string(trial.Stream))

	try("")
	p.eventually(func(t *assert.CollectT) { require.Nil(t, p.config(t).Status.StreamTrial) })
	assert.True(t, apierrors.IsNotFound(b.Get(t.Context(), key, report)), "the report goes")
	assert.NotContains(t, p.tags(), "trial-trying", "and the image")
	require.NotEmpty(t, p.inLayers(string(p.config(t).Status.CurrentImagePullSpec), "usr/share/built"), "that of the pool stays")
}

// trialCommand has the command report from files what the controller reports from the cluster.
func (p *layered) trialCommand(set *mcfgv1.OSImageStream, stream string) {
	p.t.Helper()
	mc, pool := &mcfgv1.MachineConfig{}, &mcfgv1.MachineConfigPool{}
	require.NoError(p.t, p.Get(p.t.Context(), client.ObjectKey{Name: "50-" + p.name}, mc))
	require.NoError(p.t, p.Get(p.t.Context(), client.ObjectKey{Name: p.name}, pool))
	var text strings.Builder
	for kind, object := range map[string]client.Object{"OSImageStream": set, "MachineConfig": mc, "MachineConfigPool": pool, "MachineOSConfig": p.config(p.t)} {
		object.GetObjectKind().SetGroupVersionKind(mcfgv1.GroupVersion.WithKind(kind))
		document, err := yaml.Marshal(object)
		require.NoError(p.t, err)
		text.WriteString("---\n" + string(document))
	}
	command := exec.CommandContext(p.t.Context(), filepath.Join(repository, "bin", "layerwright"), "trial", "-f", "-", "--pool", p.name, "--stream", stream,
		"--registry-ca", statusOf(p.t).RegistryCA, "--cache-dir", p.t.TempDir())
	command.Stdin = strings.NewReader(text.String())
	command.Env = append(command.Environ(), "DOCKER_CONFIG="+shared(p.t).DockerConfig("pull"))
	result := finish(p.t, command)
	require.Zero(p.t, result.code, result.stderr)
	assert.Contains(p.t, result.stdout, "Pool "+p.name+": from stream rhel9-coreos to rhel10-coreos\n  no blockers")
	assert.Contains(p.t, result.stdout, "kernel-core 5.14.0-570.72.1.el9_6 -> 6.12.0-124.21.1.el10_1")
}
