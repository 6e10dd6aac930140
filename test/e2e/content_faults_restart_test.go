//go:build e2e

package e2e

import (
	"context"
	"net/http"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/internal/status"
	"github.com/layerwright/layerwright/test/cluster/faultproxy"
	"github.com/layerwright/layerwright/test/cluster/stack"
)

// podPhase is a moment of a build in a pod, at which the controller dies.
type podPhase struct {
	// says is what the build says at that moment.
	says string
	// begin asks for the image. It returns what waits for the moment, and what lets the build go
	// on.
	begin func(p *contained) (wait, release func())
}

// podPhases are the moments of a build in a pod, in their order.
var podPhases = map[string]podPhase{
	"pending": {says: "True Waiting no node can run the build: ", begin: func(p *contained) (wait, release func()) {
		p.gate.open()
		label := "layerwright.test/" + p.name
		p.ask("", func(c *mcfgv1.MachineOSConfig) {
			c.Spec.BuildPlacement = &mcfgv1.BuildPlacement{NodeSelector: map[string]string{label: ""}}
		})
		return func() {}, func() { p.labelNode(label) }
	}},
	"fetch": {says: "True Building step fetch", begin: func(p *contained) (wait, release func()) {
		p.gate.open()
		base := p.copyBase(p.t, p.name)
		return p.heldAt(faultproxy.Rule{Method: http.MethodGet, Path: base.path, Client: byPod}, func(c *mcfgv1.MachineOSConfig) {
			c.Spec.BaseOSImagePullSpec = mcfgv1.ImageReferenceFormat(base.pinned)
		})
	}},
	"build": {says: "True Building step build, instruction ", begin: func(p *contained) (wait, release func()) {
		p.ask("")
		return p.arrive, p.gate.open
	}},
	"push": {says: "True Building step push", begin: func(p *contained) (wait, release func()) {
		p.gate.open()
		return p.heldAt(faultproxy.Rule{Method: http.MethodPut, Path: p.path("manifests/"), Client: byPod})
	}},
	"append": {says: "True Building ", begin: func(p *contained) (wait, release func()) {
		p.gate.open()
		return p.heldAt(faultproxy.Rule{Method: http.MethodPut, Path: p.path("manifests/"), Client: byController})
	}},
}

// heldAt asks for an image of which a request is held.
func (p *contained) heldAt(rule faultproxy.Rule, changes ...func(*mcfgv1.MachineOSConfig)) (wait, release func()) {
	p.t.Helper()
	fault, held := faultproxy.HoldRequest()
	rule.Fault = fault
	p.breaking(rule)
	p.ask("", changes...)
	return func() { p.await(held.Arrived, "request") }, held.Release
}

// labelNode lets a build that waits for a label of a node find one.
func (p *contained) labelNode(label string) {
	p.t.Helper()
	set := func(value string) {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node1"}}
		patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"`+label+`":`+value+`}}}`))
		require.NoError(p.t, p.Patch(context.WithoutCancel(p.t.Context()), node, patch))
	}
	p.t.Cleanup(func() { set("null") })
	set(`""`)
}

// testTheControllerDiesWhileContentIsBuilt kills it in every phase of a build in a pod, and then
// deletes its pod. The builds go on as if nothing were: nothing is built twice.
func testTheControllerDiesWhileContentIsBuilt(t *testing.T) {
	b := newPodBuilds(t, newBuilds(t))
	pools := map[string]*contained{}
	waits, releases := map[string]func(){}, map[string]func(){}
	for phase, of := range podPhases {
		pools[phase] = b.pool(t, "pod-dies-"+phase)
		waits[phase], releases[phase] = of.begin(pools[phase])
	}
	before := map[string]*mcfgv1.MachineOSBuild{}
	for phase, wait := range waits {
		wait()
		pools[phase].buildSays(status.Reconciling, podPhases[phase].says)
		before[phase] = pools[phase].only()
	}
	pools["append"].jobEnds()

	holder := leaseHolder(t)
	signal(t, controllerPod(t), syscall.SIGKILL)
	heldByOther(t, holder)
	holder = leaseHolder(t)
	pod := controllerPod(t)
	require.NoError(t, b.clients.CoreV1().Pods(pod.Namespace).Delete(t.Context(), pod.Name, metav1.DeleteOptions{GracePeriodSeconds: new(int64)}))
	heldByOther(t, holder)

	for phase, p := range pools {
		p.buildSays(status.Reconciling, podPhases[phase].says)
		assert.Equal(t, before[phase].Status.BuildStart, p.only().Status.BuildStart, phase)
		releases[phase]()
	}
	for phase, p := range pools {
		p.requireBuilt(1)
		assert.Equal(t, before[phase].UID, p.only().UID, "the same build is continued")
		if phase != "build" {
			p.arrive()
		}
		assert.Empty(t, p.gate.arrivals, "each line ran once")
	}
}

// testADigestThatNoOneKnows has the pod of a build deleted after it has pushed, and before any
// controller could read what.
func testADigestThatNoOneKnows(t *testing.T) {
	b := newPodBuilds(t, newBuilds(t))
	p := b.pool(t, "unknown-digest")
	p.gate.open()
	wait, release := p.heldAt(faultproxy.Rule{Method: http.MethodPut, Path: p.path("manifests/"), Client: byPod})
	wait()
	t.Cleanup(func() { scale(t, 1) })
	scale(t, 0)
	release()
	p.jobEnds()
	require.NoError(t, b.clients.CoreV1().Pods(stack.Namespace).Delete(t.Context(), p.newest().Name, metav1.DeleteOptions{}))
	p.eventually(func(t *assert.CollectT) { assert.Empty(t, p.pods()) })
	scale(t, 1)
	p.requireBuiltBy(2)
}

// jobEnds waits until the Job of the pool's build has succeeded.
func (p *contained) jobEnds() {
	p.t.Helper()
	p.eventually(func(t *assert.CollectT) {
		var ended []string
		for _, c := range p.job().Status.Conditions {
			ended = append(ended, string(c.Type)+" "+string(c.Status))
		}
		assert.Contains(t, strings.Join(ended, ","), string(batchv1.JobComplete)+" True")
	})
}
