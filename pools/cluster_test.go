package pools

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	mcfgv1alpha1 "github.com/layerwright/layerwright/api/machineconfiguration/v1alpha1"
	"github.com/layerwright/layerwright/internal/status"
)

// silent is a Node as Kubernetes' own controllers leave one that no kubelet speaks for. They would
// make any other such in the course of the test.
func silent(n *corev1.Node) { withCondition(corev1.NodeReady, corev1.ConditionUnknown)(n) }

// TestPoolsOnAnAPIServer is one story on one API server: pools have fixed names there. Each part
// leaves it as it found it, or says so.
func TestPoolsOnAnAPIServer(t *testing.T) { // its parts follow each other, so nothing here is parallel
	c := newCluster(t)
	c.offer(newStream("rhel-9", "rhel-10"))
	c.create(newPool("worker"), newPool("infra"), newConfig("00-base", "worker", "/etc/base"), newConfig("50-infra", "infra", "/etc/infra"),
		newNode("n1", worker, silent), newNode("n2", worker, silent))
	options := Options{RenderedConfigLimit: 2, ControllerVersion: "v1.2.3", Settle: tick}
	c.start(options)

	for _, part := range []struct {
		name string
		run  func()
	}{
		{"pools get their configuration", c.testFirstConfiguration},
		{"another pool, and heartbeats, change nothing", c.testIdle},
		{"MachineConfigs come and go", c.testChanges},
		{"a broken MachineConfig", c.testBroken},
		{"an image and a stream", c.testImageConflict},
		{"a configuration that is too large", c.testTooLarge},
		{"nodes are counted", c.testNodes},
		{"an edited rendered MachineConfig", c.testEdited},
		{"retention", c.testRetention},
		{"restarts", func() { c.testRestarts(options) }},
		{"a deleted pool's rendered MachineConfigs go with it", c.testDeleted},
	} {
		require.True(t, t.Run(part.name, func(t *testing.T) {
			outer := c.t
			c.t = t
			defer func() { c.t = outer }()
			part.run()
		}))
	}
}

func (c *cluster) testFirstConfiguration() {
	t := c.t
	infra := c.settled("infra", joining("00-base", "50-infra"))
	pool := c.settled("worker", joining("00-base"))
	c.settled("infra", saying("Ready", "True Succeeded"))
	mc := &mcfgv1.MachineConfig{}
	require.NoError(t, c.Get(t.Context(), client.ObjectKey{Name: pool.Spec.Configuration.Name}, mc))
	assert.True(t, metav1.IsControlledBy(mc, pool))
	assert.Equal(t, streamImage("rhel-9"), mc.Spec.OSImageURL)
	assert.Equal(t, infra.Spec.Configuration, c.pool("infra").Status.Configuration)
	assert.Equal(t, "rhel-9", c.pool("infra").Status.OSImageStream.Name)

	c.eventually(func(t *assert.CollectT) {
		var list eventsv1.EventList
		require.NoError(t, c.List(c.t.Context(), &list, client.InNamespace(metav1.NamespaceDefault)))
		assert.True(t, slices.ContainsFunc(list.Items, func(e eventsv1.Event) bool {
			return e.Reason == "RenderedConfigGenerated" && e.Regarding.Name == "worker" && strings.Contains(e.Note, mc.Name)
		}))
	})
}

// testIdle makes a reconcile of every pool, by a pool that is new, and looks at what the others
// were written.
func (c *cluster) testIdle() {
	t := c.t
	c.settled("worker", saying("Updated", "False NoNodeAgent"))
	before := []*mcfgv1.MachineConfigPool{c.pool("worker"), c.pool("infra")}
	c.written()
	node := &corev1.Node{}
	require.NoError(t, c.Get(t.Context(), client.ObjectKey{Name: "n1"}, node))
	for i := range node.Status.Conditions {
		node.Status.Conditions[i].LastHeartbeatTime = metav1.NewTime(time.Now().Add(time.Minute))
	}
	require.NoError(t, c.Status().Update(t.Context(), node))
	c.create(newPool("gpu"))
	gpu := c.settled("gpu", saying("Ready", "True Succeeded"))
	raw := &unstructured.Unstructured{}
	raw.SetGroupVersionKind(mcfgv1.GroupVersion.WithKind(poolKind))
	require.NoError(t, c.Get(t.Context(), client.ObjectKeyFromObject(gpu), raw))
	for _, count := range []string{"machineCount", "updatedMachineCount", "readyMachineCount", "unavailableMachineCount", "degradedMachineCount"} {
		n, has, err := unstructured.NestedInt64(raw.Object, "status", count)
		assert.True(t, err == nil && has && n == 0, "a count of 0 is written: %s", count)
	}
	for _, pool := range before {
		assert.Equal(t, pool.ResourceVersion, c.pool(pool.Name).ResourceVersion)
	}
	const api = "/apis/machineconfiguration.openshift.io/v1/"
	writes := c.written()
	require.GreaterOrEqual(t, len(writes), 3)
	assert.Equal(t, []string{"POST " + api + "machineconfigs", "PATCH " + api + "machineconfigpools/gpu", "PATCH " + api + "machineconfigpools/gpu/status"}, writes[:3])
	for _, write := range writes[3:] {
		assert.Equal(t, "PATCH "+api+"machineconfigpools/gpu/status", write)
	}
	c.delete(gpu)
}

func (c *cluster) testChanges() {
	t := c.t
	first := c.pool("worker").Spec.Configuration.Name
	c.create(newConfig("50-chrony", "worker", "/etc/chrony.conf"))
	second := c.settled("worker", joining("00-base", "50-chrony")).Spec.Configuration.Name
	c.settled("infra", joining("00-base", "50-chrony", "50-infra"))
	assert.NotEqual(t, first, second)

	c.changeConfig("50-chrony", func(mc *mcfgv1.MachineConfig) { mc.Spec.KernelArguments = []string{"nosmt"} })
	third := c.settled("worker", func(t *assert.CollectT, p *mcfgv1.MachineConfigPool) {
		assert.NotContains(t, []string{first, second}, p.Spec.Configuration.Name)
	}).Spec.Configuration.Name
	c.changeConfig("50-chrony", func(mc *mcfgv1.MachineConfig) { mc.Labels[mcfgv1.LabelRole] = "none" })
	c.settled("worker", joining("00-base"))
	assert.Equal(t, first, c.pool("worker").Spec.Configuration.Name)

	c.changePool("worker", func(p *mcfgv1.MachineConfigPool) { p.Spec.Paused = true })
	c.changeConfig("50-chrony", func(mc *mcfgv1.MachineConfig) { mc.Labels[mcfgv1.LabelRole] = "worker" })
	c.settled("worker", saying("Updated", "False Paused Pool is paused; will not update to "+third))
	assert.Equal(t, third, c.pool("worker").Spec.Configuration.Name)
	c.changePool("worker", func(p *mcfgv1.MachineConfigPool) { p.Spec.Paused = false })
	c.settled("worker", joining("00-base", "50-chrony"))
	c.delete(newConfig("50-chrony", "worker", ""))
	c.settled("worker", joining("00-base"))
}

func (c *cluster) testBroken() {
	t := c.t
	good := c.pool("worker").Spec.Configuration
	broken := newConfig("60-broken", "worker", "/etc/b")
	broken.Spec.Config.Raw = []byte(`{"ignition":{"version":"3.4.0"},"storage":{"files":[{"path":"relative/path"}]}}`)
	c.create(broken)
	pool := c.settled("worker", saying("RenderDegraded", `True InvalidMachineConfig MachineConfig "60-broken": `))
	assert.Contains(t, status.Find(pool.GetConditions(), "RenderDegraded").Message, "storage.files[0].path")
	assert.Equal(t, good, pool.Spec.Configuration)
	c.settled("worker", saying("Degraded", "True InvalidMachineConfig RenderDegraded: "))
	c.delete(broken)
	c.settled("worker", saying("RenderDegraded", "False AsExpected"))
	c.settled("infra", saying("Ready", "True Succeeded"))
}

func (c *cluster) testImageConflict() {
	override := newConfig("70-image", "worker", "/etc/i")
	override.Spec.OSImageURL = "quay.io/own/os:1"
	c.create(override)
	c.settled("worker", joining("00-base", "70-image"))
	c.changePool("worker", func(p *mcfgv1.MachineConfigPool) { p.Spec.OSImageStream.Name = "rhel-10" })
	for _, pool := range []string{"worker", "infra"} {
		c.settled(pool, saying("RenderDegraded", `True OSImageURLConflict MachineConfig "70-image": spec.osImageURL: `+
			"cannot override MachineConfig osImageURL and set MachineConfigPool spec.osImageStream.name simultaneously"))
	}
	c.delete(override)
	c.settled("worker", joining("00-base"))
	c.settled("infra", func(t *assert.CollectT, p *mcfgv1.MachineConfigPool) {
		assert.Equal(t, "rhel-10", p.Status.OSImageStream.Name)
	})
}

// testTooLarge tries sizes that are refused in different places: by etcd, by its client, and by the
// API server.
func (c *cluster) testTooLarge() {
	for _, size := range []int{800 << 10, 1 << 20, 1400 << 10} {
		for i := range 3 {
			large := newConfig(fmt.Sprintf("80-large-%d", i), "worker", fmt.Sprintf("/etc/large-%d", i))
			large.Spec.Config.Raw = fmt.Appendf(nil, `{"ignition":{"version":"3.4.0"},"storage":{"files":[{"path":"/etc/large-%d","contents":{"source":"data:,%s"}}]}}`,
				i, strings.Repeat("x", size))
			c.create(large)
			if i > 0 {
				c.settled("worker", saying("RenderDegraded", "True RenderedConfigTooLarge the pool's MachineConfigs together are larger than the API server stores"))
			}
		}
		for i := range 3 {
			c.delete(newConfig(fmt.Sprintf("80-large-%d", i), "worker", ""))
		}
		c.settled("worker", joining("00-base"))
		c.settled("worker", saying("RenderDegraded", "False"))
		c.settled("infra", joining("00-base", "50-infra"))
	}
}

func (c *cluster) testNodes() {
	name := c.pool("worker").Spec.Configuration.Name
	c.changeNode("n1", having(name))
	c.settled("worker", func(t *assert.CollectT, p *mcfgv1.MachineConfigPool) {
		assert.Equal(t, []int32{2, 1}, []int32{p.Status.MachineCount, p.Status.UpdatedMachineCount})
		saying("Updated", "False NoNodeAgent Will not update to "+name+": 1 of 2 nodes are updated, and 1 have no node agent")(t, p)
		assert.Empty(t, p.Status.Configuration.Name)
	})
	c.changeNode("n2", func(n *corev1.Node) {
		having("rendered-worker-old")(n)
		inState(mcfgv1.NodeStateDegraded, "disk full")(n)
	})
	c.settled("worker", saying("NodeDegraded", `True NodesDegraded Node n2 is reporting: "disk full"`))
	c.changeNode("n2", having(name))
	c.settled("worker", func(t *assert.CollectT, p *mcfgv1.MachineConfigPool) {
		assert.Equal(t, p.Spec.Configuration, p.Status.Configuration)
		assert.Equal(t, "rhel-10", p.Status.OSImageStream.Name)
		saying("Updated", "True Succeeded All nodes are updated with "+name)(t, p)
	})

	// n2 moves to another pool, and is then in two.
	c.changeNode("n2", labelled("node-role.kubernetes.io/infra", ""))
	c.settled("worker", func(t *assert.CollectT, p *mcfgv1.MachineConfigPool) {
		assert.Equal(t, int32(1), p.Status.MachineCount)
	})
	c.settled("infra", func(t *assert.CollectT, p *mcfgv1.MachineConfigPool) {
		assert.Equal(t, int32(1), p.Status.MachineCount)
	})
	c.create(newPool("gpu"))
	c.changeNode("n2", labelled("node-role.kubernetes.io/gpu", ""))
	for _, pool := range []string{"infra", "gpu"} {
		c.settled(pool, func(t *assert.CollectT, p *mcfgv1.MachineConfigPool) {
			assert.Zero(t, p.Status.MachineCount)
			saying("NodeDegraded", "True NodesInSeveralPools Node n2 is selected by the pools gpu and infra")(t, p)
		})
	}
	c.delete(c.pool("gpu"))
	c.settled("infra", func(t *assert.CollectT, p *mcfgv1.MachineConfigPool) {
		assert.Equal(t, int32(1), p.Status.MachineCount)
	})
	c.changeNode("n2", func(n *corev1.Node) {
		delete(n.Labels, "node-role.kubernetes.io/infra")
		delete(n.Labels, "node-role.kubernetes.io/gpu")
	})
	c.settled("worker", saying("Ready", "True Succeeded"))
}

func (c *cluster) testEdited() {
	name := c.pool("worker").Spec.Configuration.Name
	good := &mcfgv1.MachineConfig{}
	require.NoError(c.t, c.Get(c.t.Context(), client.ObjectKey{Name: name}, good))
	for _, edit := range []func(*mcfgv1.MachineConfig){
		func(mc *mcfgv1.MachineConfig) { mc.Spec.FIPS = true },
		func(mc *mcfgv1.MachineConfig) { mc.Spec.Config = runtime.RawExtension{Raw: []byte(`{}`)} },
		func(mc *mcfgv1.MachineConfig) { mc.OwnerReferences = nil },
	} {
		c.changeConfig(name, edit)
		c.eventually(func(t *assert.CollectT) {
			mc := &mcfgv1.MachineConfig{}
			require.NoError(t, c.Get(c.t.Context(), client.ObjectKey{Name: name}, mc))
			assert.Equal(t, good.Spec, mc.Spec)
			assert.Equal(t, good.OwnerReferences, mc.OwnerReferences)
		})
	}
	c.delete(good)
	c.eventually(func(t *assert.CollectT) {
		mc := &mcfgv1.MachineConfig{}
		require.NoError(t, c.Get(c.t.Context(), client.ObjectKey{Name: name}, mc))
		assert.NotEqual(t, good.UID, mc.UID)
	})
}

func (c *cluster) testRetention() {
	t := c.t
	next := func(argument string) string {
		c.changeConfig("50-infra", func(mc *mcfgv1.MachineConfig) { mc.Spec.KernelArguments = []string{argument} })
		return c.settled("infra", func(t *assert.CollectT, p *mcfgv1.MachineConfigPool) {
			mc := &mcfgv1.MachineConfig{}
			require.NoError(t, c.Get(c.t.Context(), client.ObjectKey{Name: p.Spec.Configuration.Name}, mc))
			assert.Equal(t, []string{argument}, mc.Spec.KernelArguments)
			assert.Equal(t, p.Spec.Configuration.Name, p.Status.Configuration.Name)
		}).Spec.Configuration.Name
	}
	onNode := next("a")
	c.changeNode("n1", annotated(mcfgv1.AnnotationCurrentConfig, onNode))
	built := next("b")
	build := &mcfgv1.MachineOSBuild{ObjectMeta: metav1.ObjectMeta{Name: "infra-1"}, Spec: mcfgv1.MachineOSBuildSpec{
		MachineConfig: mcfgv1.MachineConfigReference{Name: built}, MachineOSConfig: mcfgv1.MachineOSConfigReference{Name: "infra"},
		RenderedImagePushSpec: "quay.io/own/infra:1",
	}}
	c.create(build)
	imaged := next("c")
	image := &mcfgv1alpha1.MachineOSImage{ObjectMeta: metav1.ObjectMeta{Name: "infra-1"}, Spec: mcfgv1alpha1.MachineOSImageSpec{
		PullSpec: mcfgv1.ImageDigestFormat(pinned("1")), RenderedMachineConfig: imaged, MachineConfigPool: "infra",
	}}
	c.create(image)
	unused := next("d")
	// The creation times that the API stores are whole seconds, so of several in one second any may
	// be among the newest.
	for i := 0; slices.Contains(c.renderedOf("infra"), unused); i++ {
		require.Less(t, i, 200, "the unused one never goes")
		next(fmt.Sprint("e", i))
	}
	for _, kept := range []string{onNode, built, imaged, c.pool("infra").Spec.Configuration.Name} {
		assert.Contains(t, c.renderedOf("infra"), kept)
	}
	c.delete(build)
	c.delete(image)
	c.changeNode("n1", having(c.pool("worker").Spec.Configuration.Name))
	for i := 0; len(c.renderedOf("infra")) > 3; i++ {
		require.Less(t, i, 200, "what nothing refers to any more never goes")
		next(fmt.Sprint("f", i))
	}
}

func (c *cluster) testRestarts(options Options) {
	t := c.t
	c.settled("worker", saying("Ready", "True Succeeded"))
	versions := func() []string { return []string{c.pool("worker").ResourceVersion, c.pool("infra").ResourceVersion} }
	before := versions()
	for range 2 {
		c.written()
		c.start(options)
		// A pool that is new ends up last, since each process looks at every pool first.
		c.create(newPool("gpu"))
		c.settled("gpu", saying("Ready", "True Succeeded"))
		c.delete(c.pool("gpu"))
		assert.Equal(t, before, versions())
	}

	// What changes while no one looks is found afterwards.
	c.stop()
	c.create(newConfig("90-late", "worker", "/etc/late"))
	c.changeNode("n2", inState(mcfgv1.NodeStateDegraded, "while no one looked"))
	c.start(options)
	c.settled("worker", joining("00-base", "90-late"))
	c.settled("worker", func(t *assert.CollectT, p *mcfgv1.MachineConfigPool) {
		assert.Equal(t, int32(1), p.Status.DegradedMachineCount)
	})
	c.settled("infra", joining("00-base", "90-late", "50-infra"))
}

func (c *cluster) testDeleted() {
	t := c.t
	require.NotEmpty(t, c.renderedOf("infra"))
	c.delete(c.pool("infra"))
	c.eventually(func(t *assert.CollectT) {
		err := c.Get(c.t.Context(), client.ObjectKey{Name: "infra"}, &mcfgv1.MachineConfigPool{})
		assert.True(t, apierrors.IsNotFound(err))
		assert.Empty(t, c.renderedOf("infra"))
	})
	// One of the same name that comes at once has the same rendered MachineConfig, which must not
	// go with the one before.
	name := c.pool("worker").Spec.Configuration.Name
	c.delete(c.pool("worker"))
	c.create(newPool("worker"))
	pool := c.settled("worker", joining("00-base", "90-late"))
	assert.NotEmpty(t, name)
	c.eventually(func(t *assert.CollectT) {
		mc := &mcfgv1.MachineConfig{}
		if assert.NoError(t, c.Get(c.t.Context(), client.ObjectKey{Name: pool.Spec.Configuration.Name}, mc)) {
			assert.True(t, metav1.IsControlledBy(mc, pool))
		}
	})
}

func TestSetupRefusesANegativeLimit(t *testing.T) {
	t.Parallel()
	err := New(Options{RenderedConfigLimit: -1}).SetupWithManager(nil)
	require.EqualError(t, err, "setting up pools: the limit of rendered MachineConfigs is -1, and must not be negative")
}
