package bootimages

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/internal/fault"
	"github.com/layerwright/layerwright/internal/metrics"
	"github.com/layerwright/layerwright/rollout/bootimages/plan"
)

// restart has the controllers begin anew: nothing in memory is left.
func (c *cluster) restart() {
	l := newLedger()
	for _, u := range c.update {
		u.ledger = l
	}
	c.view.ledger, c.view.hasSeenAll = l, false
}

func TestAfterARestartTheCanaryIsKnown(t *testing.T) {
	t.Parallel()
	a, b := machineSet(t, "a", "worker"), machineSet(t, "b", "worker")
	c := newCluster(t, a, b)
	c.mustReconcile(mapi, a)
	require.Equal(t, image9, c.image(a))
	c.clock.SetTime(t0.Add(10 * time.Minute))
	c.restart()
	assert.Equal(t, 50*time.Minute, c.mustReconcile(mapi, b).RequeueAfter, "it is looked at before the canary")
	assert.Equal(t, installed, c.image(b))
}

func TestAPlatformHasACanaryOfItsOwn(t *testing.T) {
	t.Parallel()
	a, b := machineSet(t, "a", "worker"), machineSet(t, "b", "worker")
	require.NoError(t, unstructured.SetNestedMap(b.Object, map[string]any{
		"kind": "AWSMachineProviderConfig", "ami": map[string]any{"id": "ami-00000007"}, "placement": map[string]any{"region": "us-east-1"},
	}, providerSpec...))
	c := newCluster(t, a, b)
	c.mustReconcile(mapi, a)
	c.mustReconcile(mapi, b)
	ami, _, _ := unstructured.NestedString(c.get(b).Object, append(slices.Clone(providerSpec), "ami", "id")...)
	assert.Equal(t, "ami-00000006", ami, "the first of Google Cloud says nothing about an AMI")
}

func TestAfterARestartTheLastWordStands(t *testing.T) {
	t.Parallel()
	a, b := machineSet(t, "a", "worker"), machineSet(t, "b", "worker")
	b.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "hive.openshift.io/v1", Kind: "MachinePool", Name: "p", UID: "u"}})
	c := newCluster(t, a, b)
	version := &unstructured.Unstructured{}
	version.SetGroupVersionKind(clusterVersionKind)
	version.SetName("version")
	c.edit(version, func() {
		_ = unstructured.SetNestedSlice(version.Object, []any{map[string]any{"state": "Completed", "version": "4.12.0"}}, "status", "history")
	})
	c.mustReconcile(mapi, a)
	c.mustReconcile(mapi, b)
	require.Contains(t, condition(c.overview(), "Upgradeable"), "False ClusterBootImageSkewError")
	c.restart()
	c.mustReconcile(mapi, a) // which is new enough
	assert.Contains(t, condition(c.overview(), "Upgradeable"), "False ClusterBootImageSkewError", "b has not been looked at")
	c.edit(b, func() { b.SetOwnerReferences(nil) })
	c.clock.SetTime(t0.Add(time.Hour))
	c.mustReconcile(mapi, b)
	assert.Equal(t, "True Succeeded ", condition(c.overview(), "Upgradeable"))
}

func TestTemplatesOfDeletedObjectsAreRemoved(t *testing.T) {
	t.Parallel()
	o, template := deployment(t, "md")
	c := newCluster(t, o, template)
	c.mustReconcile(capiMDs, o)
	c.mustReconcile(capiMDs, o)
	copies := c.update[capiMDs].templates.copiesIn(capiSpace)
	require.Len(t, copies, 1)
	require.NoError(t, c.Delete(t.Context(), o))
	c.clock.SetTime(t0.Add(time.Hour))
	c.mustReconcile(capiMDs, o)
	for _, each := range copies {
		err := c.Get(t.Context(), client.ObjectKeyFromObject(each), each)
		assert.True(t, apierrors.IsNotFound(err), "%v", err)
	}
	c.get(template)
}

func TestOnlyTemplatesOfKnownPlatformsAreRead(t *testing.T) {
	t.Parallel()
	for name, ref := range map[string]map[string]any{
		"a secret":                      {"apiVersion": "v1", "kind": "Secret", "name": "worker-user-data"},
		"a known kind of another group": {"apiGroup": "example.com", "kind": "GCPMachineTemplate", "name": "md-template"},
		"an unknown kind":               {"apiGroup": infrastructureGroup, "kind": "DockerMachineTemplate", "name": "md-template"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o, template := deployment(t, "md")
			require.NoError(t, unstructured.SetNestedMap(o.Object, ref, "spec", "template", "spec", "infrastructureRef"))
			c := newCluster(t, o, template)
			c.mustReconcile(capiMDs, o)
			assert.Equal(t, plan.ReasonUnknownProvider, c.update[capiMDs].ledger.entries()[0].reason)
			assert.Empty(t, c.update[capiMDs].templates.listed, "nothing is listed")
		})
	}
}

func TestAKindThatTheClusterLackedIsNamed(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.update[capiMDs].kind.version = ""
	const want = "the cluster had no CAPI MachineDeployments when the controller started, restart it to have them managed"
	config := c.overview()
	require.Contains(t, condition(config, "BootImageUpdateProgressing"), want)
	c.edit(config, func() {
		for i := range config.Spec.ManagedBootImages.MachineManagers {
			config.Spec.ManagedBootImages.MachineManagers[i].Selection.Mode = "None"
		}
	})
	assert.NotContains(t, condition(c.overview(), "BootImageUpdateProgressing"), want, "no one asked for it")
}

func TestClusterClassObjectsAreSkipped(t *testing.T) {
	t.Parallel()
	o, template := deployment(t, "md")
	o.SetLabels(map[string]string{"topology.cluster.x-k8s.io/owned": ""})
	o.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "cluster.x-k8s.io/v1beta2", Kind: "Cluster", Name: "c", UID: "u"}})
	c := newCluster(t, o, template)
	c.mustReconcile(capiMDs, o)
	assert.Equal(t, plan.ReasonOwnerReference, c.update[capiMDs].ledger.entries()[0].reason)

	c.edit(o, func() { o.SetLabels(nil) })
	c.mustReconcile(capiMDs, o)
	assert.Equal(t, metrics.BootImageUpToDate, c.update[capiMDs].ledger.entries()[0].state, "the Cluster alone puts nothing back")
}

func TestAConflictIsNoFailure(t *testing.T) {
	t.Parallel()
	a, b := machineSet(t, "a", "worker"), machineSet(t, "b", "worker")
	c := newCluster(t, a, b)
	c.fail = func(verb string, o client.Object) error {
		if verb == "patch" && o.GetName() == "a" {
			return apierrors.NewConflict(schema.GroupResource{Resource: "machinesets"}, "a", errors.New("changed"))
		}
		return nil
	}
	c.mustReconcile(mapi, a)
	is := c.update[mapi].ledger.entries()[0]
	assert.Equal(t, metrics.BootImageWaiting, is.state)
	assert.Equal(t, "something else changed it at the same time", is.message)
	require.Len(t, c.history(machines, "a-machineset").Status.Details, 1, "it was not given the image")
	c.mustReconcile(mapi, b)
	assert.Equal(t, image9, c.image(b), "another one is the canary")
}

// ownersOf answers from a map, and counts.
type ownersOf struct {
	owners map[string]string
	err    error
	asked  int
}

func (o *ownersOf) OwnerOf(_ context.Context, _, image string) (string, error) {
	o.asked++
	return o.owners[image], o.err
}

func TestUnknownImageOwnerIsAskedAgain(t *testing.T) {
	t.Parallel()
	set := machineSet(t, "a", "worker")
	require.NoError(t, unstructured.SetNestedMap(set.Object, map[string]any{
		"kind": "AWSMachineProviderConfig", "ami": map[string]any{"id": "ami-0123456789abcdef0"}, "placement": map[string]any{"region": "us-east-1"},
	}, "spec", "template", "spec", "providerSpec", "value"))
	c := newCluster(t, set)
	cloud := &ownersOf{owners: map[string]string{}}
	c.update[mapi].owners.ask = cloud
	assert.Equal(t, recheck, c.mustReconcile(mapi, set).RequeueAfter)
	assert.Equal(t, plan.ReasonUnknownImageOwner, c.update[mapi].ledger.entries()[0].reason)

	cloud.owners["ami-0123456789abcdef0"] = "531415883065" // it has keys now
	c.mustReconcile(mapi, set)
	assert.Equal(t, metrics.BootImageUpToDate, c.update[mapi].ledger.entries()[0].state)
	assert.Equal(t, 2, cloud.asked)
}

// fedora is the ConfigMap with a release of Fedora CoreOS's stream stable.
func fedora(release, ami string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: ConfigMapName}, Data: map[string]string{plan.KeyStream: fmt.Sprintf(
		`{"stream":"stable","architectures":{"x86_64":{"images":{"aws":{"regions":{"us-east-1":{"release":%q,"image":%q}}}}}}}`, release, ami)}}
}

func TestAMIsFollowEachReleaseWithoutACloud(t *testing.T) {
	t.Parallel()
	// Stream, MachineSet and releases are those of a report.
	set := machineSet(t, "home-x7k2p-worker-us-east-1a", "worker")
	require.NoError(t, unstructured.SetNestedMap(set.Object, map[string]any{
		"kind": "AWSMachineProviderConfig", "ami": map[string]any{"id": "ami-0aaaaaaaaaaaaaaa1"}, "placement": map[string]any{"region": "us-east-1"},
	}, providerSpec...))
	c := newCluster(t, set)
	pool := &mcfgv1.MachineConfigPool{ObjectMeta: metav1.ObjectMeta{Name: "worker"}}
	c.edit(pool, func() { pool.Annotations = nil })
	require.NoError(t, c.Update(t.Context(), fedora("44.20260601.3.0", "ami-0aaaaaaaaaaaaaaa1")))
	c.mustReconcile(mapi, set)
	for _, release := range []string{"44.20260701.3.0", "44.20260801.3.0"} {
		ami := "ami-0aaaaaaaaaa" + release[3:9]
		c.restart()
		c.clock.SetTime(c.clock.Now().Add(time.Hour))
		require.NoError(t, c.Update(t.Context(), fedora(release, ami)))
		c.world.invalidate()
		c.mustReconcile(mapi, set)
		is, _, _ := unstructured.NestedString(c.get(set).Object, append(slices.Clone(providerSpec), "ami", "id")...)
		assert.Equal(t, ami, is)
		assert.Equal(t, metrics.BootImageUpToDate, c.update[mapi].ledger.entries()[0].state)
	}
	assert.Len(t, c.history(machines, set.GetName()+"-machineset").Status.Details, 3)
}

func TestCredentialsThatCannotBeUsedAreNamed(t *testing.T) {
	t.Parallel()
	set := machineSet(t, "a", "worker")
	require.NoError(t, unstructured.SetNestedMap(set.Object, map[string]any{
		"kind": "AWSMachineProviderConfig", "ami": map[string]any{"id": "ami-0123456789abcdef0"}, "placement": map[string]any{"region": "us-east-1"},
	}, providerSpec...))
	c := newCluster(t, set)
	c.update[mapi].owners.ask = &ownersOf{err: fault.NewTerminal("NoCredentials", errors.New("AWS refuses role \"r\""))}
	assert.Equal(t, recheck, c.mustReconcile(mapi, set).RequeueAfter)
	assert.Contains(t, condition(c.overview(), "BootImageUpdateProgressing"), `the owner of AMI ami-0123456789abcdef0 is not known: AWS refuses role "r"`)
}

func TestWatchFilters(t *testing.T) {
	t.Parallel()
	pool := func(change func(*mcfgv1.MachineConfigPool)) client.Object {
		p := &mcfgv1.MachineConfigPool{ObjectMeta: metav1.ObjectMeta{Name: "master", Generation: 1}}
		p.Status.MachineCount = 3
		change(p)
		return p
	}
	infrastructure := func(topology string, other any) client.Object {
		return &unstructured.Unstructured{Object: map[string]any{"status": map[string]any{"controlPlaneTopology": topology, "apiServerURL": other}}}
	}
	same := pool(func(*mcfgv1.MachineConfigPool) {})
	for name, tt := range map[string]struct {
		is       predicate.Predicate
		old, new client.Object
		want     bool
	}{
		"the first updated machine": {poolChanged(), same, pool(func(p *mcfgv1.MachineConfigPool) { p.Status.UpdatedMachineCount = 1 }), true},
		"no machines any more":      {poolChanged(), same, pool(func(p *mcfgv1.MachineConfigPool) { p.Status.MachineCount = 0 }), true},
		"another stream":            {poolChanged(), same, pool(func(p *mcfgv1.MachineConfigPool) { p.Status.OSImageStream.Name = "x" }), true},
		"one machine more":          {poolChanged(), same, pool(func(p *mcfgv1.MachineConfigPool) { p.Status.MachineCount = 4 }), false},
		"another topology":          {releaseChanged(), infrastructure("SingleReplica", ""), infrastructure("HighlyAvailable", ""), true},
		"another URL":               {releaseChanged(), infrastructure("SingleReplica", ""), infrastructure("SingleReplica", "x"), false},
	} {
		assert.Equal(t, tt.want, tt.is.Update(event.UpdateEvent{ObjectOld: tt.old, ObjectNew: tt.new}), name)
	}
}

func TestTheControlPlaneHasAnArchitectureOfItsOwn(t *testing.T) {
	t.Parallel()
	masters, _, large, _, c := firsts(t)
	node := func(name, arch string, labels ...string) *corev1.Node {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelArchStable: arch}}}
		for _, label := range labels {
			n.Labels[label] = ""
		}
		return n
	}
	all := func(context.Context, client.Object) []reconcile.Request { return []reconcile.Request{{}} }
	when := c.world.whenNodesDiffer(all)
	m1 := node("m1", "amd64", "node-role.kubernetes.io/control-plane")
	for _, n := range []*corev1.Node{node("w1", "arm64"), m1} {
		require.NoError(t, c.Create(t.Context(), n))
		require.Len(t, when(t.Context(), n), 1)
	}
	require.Empty(t, when(t.Context(), m1), "one more of the same")
	c.mustReconcile(mapi, large)
	c.mustReconcile(cpms, masters)
	reasons := map[string]string{}
	for _, e := range c.update[mapi].ledger.entries() {
		reasons[e.id.Name] = e.reason
	}
	assert.Equal(t, map[string]string{large.GetName(): plan.ReasonNoArchitecture, masters.GetName(): ""}, reasons)

	m2 := node("m2", "arm64", "node-role.kubernetes.io/master")
	require.NoError(t, c.Create(t.Context(), m2))
	require.Len(t, when(t.Context(), m2), 1)
	c.mustReconcile(cpms, masters)
	assert.Equal(t, plan.ReasonNoArchitecture, c.update[cpms].ledger.entries()[0].reason)
}

func TestNodesReportTheInstalledImage(t *testing.T) {
	t.Parallel()
	set := machineSet(t, "a", "worker")
	set.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "hive.openshift.io/v1", Kind: "MachinePool", Name: "p", UID: "u"}})
	c := newCluster(t, set)
	for name, version := range map[string]string{"m1": "9.4.20240101-0", "m2": "412.86.202301311551-0", "m3": "nonsense", "w": "48.84.202109241901-0"} {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{
			Name: name, Labels: map[string]string{"node-role.kubernetes.io/control-plane": ""}, Annotations: map[string]string{mcfgv1.AnnotationBootImageVersion: version},
		}}
		if name == "w" {
			node.Labels = nil
		}
		require.NoError(t, c.Create(t.Context(), node))
	}
	c.mustReconcile(mapi, set)
	config := c.overview()
	assert.Equal(t, "412.86.202301311551-0", config.Status.BootImageSkewEnforcementStatus.Automatic.RHCOSVersion, "the oldest of the control plane")
	assert.Contains(t, condition(config, "Upgradeable"), "boot image 412.86.202301311551-0 is of RHEL 8.6")

	all := func(context.Context, client.Object) []reconcile.Request { return []reconcile.Request{{}} }
	when := c.world.whenNodesDiffer(all)
	old := &corev1.Node{}
	require.NoError(t, c.Get(t.Context(), client.ObjectKey{Name: "m2"}, old))
	require.Len(t, when(t.Context(), old), 1)
	require.NoError(t, c.Delete(t.Context(), old))
	require.Len(t, when(t.Context(), old), 1, "the oldest has gone")
	assert.Equal(t, "9.4.20240101-0", c.overview().Status.BootImageSkewEnforcementStatus.Automatic.RHCOSVersion)
}

func TestTheReleaseMayBeStricter(t *testing.T) {
	t.Parallel()
	set := machineSet(t, "a", "worker")
	c := newCluster(t, set)
	stream := &mcfgv1.OSImageStream{ObjectMeta: metav1.ObjectMeta{
		Name: mcfgv1.OSImageStreamName, Annotations: map[string]string{mcfgv1.AnnotationBootImageSkewLimits: `{"rhelVersion":"9.8"}`},
	}}
	require.NoError(t, c.Create(t.Context(), stream))
	c.mustReconcile(mapi, set)
	assert.Contains(t, condition(c.overview(), "Upgradeable"), "the oldest allowed is RHEL 9.8")
	before := stream.DeepCopy()
	c.edit(stream, func() { stream.Annotations[mcfgv1.AnnotationBootImageSkewLimits] = "nine" })
	assert.True(t, defaultChanged().Update(event.UpdateEvent{ObjectOld: before, ObjectNew: stream}))
	c.mustReconcile(mapi, set)
	assert.Contains(t, condition(c.overview(), "BootImageUpdateDegraded"), "annotation machineconfiguration.openshift.io/boot-image-skew-limits of OSImageStream")
}

// importing is an Importer that ends when it is told to.
type importing struct {
	begun int
	end   chan error
}

func (i *importing) Import(context.Context, string, plan.Spec, plan.Image) error {
	i.begun++
	return <-i.end
}

func TestAnImportGoesOnBesideThePasses(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		im := &importing{end: make(chan error)}
		clock := clocktesting.NewFakePassiveClock(t0)
		m := newImports(im, clock)
		r := &resource{plan: plan.Resource{ProviderSpec: plan.Spec{"workspace": map[string]any{"server": "vc"}}}}
		image := plan.Image{ID: "lab-x7-rhcos-1"}
		woken := 0
		ensure := func() (bool, error) { return m.ensure(t.Context(), r, image, func(context.Context) { woken++ }) }
		for range 2 {
			isThere, err := ensure()
			require.NoError(t, err)
			require.False(t, isThere)
			synctest.Wait()
		}
		require.Equal(t, 1, im.begun, "one is enough")

		im.end <- errors.New("vCenter is down")
		synctest.Wait()
		require.Equal(t, 1, woken)
		_, err := ensure()
		require.ErrorContains(t, err, "vCenter is down")
		require.True(t, fault.IsWaiting(err), "a download is not tried again at once")
		require.Equal(t, 1, im.begun)

		clock.SetTime(t0.Add(recheck))
		_, err = ensure()
		require.NoError(t, err)
		im.end <- nil
		synctest.Wait()
		isThere, err := ensure()
		require.NoError(t, err)
		require.True(t, isThere)
		require.Equal(t, 2, im.begun)
	})
}

func TestImportsAreFewAtATime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		im := &importing{end: make(chan error)}
		m := newImports(im, clocktesting.NewFakePassiveClock(t0))
		begin := func(server, image string) {
			r := &resource{plan: plan.Resource{ProviderSpec: plan.Spec{"workspace": map[string]any{"server": server}}}}
			isThere, err := m.ensure(t.Context(), r, plan.Image{ID: image}, func(context.Context) {})
			require.NoError(t, err)
			require.False(t, isThere)
			synctest.Wait()
		}
		begin("a", "one")
		begin("b", "one")
		require.Equal(t, 1, im.begun, "two of one name would remove each other")
		for i := range 10 {
			begin("a", strconv.Itoa(i))
		}
		require.Equal(t, maxImports, im.begun)
		im.end <- nil
		synctest.Wait()
		begin("c", "another")
		require.Equal(t, maxImports+1, im.begun)
		for range maxImports {
			im.end <- nil
		}
	})
}

func TestATemplateIsImportedBeforeItIsNamed(t *testing.T) {
	t.Parallel()
	set := machineSet(t, "a", "worker")
	set.SetLabels(map[string]string{"machine.openshift.io/cluster-api-cluster": "lab-x7"})
	require.NoError(t, unstructured.SetNestedMap(set.Object, map[string]any{
		"kind": "VSphereMachineProviderSpec", "template": "/dc/vm/lab/lab-x7-rhcos", "workspace": map[string]any{"server": "vc"},
	}, "spec", "template", "spec", "providerSpec", "value"))
	c := newCluster(t, set)
	u := c.update[mapi]
	template := func() string {
		name, _, _ := unstructured.NestedString(c.get(set).Object, "spec", "template", "spec", "providerSpec", "value", "template")
		return name
	}
	c.mustReconcile(mapi, set)
	assert.Equal(t, plan.ReasonNeedsUpload, u.ledger.entries()[0].reason, "nothing is set up to import it")

	im := &importing{end: make(chan error)}
	u.options.Importer, u.imports = im, newImports(im, c.clock)
	c.mustReconcile(mapi, set)
	assert.Equal(t, "/dc/vm/lab/lab-x7-rhcos", template())
	assert.Contains(t, condition(c.overview(), "BootImageUpdateProgressing"), "boot image 9.6.20250826-1 is imported into VSphere")
	im.end <- nil
	<-u.wake[u.kind]
	c.mustReconcile(mapi, set)
	assert.Regexp(t, `^/dc/vm/lab/lab-x7-rhcos-9\.6\.20250826-1-[0-9a-f]{8}$`, template())
}
