package pools

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/streams"
)

// naming has a pool name a stream.
func naming(stream string) func(*mcfgv1.MachineConfigPool) {
	return func(p *mcfgv1.MachineConfigPool) { p.Spec.OSImageStream.Name = stream }
}

// onStream says that the pool's nodes are on a stream.
func onStream(stream string) func(*mcfgv1.MachineConfigPool) {
	return func(p *mcfgv1.MachineConfigPool) { p.Status.OSImageStream.Name = stream }
}

func (w *world) editStreams(change func(*mcfgv1.OSImageStream)) {
	w.t.Helper()
	edit(w, mcfgv1.OSImageStreamName, &mcfgv1.OSImageStream{}, change)
}

// offer replaces the streams; the first is the default.
func (w *world) offer(names ...string) {
	w.t.Helper()
	w.editStreams(func(s *mcfgv1.OSImageStream) { s.Status = newStream(names...).Status })
}

// osImage is the OS image in a pool's configuration.
func (w *world) osImage(pool string) string {
	w.t.Helper()
	return w.config(w.wants(pool)).Spec.OSImageURL
}

func (w *world) remembered(pool string) string {
	w.t.Helper()
	return w.pool(pool).Annotations[mcfgv1.AnnotationRememberedStream]
}

func TestAPoolStaysOnItsStream(t *testing.T) {
	t.Parallel()
	losses := map[string]func(*world){
		"nothing is lost": func(*world) {},
		"the status is lost, as in a restored backup": func(w *world) {
			pool := w.pool("worker")
			pool.Status = mcfgv1.MachineConfigPoolStatus{}
			w.quietly(func() error { return w.Status().Update(w.t.Context(), pool) })
		},
		"the annotation is lost": func(w *world) {
			w.editPool("worker", func(p *mcfgv1.MachineConfigPool) { p.Annotations = nil })
		},
		"status and annotation are lost": func(w *world) {
			w.editPool("worker", func(p *mcfgv1.MachineConfigPool) { p.Annotations = nil })
			pool := w.pool("worker")
			pool.Status = mcfgv1.MachineConfigPoolStatus{}
			w.quietly(func() error { return w.Status().Update(w.t.Context(), pool) })
		},
	}
	for name, lose := range losses {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, newPool("worker"), newPool("infra"), newConfig("00-a", "worker", "/etc/a"), newStream("rhel-9", "rhel-10"), newNode("n", worker))
			w.settle(w.reconciler(), "worker", "infra")
			assert.Equal(t, "rhel-9", w.remembered("worker"), "at once, before a node has arrived")
			assert.Empty(t, w.pool("worker").Status.OSImageStream.Name, "which is another question")

			lose(w)
			w.offer("rhel-10", "rhel-9")
			r := w.reconciler() // an upgrade brings a new process too
			w.add(newPool("gpu"))
			w.settle(r, "worker", "infra", "gpu")
			assert.Equal(t, streamImage("rhel-9"), w.osImage("worker"))
			assert.Equal(t, streamImage("rhel-9"), w.osImage("infra"))
			assert.Equal(t, streamImage("rhel-10"), w.osImage("gpu"), "a new pool takes the default")

			w.editNode("n", having(w.wants("worker")))
			w.settle(r, "worker")
			assert.Equal(t, []string{"rhel-9", "rhel-9"}, []string{w.remembered("worker"), w.pool("worker").Status.OSImageStream.Name})
		})
	}
}

func TestAMoveForward(t *testing.T) {
	t.Parallel()
	w := newWorld(t, newPool("worker"), newPool("infra"), newConfig("00-a", "worker", "/etc/a"), newStream("rhel-9", "rhel-10"), newNode("n", worker))
	r := w.reconciler()
	w.settle(r, "worker", "infra")
	w.editNode("n", having(w.wants("worker")))
	w.settle(r, "worker", "infra")
	require.Equal(t, "rhel-9", w.pool("worker").Status.OSImageStream.Name)

	w.editPool("worker", naming("rhel-10"))
	w.settle(r, "worker", "infra")
	assert.Equal(t, streamImage("rhel-10"), w.osImage("worker"))
	assert.Equal(t, "rhel-9", w.pool("worker").Status.OSImageStream.Name, "until the last node has arrived")
	assert.Equal(t, streamImage("rhel-10"), w.osImage("infra"), "a custom pool that names none follows")

	for _, back := range []string{"", "rhel-9"} {
		w.editPool("worker", naming(back))
		w.settle(r, "worker", "infra")
		assert.Equal(t, streamImage("rhel-10"), w.osImage("worker"), "back is no way, whether no one names a stream or the old one")
		assert.Equal(t, streamImage("rhel-10"), w.osImage("infra"))
	}
	assert.Equal(t, `True StreamDowngrade stream "rhel-9" (the pool's spec.osImageStream names it) is of an older major version than "rhel-10", which the pool is on, `+
		"and nodes cannot go back: name another in spec.osImageStream of the pool", w.condition("worker", "RenderDegraded"))
	assert.Contains(t, w.condition("infra", "RenderDegraded"), "True StreamDowngrade")
}

func TestADowngradeOfOneNodeIsRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t, newPool("worker", naming("rhel-10")), newConfig("00-a", "worker", "/etc/a"), newStream("rhel-9", "rhel-10"), newNode("n", worker))
	r := w.reconciler()
	w.settle(r, "worker")
	w.editNode("n", having(w.wants("worker")))
	w.editPool("worker", func(p *mcfgv1.MachineConfigPool) { // a person takes everything back
		delete(p.Annotations, mcfgv1.AnnotationRememberedStream)
		p.Spec.OSImageStream.Name = "rhel-9"
	})
	w.settle(r, "worker")
	assert.Contains(t, w.condition("worker", "RenderDegraded"), `True StreamDowngrade stream "rhel-9" (the pool's spec.osImageStream names it) is of an older `+
		`major version than "rhel-10", which nodes of the pool are on`)
	assert.Equal(t, streamImage("rhel-10"), w.osImage("worker"))
}

func TestAPoolFromBeforeStreams(t *testing.T) {
	t.Parallel()
	kernel := func(version string) func(*corev1.Node) {
		return func(n *corev1.Node) { n.Status.NodeInfo.KernelVersion = version }
	}
	w := newWorld(t, newPool("worker"), newConfig("00-a", "worker", "/etc/a"), newNode("n", worker, kernel("5.14.0-427.el9.x86_64")))
	r := w.reconciler()
	w.settle(r, "worker")
	before := w.wants("worker")
	assert.Empty(t, w.remembered("worker"))

	w.add(newStream("rhel-10", "rhel-11"))
	w.settle(r, "worker")
	assert.Contains(t, w.condition("worker", "RenderDegraded"), "True StreamNotFound the pool's nodes run version 9, by their kernels, ")
	assert.Equal(t, before, w.wants("worker"), "nothing moves")

	w.offer("rhel-10", "rhel-9")
	w.settle(r, "worker")
	assert.Equal(t, streamImage("rhel-9"), w.osImage("worker"))
	assert.Equal(t, "rhel-9", w.remembered("worker"))
}

func TestAStreamIsRemoved(t *testing.T) {
	t.Parallel()
	w := newWorld(t, newPool("worker"), newPool("infra", naming("rhel-9")), newConfig("00-a", "worker", "/etc/a"), newStream("rhel-9", "rhel-10"), newNode("n", worker))
	r := w.reconciler()
	w.settle(r, "worker", "infra")
	w.editNode("n", having(w.wants("worker")))
	w.settle(r, "worker", "infra")
	before := w.wants("worker")
	w.told()

	w.offer("rhel-10")
	w.settle(w.reconciler(), "worker", "infra")
	const says = "Stream 'rhel-9' is no longer available: the pool keeps its image and gets no newer one, and the cluster cannot be upgraded. Migrate to 'rhel-10' before upgrading."
	for _, pool := range []string{"worker", "infra"} {
		assert.Equal(t, "True StreamRemoved "+says, w.condition(pool, "OSStreamDeprecated"))
		assert.Equal(t, "False AsExpected", w.condition(pool, "Degraded"))
		assert.Equal(t, "True Succeeded", w.condition(pool, "Ready"))
	}
	assert.Equal(t, before, w.wants("worker"), "nothing is rendered")
	assert.Equal(t, []string{"Warning StreamRemoved " + says, "Warning StreamRemoved " + says}, w.told())

	w.add(newConfig("50-b", "worker", "/etc/b"))
	w.settle(r, "worker", "infra")
	assert.NotEqual(t, before, w.wants("worker"), "the configuration is another matter")
	assert.Equal(t, streamImage("rhel-9"), w.osImage("worker"))
	assert.Equal(t, "rhel-9", w.config(w.wants("worker")).Annotations[mcfgv1.AnnotationOSImageStream])
	assert.NotContains(t, strings.Join(w.told(), "\n"), "StreamRemoved", "it is told once")

	w.add(newPool("gpu", naming("rhel-9")))
	w.settle(r, "gpu")
	assert.Contains(t, w.condition("gpu", "RenderDegraded"), `True StreamNotFound stream "rhel-9" is not available (the pool's spec.osImageStream names it); available are: rhel-10`)
	assert.Empty(t, w.wants("gpu"), "no one comes new to what is gone")

	w.editPool("infra", naming("rhel-10"))
	w.settle(r, "infra")
	assert.Equal(t, streamImage("rhel-10"), w.osImage("infra"))
	assert.Equal(t, "False AsExpected", w.condition("infra", "OSStreamDeprecated"), "a pool without nodes is there at once")

	w.offer("rhel-10", "rhel-9")
	w.settle(r, "worker")
	assert.Equal(t, "False AsExpected", w.condition("worker", "OSStreamDeprecated"), "it came back")
	assert.Equal(t, streamImage("rhel-9"), w.osImage("worker"))
}

func TestAnUnknownStream(t *testing.T) {
	t.Parallel()
	w := newWorld(t, newPool("worker"), newConfig("00-a", "worker", "/etc/a"), newStream("rhel-9"), newNode("n", worker))
	r := w.reconciler()
	w.settle(r, "worker")
	before := w.pool("worker").Spec.Configuration
	w.told()
	w.editPool("worker", naming("rhel-11"))
	w.add(newConfig("50-b", "worker", "/etc/b"))
	w.settle(r, "worker")
	const says = `stream "rhel-11" is not available (the pool's spec.osImageStream names it); available are: rhel-9`
	assert.Equal(t, "True StreamNotFound "+says, w.condition("worker", "RenderDegraded"))
	assert.Equal(t, "True StreamNotFound RenderDegraded: "+says, w.condition("worker", "Degraded"))
	assert.Equal(t, before, w.pool("worker").Spec.Configuration, "no update")
	assert.Equal(t, "rhel-9", w.remembered("worker"))
	assert.Equal(t, []string{"Warning StreamNotFound " + says}, w.told())
	w.editPool("worker", naming(""))
	w.settle(r, "worker")
	assert.Equal(t, streamImage("rhel-9"), w.osImage("worker"))
}

func TestLifecycleByDate(t *testing.T) {
	t.Parallel()
	w := newWorld(t, newPool("worker"), newConfig("00-a", "worker", "/etc/a"), newStream("rhel9-coreos", "rhel10-coreos"), newNode("n", worker))
	w.clock.SetTime(time.Date(2027, 5, 30, 20, 0, 0, 0, time.UTC))
	w.editStreams(func(s *mcfgv1.OSImageStream) {
		s.Status.AvailableStreams[0].DeprecationDate, s.Status.AvailableStreams[0].EndOfLifeDate = "2027-05-31", "2028-05-31"
	})
	r := w.reconciler()
	w.settle(r, "worker")
	w.editNode("n", having(w.wants("worker")))
	w.settle(r, "worker")
	w.told()
	assert.Equal(t, "False AsExpected", w.condition("worker", "OSStreamDeprecated"))

	again := func() time.Duration {
		result, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: types.NamespacedName{Name: "worker"}})
		require.NoError(t, err)
		return result.RequeueAfter
	}
	day := func(text string) time.Time {
		at, err := streams.ParseDay(text)
		require.NoError(t, err)
		return at
	}
	assert.Equal(t, day("2027-05-31").Sub(w.clock.Now()), again(), "a day is looked forward to")
	w.clock.SetTime(day("2027-05-31"))
	assert.Equal(t, maxRecheck, again())
	assert.Equal(t, "True StreamEndOfLife Stream 'rhel9-coreos' is deprecated and will be removed in a future release. Migrate to 'rhel10-coreos' before upgrading.",
		w.condition("worker", "OSStreamDeprecated"))
	assert.Equal(t, "True Succeeded", w.condition("worker", "Ready"))
	w.clock.SetTime(day("2028-05-31"))
	assert.Zero(t, again())
	assert.Equal(t, "True StreamEndOfLife Stream 'rhel9-coreos' has reached the end of its life: it gets no updates, and the cluster cannot be upgraded. "+
		"Migrate to 'rhel10-coreos' before upgrading.", w.condition("worker", "OSStreamDeprecated"))
	again()
	assert.Len(t, w.told(), 2, "each once")

	w.editPool("worker", naming("rhel10-coreos"))
	w.settle(r, "worker")
	assert.Equal(t, "True StreamEndOfLife Stream 'rhel9-coreos' has reached the end of its life: it gets no updates, and the cluster cannot be upgraded. "+
		"The pool is moving to 'rhel10-coreos', and some nodes have not moved yet.", w.condition("worker", "OSStreamDeprecated"))
	w.editNode("n", having(w.wants("worker")))
	w.settle(r, "worker")
	assert.Equal(t, "False AsExpected", w.condition("worker", "OSStreamDeprecated"))
}

func TestOSStreamDeprecatedWithoutASuccessor(t *testing.T) {
	t.Parallel()
	c := osStreamDeprecated([]streams.Standing{{Stream: "fedora-coreos", Lifecycle: mcfgv1.StreamDeprecated}})
	assert.Equal(t, "Stream 'fedora-coreos' is deprecated and will be removed in a future release. "+
		"Migrate to another stream before upgrading: name it in spec.osImageStream.", c.Message)
}

func TestCompactClusters(t *testing.T) {
	t.Parallel()
	tainted := func(n *corev1.Node) {
		n.Spec.Taints = []corev1.Taint{{Key: "node-role.kubernetes.io/master", Effect: corev1.TaintEffectNoSchedule}}
	}
	controlPlane := newNode("m", []string{"master", "worker"})
	tests := map[string]struct {
		nodes          []*corev1.Node
		pools          []*mcfgv1.MachineConfigPool
		worker, master string
	}{
		"the worker pool goes ahead": {
			[]*corev1.Node{controlPlane},
			[]*mcfgv1.MachineConfigPool{newPool("master"), newPool("worker", naming("rhel-10"))},
			"True CompactCluster The cluster is compact: the nodes of the pool 'master' run everything, on stream 'rhel-9', and this pool follows 'rhel-10'. " +
				"A compact cluster should run one stream: name the same one in both pools.", "False AsExpected",
		},
		"the control plane goes ahead": {
			[]*corev1.Node{controlPlane},
			[]*mcfgv1.MachineConfigPool{newPool("master", naming("rhel-10"), onStream("rhel-9")), newPool("worker", naming("rhel-10"))},
			"False AsExpected", "True CompactCluster The cluster is compact: the pool's nodes run everything, and move from stream 'rhel-9' to 'rhel-10'. " +
				"The cluster runs both streams until the last node has moved: make sure that every node can be drained.",
		},
		"both on one": {
			[]*corev1.Node{controlPlane}, []*mcfgv1.MachineConfigPool{newPool("master"), newPool("worker")}, "False AsExpected", "False AsExpected",
		},
		"there is a worker": {
			[]*corev1.Node{controlPlane, newNode("w", worker)}, []*mcfgv1.MachineConfigPool{newPool("master"), newPool("worker", naming("rhel-10"))}, "False AsExpected", "False AsExpected",
		},
		"there is a node of no pool": {
			[]*corev1.Node{controlPlane, newNode("w", nil)}, []*mcfgv1.MachineConfigPool{newPool("master"), newPool("worker", naming("rhel-10"))}, "False AsExpected", "False AsExpected",
		},
		"the control plane takes no pods": {
			[]*corev1.Node{newNode("m", []string{"master"}, tainted)},
			[]*mcfgv1.MachineConfigPool{newPool("master"), newPool("worker", naming("rhel-10"))},
			"False AsExpected", "False AsExpected",
		},
		"an arbiter does not count": {
			[]*corev1.Node{controlPlane, newNode("a", []string{"arbiter"}, tainted)},
			[]*mcfgv1.MachineConfigPool{newPool("master"), newPool("arbiter"), newPool("worker", naming("rhel-10"))},
			"True CompactCluster", "False AsExpected",
		},
		"without a pool for the control plane": {
			[]*corev1.Node{controlPlane}, []*mcfgv1.MachineConfigPool{newPool("worker", naming("rhel-10"))}, "False AsExpected", "",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, newStream("rhel-9", "rhel-10"))
			for _, n := range tt.nodes {
				w.add(n)
			}
			var names []string
			for _, p := range tt.pools {
				w.add(p)
				names = append(names, p.Name)
			}
			w.settle(w.reconciler(), names...)
			warned := 0
			for pool, want := range map[string]string{"worker": tt.worker, "master": tt.master} {
				if want != "" {
					assert.Contains(t, w.condition(pool, "OSStreamsMixed"), want, pool)
					assert.Equal(t, "False AsExpected", w.condition(pool, "Degraded"))
				}
				if strings.HasPrefix(want, "True") {
					warned++
				}
			}
			events := 0
			for _, e := range w.told() {
				if strings.HasPrefix(e, "Warning CompactCluster The cluster is compact") {
					events++
				}
			}
			assert.Equal(t, warned, events)
		})
	}
}

func TestMachineConfigsOfAStream(t *testing.T) {
	t.Parallel()
	of := func(stream string, mc *mcfgv1.MachineConfig) *mcfgv1.MachineConfig {
		metav1.SetMetaDataLabel(&mc.ObjectMeta, mcfgv1.LabelOSStream, stream)
		return mc
	}
	w := newWorld(t, newPool("worker"), newPool("infra", naming("rhel-10")), newStream("rhel-9", "rhel-10"), newConfig("99-all", "worker", "/etc/a"),
		of("rhel-9", newConfig("00-nine", "worker", "/etc/a")), of("rhel-10", newConfig("00-ten", "worker", "/etc/a")))
	r := w.reconciler()
	w.settle(r, "worker", "infra")
	content := func(pool string) string { return string(w.config(w.wants(pool)).Spec.Config.Raw) }
	assert.Equal(t, sourceReferences([]string{"99-all", "00-nine"}), w.pool("worker").Spec.Configuration.Source)
	assert.Equal(t, sourceReferences([]string{"99-all", "00-ten"}), w.pool("infra").Spec.Configuration.Source)
	assert.Contains(t, content("worker"), "data:,00-nine")
	assert.Contains(t, content("infra"), "data:,00-ten")

	w.editPool("worker", naming("rhel-10"))
	w.settle(r, "worker")
	assert.Contains(t, content("worker"), "data:,00-ten")

	w.editConfig("00-ten", func(mc *mcfgv1.MachineConfig) { delete(mc.Labels, mcfgv1.LabelOSStream) })
	w.settle(r, "worker")
	assert.Contains(t, content("worker"), "data:,99-all", "by name again")
}

func TestARenderedMachineConfigIsMarkedAnew(t *testing.T) {
	t.Parallel()
	w := newWorld(t, newPool("worker"), newConfig("00-a", "worker", "/etc/a"), newStream("rhel-9", "rhel-10"))
	w.settle(w.reconciler(), "worker")
	name := w.wants("worker")
	require.Equal(t, "rhel-9", w.config(name).Annotations[mcfgv1.AnnotationOSImageStream])
	w.editConfig(name, func(mc *mcfgv1.MachineConfig) { delete(mc.Annotations, mcfgv1.AnnotationOSImageStream) })
	w.told()
	r := w.reconciler()
	w.settle(r, "worker")
	assert.Equal(t, "rhel-9", w.config(name).Annotations[mcfgv1.AnnotationOSImageStream], "of an earlier version, it had no mark")
	assert.Empty(t, w.told(), "no one edited it")

	w.editStreams(func(s *mcfgv1.OSImageStream) { // the same image by another name
		s.Status.AvailableStreams = append(s.Status.AvailableStreams, s.Status.AvailableStreams[0])
		s.Status.AvailableStreams[2].Name = "rhel9-coreos"
	})
	w.editPool("worker", naming("rhel9-coreos"))
	w.settle(r, "worker")
	assert.Equal(t, name, w.wants("worker"))
	assert.Equal(t, "rhel9-coreos", w.config(name).Annotations[mcfgv1.AnnotationOSImageStream])
}

func TestFailedWriteIsNotRemembered(t *testing.T) {
	t.Parallel()
	w := newWorld(t, newPool("worker"), newConfig("00-a", "worker", "/etc/a"), newStream("rhel-9", "rhel-10"))
	w.before = once("patch MachineConfigPool", assert.AnError)
	r := w.reconciler()
	_, err := w.reconcile(r, "worker")
	require.ErrorIs(t, err, assert.AnError)
	assert.Empty(t, w.remembered("worker"))
	w.offer("rhel-10", "rhel-9")
	w.settle(r, "worker")
	assert.Equal(t, "rhel-10", w.remembered("worker"), "it had none yet")
}
