//go:build e2e && tekton

package e2e

import (
	"context"
	"slices"
	"strings"
	"testing"

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

// TestTektonFaults has people and faults end runs, and Tekton go away under them.
func TestTektonFaults(t *testing.T) {
	b := withTekton(t)
	for _, step := range []struct {
		name string
		test func(*testing.T, *podBuilds)
	}{
		{"a person cancels a run", testTektonCancelled},
		{"another kind of builder is chosen during a build", testTektonSwitched},
		{"the pod of a run is deleted", testTektonPodDeleted},
		{"a run takes too long", testTektonTimeout},
		{"Tekton's webhook goes away and comes back", testTektonWebhookAway},
		{"a Pipeline of an administrator's own keeps the contract", testTektonOwnPipeline},
		{"Tekton's controller goes away and comes back", testTektonAway},
		{"Tekton is removed and installed again", testTektonRemoved},
	} {
		t.Run(step.name, func(t *testing.T) { step.test(t, b) })
	}
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
	p.says(status.Stalled, "True Interrupted ")
	p.gate.open()
	p.rebuild()
	p.requireVerified(p.succeeded())
}

// testTektonSwitched goes from a run to a Job while a RUN line runs, and back.
func testTektonSwitched(t *testing.T, b *podBuilds) {
	p := b.pool(t, "tekton-switched")
	p.ask("", asPipeline)
	p.arrive()
	p.changeConfig(func(c *mcfgv1.MachineOSConfig) { c.Spec.ImageBuilder.ImageBuilderType = mcfgv1.JobBuilder })
	p.arrive()
	p.eventually(func(t *assert.CollectT) { assert.Empty(t, p.runs(t)) })
	p.changeConfig(asPipeline)
	p.arrive()
	p.eventually(func(t *assert.CollectT) {
		jobs, err := p.clients.BatchV1().Jobs(stack.Namespace).List(p.t.Context(), p.ofBuild())
		require.NoError(t, err)
		assert.Empty(t, jobs.Items)
	})
	p.gate.open()
	p.succeeded()
}

// testTektonPodDeleted has the cause survive the pod.
func testTektonPodDeleted(t *testing.T, b *podBuilds) {
	p := b.pool(t, "tekton-deleted")
	p.ask("", asPipeline)
	p.arrive()
	require.NoError(t, p.clients.CoreV1().Pods(stack.Namespace).Delete(t.Context(), p.newest().Name, metav1.DeleteOptions{}))
	p.retries("step build was stopped, for example by a deletion, an eviction or a drain; it was at Containerfile line 2: RUN ")
	p.gate.open()
	p.succeeded()
}

// testTektonTimeout has the step end before Tekton deletes its pod.
func testTektonTimeout(t *testing.T, b *podBuilds) {
	p := b.pool(t, "tekton-timeout")
	p.ask("", asPipeline, retries(0), func(c *mcfgv1.MachineOSConfig) { c.Spec.BuildTimeout = "1m" })
	p.arrive()
	p.failed(mcfgv1.ReasonTimedOut, "step build took longer than 1m0s, which is spec.buildTimeout of the MachineOSConfig")
	assert.Contains(t, conditionText(p.only().Status.Conditions, status.BuildFailed), "it was at Containerfile line 2: RUN ")
}

// testTektonWebhookAway asks for a build while nothing of Tekton's can be written.
func testTektonWebhookAway(t *testing.T, b *podBuilds) {
	p := b.pool(t, "tekton-webhook")
	p.gate.open()
	p.scale("tekton-pipelines-webhook", "0")
	t.Cleanup(func() { p.scale("tekton-pipelines-webhook", "1") })
	p.gone("webhook")
	p.ask("", asPipeline)
	p.says(status.Reconciling, "True Waiting Tekton's webhook does not answer: see that the Deployment tekton-pipelines-webhook runs")
	p.scale("tekton-pipelines-webhook", "1")
	p.succeeded()
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
	p.failed(mcfgv1.ReasonInvalid, "the cluster refuses to create the pod of task inspect: ")
	assert.Contains(t, conditionText(p.only().Status.Conditions, status.BuildFailed), "begin with verification-; not allowed: "+signingKey)

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

// scale has so many pods of a Deployment of Tekton's run.
func (p *contained) scale(deployment, replicas string) {
	p.t.Helper()
	_, err := p.clients.AppsV1().Deployments(await.TektonNamespace).Patch(context.WithoutCancel(p.t.Context()), deployment,
		types.MergePatchType, []byte(`{"spec":{"replicas":`+replicas+`}}`), metav1.PatchOptions{})
	require.NoError(p.t, err)
}

// gone waits until a part of Tekton has no pods.
func (p *contained) gone(part string) {
	p.eventually(func(t *assert.CollectT) {
		pods, err := p.clients.CoreV1().Pods(await.TektonNamespace).List(p.t.Context(), metav1.ListOptions{LabelSelector: "app.kubernetes.io/name=" + part})
		require.NoError(t, err)
		require.Empty(t, pods.Items)
	})
}

// testTektonAway ends Tekton's controller in the middle of a build.
func testTektonAway(t *testing.T, b *podBuilds) {
	p := b.pool(t, "tekton-away")
	p.ask("", asPipeline)
	p.arrive()
	p.scale(await.TektonController, "0")
	t.Cleanup(func() { p.scale(await.TektonController, "1") })
	p.gone("controller")
	p.gate.open()
	p.eventually(func(t *assert.CollectT) {
		got := conditionText(p.config(t).Status.Conditions, status.Reconciling)
		assert.True(t, strings.HasPrefix(got, "True Waiting "), got)
		assert.Contains(t, got, "Tekton does not continue: check that the Deployment tekton-pipelines-controller runs")
	})
	p.scale(await.TektonController, "1")
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
