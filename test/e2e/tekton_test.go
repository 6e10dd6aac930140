//go:build e2e && tekton

package e2e

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/internal/status"
	"github.com/layerwright/layerwright/test/cluster/stack"
)

var tektonVersion = schema.GroupVersion{Group: "tekton.dev", Version: "v1"}

func asPipeline(c *mcfgv1.MachineOSConfig) {
	c.Spec.ImageBuilder.ImageBuilderType = mcfgv1.PipelineBuilder
}

// TestTekton builds and verifies with Tekton's own controller, webhook and programs.
// TestTektonFaults has what people and faults do to runs.
func TestTekton(t *testing.T) {
	b := withTekton(t)
	t.Run("PipelineRuns make the image that Jobs make", func(t *testing.T) { testTektonSameImage(t, b) })
	t.Run("a RUN line that fails is told by its line", func(t *testing.T) { testTektonFailingRun(t, b) })
	t.Run("a Pipeline verifies an image", func(t *testing.T) { testTektonVerification(t, b) })
}

// withTekton installs Tekton in the tests' cluster.
func withTekton(t *testing.T) *podBuilds {
	t.Helper()
	mustCluster(t, "--name", clusterName, "up", "--with-tekton")
	return newPodBuilds(t, newBuilds(t))
}

// runs are the PipelineRuns of the pool, as the label finds them that people look for.
func (p *contained) runs(t require.TestingT) []unstructured.Unstructured {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(tektonVersion.WithKind("PipelineRunList"))
	require.NoError(t, p.List(p.t.Context(), list, client.InNamespace(stack.Namespace), client.MatchingLabels{mcfgv1.LabelMachineOSConfig: p.name}))
	return list.Items
}

// run is the pool's only PipelineRun.
func (p *contained) run() *unstructured.Unstructured {
	p.t.Helper()
	var found []unstructured.Unstructured
	p.eventually(func(t *assert.CollectT) {
		found = p.runs(t)
		require.Len(t, found, 1)
	})
	return &found[0]
}

// succeeded waits for the pool's image, which one build has made.
func (p *contained) succeeded() string {
	p.t.Helper()
	p.says(status.Ready, "True Succeeded")
	p.only()
	return string(p.config(p.t).Status.CurrentImagePullSpec)
}

// testTektonSameImage has a Job, a PipelineRun and a Job build from the same inputs.
func testTektonSameImage(t *testing.T, b *podBuilds) {
	p := b.pool(t, "tekton-same")
	p.gate.open()
	p.ask("")
	made := p.succeeded()
	tags, build := p.tags(), p.only()
	for _, kind := range []mcfgv1.MachineOSImageBuilderType{mcfgv1.PipelineBuilder, mcfgv1.JobBuilder} {
		p.changeConfig(func(c *mcfgv1.MachineOSConfig) {
			c.Spec.ImageBuilder.ImageBuilderType = kind
			metav1.SetMetaDataAnnotation(&c.ObjectMeta, mcfgv1.AnnotationRebuild, "")
		})
		build = p.builtAfter(build)
		require.Equal(t, kind, build.Status.Builder.ImageBuilderType)
		if kind == mcfgv1.PipelineBuilder {
			assert.Equal(t, "True Succeeded", ended(p.run()), "a console shows it after the build")
			assert.Contains(t, p.logOf("push"), "push took ")
		}
		assert.Equal(t, made, p.succeeded())
		assert.Equal(t, tags, p.tags(), "the content is the same too")
	}
}

// builtAfter waits until the build that follows another one has made its image.
func (p *contained) builtAfter(before *mcfgv1.MachineOSBuild) (build *mcfgv1.MachineOSBuild) {
	p.t.Helper()
	p.eventually(func(t *assert.CollectT) {
		builds := p.machineOSBuilds(p.t.Context(), t)
		require.Len(t, builds, 1)
		build = &builds[0]
		require.NotEqual(t, before.UID, build.UID)
		require.Contains(t, conditionText(build.Status.Conditions, status.BuildSucceeded), "True Built")
	})
	return build
}

// testTektonFailingRun also has the labels and annotations of the run tell whose it is.
func testTektonFailingRun(t *testing.T, b *podBuilds) {
	p := b.pool(t, "tekton-fails")
	p.gate.open()
	p.ask("; echo no such package; exit 7", asPipeline)
	p.failed("BuildFailed", "Containerfile line 2: RUN ")
	run := p.run()
	build := p.only()
	assert.Equal(t, p.name, run.GetLabels()[mcfgv1.LabelTargetMachineConfigPool])
	assert.Equal(t, build.Name, run.GetLabels()[mcfgv1.LabelMachineOSBuild])
	assert.Contains(t, run.GetAnnotations()[mcfgv1.AnnotationBuildImage], imagesPath+"/"+p.name+":content-")
	assert.Contains(t, conditionText(build.Status.Conditions, status.BuildFailed), "no such package")
	p.eventually(func(t *assert.CollectT) { assert.Equal(t, "False Failed", ended(&p.runs(t)[0]), "by itself") })
	assert.Contains(t, p.logOf("build"), "no such package")
}

// ended is how Tekton says that a run has ended.
func ended(run *unstructured.Unstructured) string {
	conditions, _, _ := unstructured.NestedSlice(run.Object, "status", "conditions") // none is no end
	for _, c := range conditions {
		if condition, is := c.(map[string]any); is && condition["type"] == "Succeeded" {
			return fmt.Sprintf("%s %s", condition["status"], condition["reason"])
		}
	}
	return ""
}

// logOf is the log of a step of the pool's only pod.
func (p *contained) logOf(step string) string {
	p.t.Helper()
	pods := p.pods()
	require.Len(p.t, pods, 1)
	text, err := p.clients.CoreV1().Pods(stack.Namespace).GetLogs(pods[0].Name, &corev1.PodLogOptions{Container: "step-" + step}).DoRaw(p.t.Context())
	require.NoError(p.t, err)
	return string(text)
}

// lookingFor is a Pipeline whose only step runs in the image itself, and looks for a text in a
// file of the pool's configuration.
func lookingFor(text string) map[string]any {
	security := map[string]any{
		"allowPrivilegeEscalation": false, "capabilities": map[string]any{"drop": []any{"ALL"}},
	}
	image := []any{map[string]any{"name": "IMAGE", "value": "$(params.IMAGE)"}}
	return map[string]any{
		"params": []any{map[string]any{"name": "IMAGE", "type": "string"}, map[string]any{"name": "POOL", "type": "string"}},
		"tasks": []any{map[string]any{"name": "check", "params": image, "taskSpec": map[string]any{
			"params": []any{map[string]any{"name": "IMAGE", "type": "string"}},
			"steps": []any{map[string]any{
				"name": "look", "image": "$(params.IMAGE)", "command": []any{"grep"}, "args": []any{"-q", text, "/etc/motd"}, "securityContext": security,
			}},
		}}},
	}
}

// testTektonVerification has an administrator's Pipeline accept an image, and reject the next one.
func testTektonVerification(t *testing.T, b *podBuilds) {
	own := *b.builds
	own.base, own.host = tinyImage(t), statusOf(t).Registry
	v := verified{own.unasked(t, "tekton-verified")}
	v.ask(func(c *mcfgv1.MachineOSConfig) {
		c.Spec.BaseImagePullSecret.Name, c.Spec.RenderedImagePushSecret.Name = stack.PullSecret, stack.PushSecret
		c.Spec.CurrentImagePullSecret = &mcfgv1.ImageSecretObjectReference{Name: stack.PullSecret}
		c.Spec.Verification = &mcfgv1.ImageVerification{Type: mcfgv1.PipelineBuilder, Pipeline: &mcfgv1.PipelineReference{Name: "tekton-verified"}}
	})
	v.verdict(`False VerificationPending spec.verification.pipeline: Pipeline "tekton-verified" does not exist`)
	pipeline := &unstructured.Unstructured{Object: map[string]any{"spec": lookingFor("one")}}
	pipeline.SetGroupVersionKind(tektonVersion.WithKind("Pipeline"))
	pipeline.SetNamespace(stack.Namespace)
	pipeline.SetName("tekton-verified")
	require.NoError(t, v.Create(t.Context(), pipeline))
	t.Cleanup(func() { require.NoError(t, v.Delete(context.WithoutCancel(t.Context()), pipeline)) })
	image := v.verdict("True Verified")
	v.says(status.Ready, "True Succeeded")
	assert.Equal(t, image.Spec.PullSpec, v.config(t).Status.CurrentImagePullSpec)

	v.write("two")
	rejected := v.verdictOfNext(image, "False VerificationFailed PipelineRun ")
	assert.Equal(t, "look", rejected.Status.Verification.Container)
	assert.Equal(t, new(int32(1)), rejected.Status.Verification.ExitCode)
	v.says(status.Stalled, "True VerificationFailed the image of build ")
	assert.Equal(t, image.Spec.PullSpec, v.config(t).Status.CurrentImagePullSpec, "nodes keep the one before")
	run := &unstructured.Unstructured{}
	run.SetGroupVersionKind(tektonVersion.WithKind("PipelineRun"))
	run.SetNamespace(stack.Namespace)
	run.SetName(rejected.Status.Verification.Job)
	require.NoError(t, v.Delete(t.Context(), run), "which has it run again")
	v.verdictOfNext(image, "False VerificationRunning")
	v.verdictOfNext(image, "False VerificationFailed PipelineRun ")
}
