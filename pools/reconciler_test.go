package pools

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	mcfgv1alpha1 "github.com/layerwright/layerwright/api/machineconfiguration/v1alpha1"
	"github.com/layerwright/layerwright/internal/status"
)

// condition is what a pool says about a type.
func (w *world) condition(pool, conditionType string) string {
	w.t.Helper()
	return conditionOf(w.pool(pool), conditionType)
}

func conditionOf(pool *mcfgv1.MachineConfigPool, conditionType string) string {
	c := status.Find(pool.GetConditions(), conditionType)
	if c == nil {
		return "none"
	}
	return strings.TrimSpace(fmt.Sprintf("%s %s %s", c.Status, c.Reason, c.Message))
}

func (w *world) wants(pool string) string {
	w.t.Helper()
	return w.pool(pool).Spec.Configuration.Name
}

func TestAPoolGetsItsConfiguration(t *testing.T) {
	t.Parallel()
	w := newWorld(t, newPool("worker"), newPool("infra"),
		newConfig("50-chrony", "worker", "/etc/chrony.conf"), newConfig("00-base", "worker", "/etc/base"), newConfig("50-infra", "infra", "/etc/infra"),
		newConfig("50-master", "master", "/etc/master"), newNode("a", worker))
	r := w.reconciler()
	w.settle(r, "worker", "infra")

	pool := w.pool("worker")
	name := pool.Spec.Configuration.Name
	require.Regexp(t, `^rendered-worker-[0-9a-f]{32}$`, name)
	assert.Equal(t, sourceReferences([]string{"00-base", "50-chrony"}), pool.Spec.Configuration.Source)
	assert.Equal(t, sourceReferences([]string{"00-base", "50-chrony", "50-infra"}), w.pool("infra").Spec.Configuration.Source)
	assert.NotEqual(t, name, w.wants("infra"))

	mc := w.config(name)
	assert.Equal(t, "v1.2.3", mc.Annotations[mcfgv1.AnnotationGeneratedByControllerVersion])
	assert.Equal(t, "v1.2.3", mc.Annotations[mcfgv1.AnnotationReleaseImageVersion], "where there are no releases, builders need one all the same")
	assert.Equal(t, []metav1.OwnerReference{{
		APIVersion: "machineconfiguration.openshift.io/v1", Kind: "MachineConfigPool", Name: "worker", UID: pool.UID, Controller: new(true), BlockOwnerDeletion: new(true),
	}}, mc.OwnerReferences)
	assert.Contains(t, string(mc.Spec.Config.Raw), "/etc/chrony.conf")
	assert.NotContains(t, string(mc.Spec.Config.Raw), "/etc/master")

	assert.Equal(t, "False AsExpected", w.condition("worker", "RenderDegraded"))
	assert.Equal(t, int32(1), pool.Status.MachineCount)
	assert.Equal(t, pool.Generation, pool.Status.ObservedGeneration)
	assert.Equal(t, w.pool("infra").Spec.Configuration, w.pool("infra").Status.Configuration, "a pool without nodes has it at once")
	assert.Empty(t, pool.Status.Configuration.Name)
	assert.Equal(t, []string{
		"create MachineConfig " + name, "patch MachineConfigPool worker", "status MachineConfigPool worker",
		"create MachineConfig " + w.wants("infra"), "patch MachineConfigPool infra", "status MachineConfigPool infra",
		"status MachineConfigPool worker", "status MachineConfigPool infra", // observedGeneration of their own change
	}, w.writes)
	assert.Contains(t, w.told(), "Normal RenderedConfigGenerated "+name+" successfully generated from 2 MachineConfigs")
}

func TestAnotherProcessFindsNothingToDo(t *testing.T) {
	t.Parallel()
	w := newWorld(t, newPool("worker"), newConfig("00-a", "worker", "/etc/a"), newStream("rhel-9"), newNode("a", worker))
	w.settle(w.reconciler(), "worker")
	w.writes = nil
	w.told()
	w.settle(w.reconciler(), "worker")
	assert.Empty(t, w.writes)
	assert.Empty(t, w.told())
}

func TestMachineConfigsComeAndGo(t *testing.T) {
	t.Parallel()
	w := newWorld(t, newPool("worker"), newConfig("00-a", "worker", "/etc/a"))
	r := w.reconciler()
	w.settle(r, "worker")
	first := w.wants("worker")
	w.told()

	w.add(newConfig("50-b", "worker", "/etc/b"))
	w.settle(r, "worker")
	second := w.wants("worker")
	require.NotEqual(t, first, second)
	assert.Equal(t, []string{
		"Normal RenderedConfigGenerated " + second + " successfully generated from 2 MachineConfigs",
		fmt.Sprintf("Normal RenderedConfigChanged The pool's configuration changed from %s to %s", first, second),
	}, w.told())

	w.editConfig("50-b", func(mc *mcfgv1.MachineConfig) { mc.Spec.KernelArguments = []string{"nosmt"} })
	w.settle(r, "worker")
	third := w.wants("worker")
	require.NotEqual(t, second, third)

	w.editConfig("50-b", func(mc *mcfgv1.MachineConfig) { mc.Labels = nil })
	w.settle(r, "worker")
	assert.Equal(t, first, w.wants("worker"), "the same content has the same name again")
	assert.Equal(t, sourceReferences([]string{"00-a"}), w.pool("worker").Spec.Configuration.Source)
	assert.Len(t, w.renderedNames(), 3)

	w.remove(newConfig("00-a", "worker", "/etc/a"))
	w.settle(r, "worker")
	empty := w.pool("worker").Spec.Configuration
	assert.NotContains(t, []string{"", first, second, third}, empty.Name, "a pool without MachineConfigs has an empty configuration")
	assert.Empty(t, empty.Source)
}

func TestSourcesAreUpdatedForEqualContent(t *testing.T) {
	t.Parallel()
	w := newWorld(t, newPool("worker"), newConfig("00-a", "worker", "/etc/a"))
	r := w.reconciler()
	w.settle(r, "worker")
	name := w.wants("worker")
	w.told()
	same := newConfig("00-a", "worker", "/etc/a")
	same.Name = "01-same"
	w.add(same)
	w.settle(r, "worker")
	assert.Equal(t, name, w.wants("worker"))
	assert.Equal(t, sourceReferences([]string{"00-a", "01-same"}), w.pool("worker").Spec.Configuration.Source)
	assert.Empty(t, w.told(), "nothing changed for nodes")
}

func TestAMachineConfigThatCannotBeJoined(t *testing.T) {
	t.Parallel()
	w := newWorld(t, newPool("worker"), newPool("master"), newConfig("00-a", "worker", "/etc/a"), newConfig("00-m", "master", "/etc/a"), newNode("n", worker))
	r := w.reconciler()
	w.settle(r, "worker", "master")
	good := w.wants("worker")
	w.told()

	broken := newConfig("50-broken", "worker", "/etc/b")
	broken.Spec.Config.Raw = []byte(`{"ignition":{"version":"3.4.0"},"storage":{"files":[{"path":"etc/b"}]}}`)
	w.add(broken)
	w.settle(r, "worker", "master")
	says := w.condition("worker", "RenderDegraded")
	assert.Contains(t, says, "True InvalidMachineConfig ")
	assert.Contains(t, says, `MachineConfig "50-broken"`)
	assert.Contains(t, says, "storage.files[0].path")
	assert.Contains(t, w.condition("worker", "Degraded"), "True InvalidMachineConfig RenderDegraded: MachineConfig")
	assert.Contains(t, w.condition("worker", "Stalled"), "True InvalidMachineConfig")
	assert.Equal(t, good, w.wants("worker"), "the last good one stays")
	assert.Equal(t, int32(1), w.pool("worker").Status.MachineCount)
	assert.Equal(t, "False AsExpected", w.condition("master", "RenderDegraded"), "other pools go on")
	told := w.told()
	require.Len(t, told, 1)
	assert.Contains(t, told[0], `Warning InvalidMachineConfig MachineConfig "50-broken"`)
	assert.Equal(t, w.pool("worker").Generation, w.pool("worker").Status.ObservedGeneration, "it was looked at to the end")

	w.editNode("n", func(n *corev1.Node) { having(good)(n) })
	w.settle(r, "worker")
	assert.Equal(t, int32(1), w.pool("worker").Status.UpdatedMachineCount, "nodes are counted all the same")
	assert.Empty(t, w.told(), "it is told once")

	w.remove(broken)
	w.settle(r, "worker")
	assert.Equal(t, "False AsExpected", w.condition("worker", "RenderDegraded"))
	assert.Equal(t, "none", w.condition("worker", "Stalled"))
	assert.Equal(t, "True Succeeded", w.condition("worker", "Ready"))
	assert.Equal(t, []string{"Normal RenderRecovered The pool's MachineConfigs can be rendered again"}, w.told())
}

func TestStreams(t *testing.T) {
	t.Parallel()
	w := newWorld(t, newPool("worker"), newPool("infra"), newConfig("00-a", "worker", "/etc/a"), newStream("rhel-9", "rhel-10"))
	r := w.reconciler()
	image := func(pool string) string { return w.config(w.wants(pool)).Spec.OSImageURL }
	w.settle(r, "worker", "infra")
	assert.Equal(t, streamImage("rhel-9"), image("worker"))
	assert.Equal(t, "rhel-9", w.pool("worker").Status.OSImageStream.Name)

	edit(w, mcfgv1.OSImageStreamName, &mcfgv1.OSImageStream{}, func(s *mcfgv1.OSImageStream) { s.Status.DefaultStream = "rhel-10" })
	w.settle(r, "worker", "infra")
	assert.Equal(t, streamImage("rhel-9"), image("worker"), "a pool stays where it is when the default moves")

	w.editPool("worker", func(p *mcfgv1.MachineConfigPool) { p.Spec.OSImageStream.Name = "rhel-10" })
	w.settle(r, "worker", "infra")
	assert.Equal(t, streamImage("rhel-10"), image("worker"))
	assert.Equal(t, streamImage("rhel-10"), image("infra"), "custom pools follow the worker pool")
	assert.Equal(t, "rhel-10", w.pool("infra").Status.OSImageStream.Name)

	good := w.wants("worker")
	override := newConfig("99-image", "worker", "/etc/b")
	override.Spec.OSImageURL = "quay.io/own/os:1"
	w.add(override)
	w.settle(r, "worker", "infra")
	for _, pool := range []string{"worker", "infra"} {
		assert.Equal(t, `True OSImageURLConflict MachineConfig "99-image": spec.osImageURL: cannot override MachineConfig osImageURL and set `+
			`MachineConfigPool spec.osImageStream.name simultaneously`, w.condition(pool, "RenderDegraded"))
	}
	assert.Equal(t, good, w.wants("worker"))

	w.editPool("worker", func(p *mcfgv1.MachineConfigPool) { p.Spec.OSImageStream.Name = "" })
	w.settle(r, "worker", "infra")
	assert.Equal(t, "quay.io/own/os:1", image("worker"))
	assert.Equal(t, "rhel-10", w.pool("worker").Status.OSImageStream.Name, "an image of its own is no other stream")

	w.remove(override)
	edit(w, mcfgv1.OSImageStreamName, &mcfgv1.OSImageStream{}, func(s *mcfgv1.OSImageStream) { *s = *withMeta(newStream("rhel-9"), s) })
	w.settle(r, "worker", "infra")
	assert.Contains(t, w.condition("worker", "OSStreamDeprecated"), "True StreamRemoved Stream 'rhel-10' is no longer available")
	assert.Equal(t, "quay.io/own/os:1", image("worker"), "what a pool without its stream has stays")
	assert.NotContains(t, w.config(w.wants("worker")).Annotations, mcfgv1.AnnotationOSImageStream, "and is not taken for the stream's")
}

func withMeta(s, like *mcfgv1.OSImageStream) *mcfgv1.OSImageStream {
	s.ObjectMeta = like.ObjectMeta
	return s
}

func TestAnOSImageStreamOfAnotherRelease(t *testing.T) {
	t.Parallel()
	stream := newStream("rhel-9")
	stream.Annotations = map[string]string{mcfgv1.AnnotationReleaseImageVersion: "4.19"}
	w := newWorld(t, newPool("worker"), stream)
	w.options.ReleaseVersion = "4.20"
	r := w.reconciler()
	w.settle(r, "worker")
	assert.Empty(t, w.wants("worker"))
	assert.Equal(t, `Unknown WaitingForOSImageStream OSImageStream "cluster" is of release "4.19", this controller of "4.20": images of two releases are not mixed`,
		w.condition("worker", "RenderDegraded"))
	assert.Contains(t, w.condition("worker", "Reconciling"), "True WaitingForOSImageStream")
	assert.Empty(t, w.told())

	edit(w, stream.Name, stream, func(s *mcfgv1.OSImageStream) { s.Annotations[mcfgv1.AnnotationReleaseImageVersion] = "4.20" })
	w.settle(r, "worker")
	assert.Equal(t, "4.20", w.config(w.wants("worker")).Annotations[mcfgv1.AnnotationReleaseImageVersion])
	assert.Equal(t, "True Succeeded", w.condition("worker", "Ready"))
}

// TestAPausedPoolPreparesItsConfiguration: a maintenance window begins with the rollout, so
// everything before that is done by then.
func TestAPausedPoolPreparesItsConfiguration(t *testing.T) {
	t.Parallel()
	w := newWorld(t, newPool("worker"), newConfig("00-a", "worker", "/etc/a"), newNode("n", worker))
	r := w.reconciler()
	w.settle(r, "worker")
	before := w.wants("worker")
	w.editNode("n", having(before))
	w.editPool("worker", paused)
	w.settle(r, "worker")
	assert.Equal(t, "True Succeeded All nodes are updated with "+before, w.condition("worker", "Updated"), "pausing alone changes nothing")

	w.add(newConfig("50-b", "worker", "/etc/b"))
	w.settle(r, "worker")
	after := w.wants("worker")
	require.NotEqual(t, before, after)
	assert.Contains(t, w.renderedNames(), after)
	assert.Equal(t, sourceReferences([]string{"00-a", "50-b"}), w.pool("worker").Spec.Configuration.Source)
	says := "False Paused Pool is paused; will not update to " + after + ": 0 of 1 nodes are updated"
	assert.Equal(t, says, w.condition("worker", "Updated"))
	assert.Equal(t, says, w.condition("worker", "Updating"))
	assert.Equal(t, before, w.pool("worker").Status.Configuration.Name)

	broken := newConfig("60-c", "worker", "/etc/c")
	broken.Spec.KernelType = "fast"
	w.add(broken)
	w.settle(r, "worker")
	assert.Contains(t, w.condition("worker", "RenderDegraded"), `True InvalidMachineConfig MachineConfig "60-c": spec.kernelType`)
	w.remove(broken)
	w.editPool("worker", func(p *mcfgv1.MachineConfigPool) { p.Spec.Paused = false })
	w.settle(r, "worker")
	assert.Contains(t, w.condition("worker", "Updating"), "True Progressing All nodes are updating to "+after)
}

func TestARenderedMachineConfigIsPutRight(t *testing.T) {
	t.Parallel()
	const edited = `{"ignition":{"version":"3.5.0"},"storage":{"files":[{"path":"/etc/evil"}]}}`
	tests := map[string]struct {
		change func(*mcfgv1.MachineConfig)
		writes int
		told   int
	}{
		"its configuration was edited":   {func(mc *mcfgv1.MachineConfig) { mc.Spec.Config.Raw = []byte(edited) }, 1, 1},
		"its configuration is gone":      {func(mc *mcfgv1.MachineConfig) { mc.Spec.Config.Raw = nil }, 1, 1},
		"another field was edited":       {func(mc *mcfgv1.MachineConfig) { mc.Spec.OSImageURL = "evil" }, 1, 1},
		"what stays out of images":       {func(mc *mcfgv1.MachineConfig) { mc.Annotations[mcfgv1.AnnotationNodeOnlyContent] = "{}" }, 1, 1},
		"its owner is gone":              {func(mc *mcfgv1.MachineConfig) { mc.OwnerReferences = nil }, 1, 0},
		"its owner was an earlier pool":  {func(mc *mcfgv1.MachineConfig) { mc.OwnerReferences[0].UID = "earlier" }, 1, 0},
		"the same in another order":      {reordered, 0, 0},
		"a label":                        {func(mc *mcfgv1.MachineConfig) { mc.Labels = map[string]string{"a": "b"} }, 0, 0},
		"an empty list that is left out": {func(mc *mcfgv1.MachineConfig) { mc.Spec.Extensions = nil }, 0, 0},
		"another owner beside its own": {func(mc *mcfgv1.MachineConfig) {
			mc.OwnerReferences = append(mc.OwnerReferences, metav1.OwnerReference{Kind: "Backup", Name: "b", UID: "b"})
		}, 0, 0},
		"the annotation of its versions":  {func(mc *mcfgv1.MachineConfig) { mc.Annotations[mcfgv1.AnnotationReleaseImageVersion] = "4.19" }, 0, 0},
		"another annotation beside those": {func(mc *mcfgv1.MachineConfig) { mc.Annotations["a"] = "b" }, 0, 0},
	}
	for name, tt := range tests {
		for who, restart := range map[string]bool{"by the same process": false, "by another process": true} {
			t.Run(name+", "+who, func(t *testing.T) {
				t.Parallel()
				w := newWorld(t, newPool("worker"), newConfig("00-a", "worker", "/etc/a"))
				r := w.reconciler()
				w.settle(r, "worker")
				rendered := w.wants("worker")
				good := w.config(rendered)
				w.editConfig(rendered, tt.change)
				w.writes = nil
				w.told()
				if restart {
					r = w.reconciler()
				}
				w.settle(r, "worker")
				assert.Len(t, w.writes, tt.writes, "%v", w.writes)
				assert.Len(t, w.told(), tt.told)
				got := w.config(rendered)
				assert.True(t, isSameContent(good, got))
				assert.True(t, metav1.IsControlledBy(got, w.pool("worker")))
				w.settle(r, "worker")
				assert.Len(t, w.writes, tt.writes, "once")
			})
		}
	}
}

// reordered writes the same JSON with its keys the other way round.
func reordered(mc *mcfgv1.MachineConfig) {
	text := string(mc.Spec.Config.Raw)
	ignition := `"ignition":{"version":"3.5.0"}`
	mc.Spec.Config.Raw = []byte(strings.Replace(strings.Replace(text, "{"+ignition+",", "{ ", 1), "}]}}", "}]},"+ignition+"}", 1))
}

func TestDeletedRenderedMachineConfigReturns(t *testing.T) {
	t.Parallel()
	w := newWorld(t, newPool("worker"), newConfig("00-a", "worker", "/etc/a"))
	r := w.reconciler()
	w.settle(r, "worker")
	name := w.wants("worker")
	w.remove(w.config(name))
	w.settle(r, "worker")
	assert.Equal(t, []string{name}, w.renderedNames())

	w.editConfig(name, func(mc *mcfgv1.MachineConfig) { mc.Finalizers = []string{"example.test/slow"} })
	w.remove(w.config(name))
	_, err := w.reconcile(r, "worker")
	require.EqualError(t, err, `rendered MachineConfig "`+name+`" is being deleted, but the pool needs it`)
	assert.Contains(t, w.condition("worker", "Ready"), "Retrying")
	w.editConfig(name, func(mc *mcfgv1.MachineConfig) { mc.Finalizers = nil })
	w.settle(r, "worker")
	assert.Empty(t, w.config(name).Finalizers)
}

func TestACacheThatIsBehind(t *testing.T) {
	t.Parallel()
	w := newWorld(t, newPool("worker"), newConfig("00-a", "worker", "/etc/a"))
	w.settle(w.reconciler(), "worker")
	name := w.wants("worker")
	w.hidden[name] = true
	w.writes = nil
	r := w.reconciler()
	w.settle(r, "worker")
	assert.Empty(t, w.writes, "it is there already")
	rendered := w.renders
	w.settle(r, "worker")
	assert.Equal(t, rendered, w.renders, "the content is kept until the cache has it")

	edited := w.config(name)
	edited.Spec.OSImageURL = "evil"
	w.quietly(func() error { return w.Update(t.Context(), edited) })
	_, err := w.reconcile(w.reconciler(), "worker")
	require.NoError(t, err)
	assert.Equal(t, []string{"update MachineConfig " + name}, w.writes)
	assert.Empty(t, w.config(name).Spec.OSImageURL)
}

func TestNodesDoNotCauseRendering(t *testing.T) {
	t.Parallel()
	w := newWorld(t, newPool("worker"), newConfig("00-a", "worker", "/etc/a"), newNode("n", worker), newStream("rhel-9"))
	r := w.reconciler()
	w.settle(r, "worker")
	assert.Equal(t, 1, w.renders)
	name := w.wants("worker")
	for i := range 5 {
		w.editNode("n", func(n *corev1.Node) { n.Labels["i"] = fmt.Sprint(i) })
		w.settle(r, "worker")
	}
	w.editNode("n", having(name))
	w.settle(r, "worker")
	assert.Equal(t, int32(1), w.pool("worker").Status.UpdatedMachineCount)
	assert.Equal(t, 1, w.renders)
	assert.Nil(t, r.renders.last["worker"].content, "what the cluster has is not kept in memory")

	w.editConfig("00-a", func(mc *mcfgv1.MachineConfig) { mc.Annotations = map[string]string{mcfgv1.AnnotationNodeOnly: "true"} })
	w.settle(r, "worker")
	assert.Equal(t, 2, w.renders, "annotations are content")
	broken := newConfig("50-b", "worker", "/etc/b")
	broken.Spec.KernelType = "fast"
	w.add(broken)
	w.settle(r, "worker")
	w.editNode("n", cordoned)
	w.settle(r, "worker")
	assert.Equal(t, 3, w.renders, "what cannot be joined is not tried again either")
}

func TestRetention(t *testing.T) {
	t.Parallel()
	w := newWorld(t, newPool("worker"), newPool("infra"), newConfig("00-a", "worker", "/etc/a"), newNode("n", worker))
	w.options.RenderedConfigLimit = 100
	r := w.reconciler()
	next := func(argument string) string {
		w.editConfig("00-a", func(mc *mcfgv1.MachineConfig) { mc.Spec.KernelArguments = []string{argument} })
		w.settle(r, "worker")
		return w.wants("worker")
	}
	unused, onNode, toNode, built, image, inPoolStatus := next("0"), next("1"), next("2"), next("3"), next("4"), next("5")
	alsoUnused, newest := next("6"), next("7")
	w.editNode("n", func(n *corev1.Node) {
		having(onNode)(n)
		annotated(mcfgv1.AnnotationDesiredConfig, toNode)(n)
	})
	w.add(&mcfgv1.MachineOSBuild{ObjectMeta: metav1.ObjectMeta{Name: "b"}, Spec: mcfgv1.MachineOSBuildSpec{MachineConfig: mcfgv1.MachineConfigReference{Name: built}}})
	w.add(&mcfgv1alpha1.MachineOSImage{ObjectMeta: metav1.ObjectMeta{Name: "i"}, Spec: mcfgv1alpha1.MachineOSImageSpec{RenderedMachineConfig: image}})
	w.quietly(func() error {
		pool := w.pool("worker")
		pool.Status.Configuration.Name = inPoolStatus
		return w.Status().Update(t.Context(), pool)
	})
	w.settle(r, "infra")
	infra := w.wants("infra")
	w.settle(r, "worker")
	assert.Len(t, w.renderedNames(), 9, "below the limit nothing goes")

	w.options.RenderedConfigLimit = 2
	w.settle(w.reconciler(), "worker", "infra")
	assert.ElementsMatch(t, []string{onNode, toNode, built, image, inPoolStatus, alsoUnused, newest, infra}, w.renderedNames())
	assert.NotContains(t, w.renderedNames(), unused)

	w.options.RenderedConfigLimit = 0
	w.settle(w.reconciler(), "worker", "infra")
	assert.ElementsMatch(t, []string{onNode, toNode, built, image, inPoolStatus, newest, infra}, w.renderedNames())

	w.remove(&mcfgv1.MachineOSBuild{ObjectMeta: metav1.ObjectMeta{Name: "b"}})
	w.remove(&mcfgv1alpha1.MachineOSImage{ObjectMeta: metav1.ObjectMeta{Name: "i"}})
	w.editNode("n", having(newest))
	w.settle(r, "worker") // all nodes have the newest now
	w.settle(w.reconciler(), "worker")
	assert.ElementsMatch(t, []string{newest, infra}, w.renderedNames())
}
