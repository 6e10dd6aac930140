//go:build e2e && tekton

package e2e

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/internal/status"
	"github.com/layerwright/layerwright/test/cluster/await"
	"github.com/layerwright/layerwright/test/cluster/stack"
)

var tektonVersion = schema.GroupVersion{Group: "tekton.dev", Version: "v1"}

func asPipeline(c *mcfgv1.MachineOSConfig) {
	c.Spec.ImageBuilder.ImageBuilderType = mcfgv1.PipelineBuilder
}

// TestTekton builds and verifies with Tekton's own controller, webhook and programs.
func TestTekton(t *testing.T) {
	mustCluster(t, "--name", clusterName, "up", "--with-tekton")
	b := newPodBuilds(t, newBuilds(t))
	for _, step := range []struct {
		name string
		test func(*testing.T, *podBuilds)
	}{
		{"PipelineRuns make the image that Jobs make", testTektonSameImage},
		{"a RUN line that fails is told by its line", testTektonFailingRun},
		{"a person cancels a run", testTektonCancelled},
		{"a Pipeline of an administrator's own keeps the contract", testTektonOwnPipeline},
		{"Tekton's controller goes away and comes back", testTektonAway},
		{"Tekton is removed and installed again", testTektonRemoved},
		{"a Pipeline verifies an image", testTektonVerification},
	} {
		t.Run(step.name, func(t *testing.T) { step.test(t, b) })
	}
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

// testTektonSameImage has Jobs and PipelineRuns build from the same inputs, by turns, and measures
// both. What else the machine does makes some slow, so that the fastest are compared.
func testTektonSameImage(t *testing.T, b *podBuilds) {
	const rounds = 3
	p := b.pool(t, "tekton-same")
	p.gate.open()
	p.ask("")
	made := p.succeeded()
	tags, build := p.tags(), p.only()
	fastest := map[mcfgv1.MachineOSImageBuilderType]time.Duration{}
	for round := range rounds {
		for _, kind := range []mcfgv1.MachineOSImageBuilderType{mcfgv1.PipelineBuilder, mcfgv1.JobBuilder} {
			p.changeConfig(func(c *mcfgv1.MachineOSConfig) {
				c.Spec.ImageBuilder.ImageBuilderType = kind
				metav1.SetMetaDataAnnotation(&c.ObjectMeta, mcfgv1.AnnotationRebuild, "")
			})
			build = p.builtAfter(build)
			require.Equal(t, kind, build.Status.Builder.ImageBuilderType)
			assert.Equal(t, made, p.succeeded())
			assert.Equal(t, tags, p.tags(), "the content is the same too")
			took := build.Status.BuildEnd.Sub(build.Status.BuildStart.Time)
			t.Logf("round %d: the %s took %v", round+1, kind, took)
			if before, has := fastest[kind]; !has || took < before {
				fastest[kind] = took
			}
		}
	}
	job, run := fastest[mcfgv1.JobBuilder], fastest[mcfgv1.PipelineBuilder]
	t.Logf("at best a Job took %v, and a PipelineRun %v, which is %.2f times as long", job, run, run.Seconds()/job.Seconds())
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
	conditions, _, err := unstructured.NestedSlice(run.Object, "status", "conditions")
	require.NoError(t, err)
	require.Len(t, conditions, 1)
}

// testTektonCancelled is what `tkn pipelinerun cancel` does.
func testTektonCancelled(t *testing.T, b *podBuilds) {
	p := b.pool(t, "tekton-cancelled")
	p.ask("", asPipeline)
	p.arrive()
	p.patch(p.run(), `{"spec":{"status":"Cancelled"}}`)
	p.eventually(func(t *assert.CollectT) {
		assert.Contains(t, conditionText(p.only().Status.Conditions, status.BuildInterrupted), "True Interrupted someone cancelled PipelineRun ")
	})
	p.gate.open()
	p.rebuild()
	p.requireVerified(p.succeeded())
}

// testTektonOwnPipeline has a copy of our Pipeline, with a task after assemble, refuse an image and
// then let it through. Its first version reaches for the signing key.
func testTektonOwnPipeline(t *testing.T, b *podBuilds) {
	p := b.pool(t, "tekton-own")
	p.gate.open()
	p.ask("", asPipeline, retries(0), func(c *mcfgv1.MachineOSConfig) {
		c.Spec.ImageBuilder.Pipeline = &mcfgv1.PipelineReference{Name: p.name}
	})
	p.says(status.Reconciling, `True Waiting Pipeline "tekton-own" is not in namespace "layerwright"`)
	ours := &unstructured.Unstructured{}
	ours.SetGroupVersionKind(tektonVersion.WithKind("Pipeline"))
	require.NoError(t, p.Get(t.Context(), client.ObjectKey{Namespace: stack.Namespace, Name: "layerwright-os-image-v1"}, ours))
	own := &unstructured.Unstructured{Object: map[string]any{"spec": ours.Object["spec"]}}
	own.SetGroupVersionKind(ours.GroupVersionKind())
	own.SetNamespace(stack.Namespace)
	own.SetName(p.name)
	tasks, _, err := unstructured.NestedSlice(own.Object, "spec", "tasks")
	require.NoError(t, err)
	inspecting := func(command string, volumes ...any) {
		spec := map[string]any{
			"params": []any{map[string]any{"name": "builder-image", "type": "string"}}, "volumes": volumes,
			"steps": []any{map[string]any{
				"name": "inspect", "image": "$(params.builder-image)", "command": []any{"/usr/bin/layerwright-builder", command},
				"securityContext": map[string]any{"allowPrivilegeEscalation": false, "capabilities": map[string]any{"drop": []any{"ALL"}}},
			}},
		}
		require.NoError(t, unstructured.SetNestedSlice(own.Object, append(slices.Clone(tasks), map[string]any{
			"name": "inspect", "runAfter": []any{"assemble"}, "taskSpec": spec,
			"params": []any{map[string]any{"name": "builder-image", "value": "$(params.builder-image)"}},
		}), "spec", "tasks"))
	}
	inspecting("--version", map[string]any{"name": "key", "secret": map[string]any{"secretName": signingKey}})
	require.NoError(t, p.Create(t.Context(), own))
	t.Cleanup(func() { require.NoError(t, p.Delete(context.WithoutCancel(t.Context()), own)) })
	p.failed(mcfgv1.ReasonInvalid, "task inspect: ")
	assert.Contains(t, conditionText(p.only().Status.Conditions, status.BuildFailed), "begin with verification-; not: "+signingKey)

	inspecting("refuse")
	require.NoError(t, p.Update(t.Context(), own))
	p.rebuild()
	p.eventually(func(t *assert.CollectT) {
		assert.Contains(t, conditionText(p.only().Status.Conditions, status.BuildFailed), `task inspect: "step-inspect" exited with code 2`)
	})
	name, _, err := unstructured.NestedString(p.run().Object, "spec", "pipelineRef", "name")
	require.NoError(t, err)
	assert.Equal(t, p.name, name)

	inspecting("--version")
	require.NoError(t, p.Update(t.Context(), own))
	p.rebuild()
	p.requireVerified(p.succeeded())
}

func (p *contained) patch(object client.Object, patch string) {
	p.t.Helper()
	require.NoError(p.t, p.Patch(p.t.Context(), object, client.RawPatch(types.MergePatchType, []byte(patch))))
}

// scale has so many of Tekton's controllers run.
func (p *contained) scale(replicas string) {
	p.t.Helper()
	_, err := p.clients.AppsV1().Deployments(await.TektonNamespace).Patch(context.WithoutCancel(p.t.Context()), await.TektonController,
		types.MergePatchType, []byte(`{"spec":{"replicas":`+replicas+`}}`), metav1.PatchOptions{})
	require.NoError(p.t, err)
}

// testTektonAway ends Tekton's controller in the middle of a build.
func testTektonAway(t *testing.T, b *podBuilds) {
	p := b.pool(t, "tekton-away")
	p.ask("", asPipeline)
	p.arrive()
	p.scale("0")
	t.Cleanup(func() { p.scale("1") })
	p.eventually(func(t *assert.CollectT) {
		pods, err := p.clients.CoreV1().Pods(await.TektonNamespace).List(p.t.Context(), metav1.ListOptions{LabelSelector: "app.kubernetes.io/name=controller"})
		require.NoError(t, err)
		require.Empty(t, pods.Items)
	})
	p.gate.open()
	p.eventually(func(t *assert.CollectT) {
		got := conditionText(p.config(t).Status.Conditions, status.Reconciling)
		assert.True(t, strings.HasPrefix(got, "True Waiting "), got)
		assert.Contains(t, got, "Tekton does not go on: see that the Deployment tekton-pipelines-controller runs")
	})
	p.scale("1")
	p.succeeded()
}

// testTektonRemoved takes away the kind, and with it the run.
func testTektonRemoved(t *testing.T, b *podBuilds) {
	p := b.pool(t, "tekton-removed")
	p.ask("", asPipeline)
	p.arrive()
	definition := &unstructured.Unstructured{}
	definition.SetGroupVersionKind(schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"})
	definition.SetName("pipelineruns.tekton.dev")
	require.NoError(t, p.Delete(t.Context(), definition))
	p.says(status.Reconciling, "True KindNotInstalled ")
	p.gate.open()
	mustCluster(t, "--name", clusterName, "up", "--with-tekton")
	require.NoError(t, await.DeploymentAvailable(within(t), p.clients, stack.Namespace, stack.ControllerName))
	p.succeeded()
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
