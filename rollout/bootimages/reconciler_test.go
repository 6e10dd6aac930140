package bootimages

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	operatorv1 "github.com/layerwright/layerwright/api/operator/v1"
	"github.com/layerwright/layerwright/internal/metrics"
	"github.com/layerwright/layerwright/internal/status"
)

const (
	mapi     = "MAPI MachineSets"
	capiSets = "CAPI MachineSets"
	capiMDs  = "CAPI MachineDeployments"
	image9   = "projects/rhcos-cloud/global/images/image-rhel-9"
	image10  = "projects/rhcos-cloud/global/images/image-rhel-10"
)

// condition is one of the MachineConfiguration, as status, reason and message.
func condition(config *operatorv1.MachineConfiguration, kind string) string {
	c := status.Find(config.Status.Conditions, kind)
	if c == nil {
		return "none"
	}
	return string(c.Status) + " " + c.Reason + " " + c.Message
}

func TestMachineSetFollowsItsPoolsStream(t *testing.T) {
	t.Parallel()
	nine, ten := machineSet(t, "nine", "worker"), machineSet(t, "ten", "ten")
	c := newCluster(t, nine, ten)
	c.mustReconcile(mapi, nine)
	c.mustReconcile(mapi, ten)
	assert.Equal(t, image9, c.image(nine))
	assert.Equal(t, image10, c.image(ten))

	history := c.history(machines, "nine-machineset")
	require.Len(t, history.Status.Details, 2)
	assert.Equal(t, "414.92.202310170514-0", history.Status.Details[0].BootImageVersion)
	assert.Equal(t, installed, history.Status.Details[0].Image)
	assert.Equal(t, "9.6.20250826-1", history.Status.Details[1].BootImageVersion)
	configMap := bootImages("1", "1")
	require.NoError(t, c.Get(t.Context(), client.ObjectKeyFromObject(configMap), configMap))
	assert.Equal(t, configMap.ResourceVersion, strconv.FormatInt(history.Status.Details[1].ConfigMapGeneration, 10))
	assert.True(t, status.IsTrue(history.Status.Conditions, status.Ready))
	assert.Equal(t, "nine", history.OwnerReferences[0].Name)

	config := c.overview()
	assert.Equal(t, "False BootImagesUpToDate Reconciled 2 of 2 MAPI MachineSets | Reconciled 0 of 0 ControlPlaneMachineSets | "+
		"Reconciled 0 of 0 CAPI MachineSets | Reconciled 0 of 0 CAPI MachineDeployments", condition(config, "BootImageUpdateProgressing"))
	assert.Equal(t, "False BootImagesUpToDate 0 Degraded MAPI MachineSets | 0 Degraded ControlPlaneMachineSets | 0 Degraded CAPI MachineSets | "+
		"0 Degraded CAPI MachineDeployments", condition(config, "BootImageUpdateDegraded"))
	assert.Equal(t, "True Succeeded ", condition(config, "Upgradeable"))
	assert.Equal(t, "9.6.20250826-1", config.Status.BootImageSkewEnforcementStatus.Automatic.RHCOSVersion)
	assert.Equal(t, config.Spec.ManagedBootImages, config.Status.ManagedBootImagesStatus)
	assert.Equal(t, "2027-01-01T12:00:00Z", config.Annotations[mcfgv1.AnnotationBootImageOptedInAt])
}

func TestOptingOutKeepsTheLastImage(t *testing.T) {
	t.Parallel()
	set := machineSet(t, "a", "worker")
	c := newCluster(t, set)
	c.mustReconcile(mapi, set)
	config := c.overview()
	c.edit(config, func() { config.Spec.ManagedBootImages.MachineManagers[0].Selection.Mode = "None" })
	configMap := bootImages("9.8.20260101-0", "10.2.20260101-0")
	configMap.Data["streams"] = strings.ReplaceAll(configMap.Data["streams"], "image-rhel-9", "image-newer")
	require.NoError(t, c.Update(t.Context(), configMap))
	c.world.invalidate()
	c.mustReconcile(mapi, set)
	assert.Equal(t, image9, c.image(set))
}

func TestACanaryGoesFirst(t *testing.T) { //nolint:tparallel // the subtests share one world
	t.Parallel()
	a, b := machineSet(t, "a", "worker"), machineSet(t, "b", "worker")
	c := newCluster(t, a, b)
	c.mustReconcile(mapi, a)
	res := c.mustReconcile(mapi, b)
	require.Equal(t, installed, c.image(b), "it waits")
	assert.Equal(t, time.Hour, res.RequeueAfter)
	assert.Contains(t, condition(c.overview(), "BootImageUpdateProgressing"), "True BootImagesUpdating Reconciled 1 of 2 MAPI MachineSets")

	t.Run("a machine that joins lets the others go", func(t *testing.T) {
		old := machineOf(t, "old", "a", t0.Add(-time.Minute))
		require.NoError(t, c.Create(t.Context(), old))
		c.mustReconcile(mapi, a)
		c.mustReconcile(mapi, b)
		require.Equal(t, installed, c.image(b), "a machine from before proves nothing")

		require.NoError(t, c.Create(t.Context(), machineOf(t, "new", "a", t0.Add(time.Minute))))
		c.mustReconcile(mapi, a)
		require.Len(t, c.update[mapi].wake[c.update[mapi].kind], 1, "who waits is told")
		c.mustReconcile(mapi, b)
		assert.Equal(t, image9, c.image(b))
	})
	t.Run("so does time", func(t *testing.T) {
		late := newCluster(t, machineSet(t, "a", "worker"), machineSet(t, "b", "worker"))
		late.mustReconcile(mapi, a)
		late.mustReconcile(mapi, b)
		late.clock.SetTime(t0.Add(time.Hour))
		late.mustReconcile(mapi, b)
		assert.Equal(t, image9, late.image(b))
	})
}

// machineOf is a machine of a MachineSet that has joined the cluster.
func machineOf(t *testing.T, name, set string, made time.Time) *unstructured.Unstructured {
	t.Helper()
	return object(t, schema.GroupVersionKind{Group: "machine.openshift.io", Version: "v1beta1", Kind: "Machine"}, fmt.Sprintf(
		`{"metadata":{"namespace":%q,"name":%q,"labels":{"set":%q},"creationTimestamp":%q},"status":{"nodeRef":{"name":"n"}}}`,
		machines, name, set, made.Format(time.RFC3339)))
}

func TestAFightEndsAndNamesTheOtherWriter(t *testing.T) {
	t.Parallel()
	set := machineSet(t, "a", "worker")
	c := newCluster(t, set)
	for range 3 {
		c.mustReconcile(mapi, set)
		require.Equal(t, image9, c.image(set))
		c.edit(set, func() { setImage(set, installed) })
		c.clock.SetTime(c.clock.Now().Add(time.Minute))
	}
	c.mustReconcile(mapi, set)
	assert.Equal(t, installed, c.image(set), "no one writes any more")
	degraded := condition(c.overview(), "BootImageUpdateDegraded")
	assert.Contains(t, degraded, "True BootImageUpdateFailed 1 Degraded MAPI MachineSets | 0 Degraded ControlPlaneMachineSets | 0 Degraded CAPI MachineSets | "+
		"0 Degraded CAPI MachineDeployments | Error(s): error syncing MAPI MachineSet a: failed to reconcile machineset a, err: refusing to reconcile, hot loop detected")
}

func TestWritersOf(t *testing.T) {
	t.Parallel()
	entry := func(manager, fields string, at time.Time) metav1.ManagedFieldsEntry {
		return metav1.ManagedFieldsEntry{Manager: manager, Time: &metav1.Time{Time: at}, FieldsV1: metav1.NewFieldsV1(fields)}
	}
	const owns = `{"f:spec":{"f:value":{"f:disks":{}}}}`
	entries := []metav1.ManagedFieldsEntry{
		entry("installer", owns, t0), entry("argocd-controller", owns, t0.Add(time.Hour)), entry(FieldManager, owns, t0.Add(2*time.Hour)),
		entry("autoscaler", `{"f:spec":{"f:replicas":{}}}`, t0), entry("odd", `no JSON`, t0),
	}
	assert.Equal(t, []string{`"argocd-controller"`, `"installer"`}, writersOf(entries, []string{"spec", "value", "disks"}))
	assert.Empty(t, writersOf(entries, []string{"spec", "template"}))
}

func TestUndoGoesBackAndStays(t *testing.T) {
	t.Parallel()
	set := machineSet(t, "a", "worker")
	c := newCluster(t, set)
	c.mustReconcile(mapi, set)
	c.edit(set, func() { set.SetAnnotations(map[string]string{mcfgv1.AnnotationBootImagePin: "414.92.202310170514-0"}) })
	c.mustReconcile(mapi, set)
	require.Equal(t, installed, c.image(set))
	c.mustReconcile(mapi, set)
	require.Equal(t, installed, c.image(set), "it stays")
	require.Len(t, c.history(machines, "a-machineset").Status.Details, 3)

	c.edit(set, func() { set.SetAnnotations(map[string]string{mcfgv1.AnnotationBootImagePin: "1.2.3"}) })
	c.mustReconcile(mapi, set)
	assert.Equal(t, installed, c.image(set))
	assert.Contains(t, condition(c.overview(), "BootImageUpdateProgressing"), `no entry with version or image "1.2.3"`)

	c.edit(set, func() { set.SetAnnotations(nil) })
	c.mustReconcile(mapi, set)
	assert.Equal(t, image9, c.image(set), "it follows its stream again")
}

func TestClusterUpdatePausesBootImages(t *testing.T) {
	t.Parallel()
	set := machineSet(t, "a", "worker")
	c := newCluster(t, set)
	version := &unstructured.Unstructured{}
	version.SetGroupVersionKind(clusterVersionKind)
	version.SetName("version")
	c.edit(version, func() {
		_ = unstructured.SetNestedSlice(version.Object, []any{map[string]any{"state": "Partial", "version": "4.21.0"}}, "status", "history")
	})
	c.mustReconcile(mapi, set)
	require.Equal(t, installed, c.image(set))
	assert.Contains(t, condition(c.overview(), "BootImageUpdateProgressing"), "the cluster is being updated")

	configMap := bootImages("9.6.20250826-1", "10.1.20250901-0")
	c.edit(configMap, func() { configMap.Data["MCOReleaseImageVersion"] = "4.21.0" })
	c.mustReconcile(mapi, set)
	assert.Equal(t, image9, c.image(set), "a node of the control plane has the release")
}

func TestSkippedResourcesCountAndBlock(t *testing.T) {
	t.Parallel()
	set := machineSet(t, "a", "worker")
	set.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "hive.openshift.io/v1", Kind: "MachinePool", Name: "p", UID: "u"}})
	c := newCluster(t, set)
	version := &unstructured.Unstructured{}
	version.SetGroupVersionKind(clusterVersionKind)
	version.SetName("version")
	c.edit(version, func() {
		_ = unstructured.SetNestedSlice(version.Object, []any{map[string]any{"state": "Completed", "version": "4.12.0"}}, "status", "history")
	})
	c.mustReconcile(mapi, set)
	require.Equal(t, installed, c.image(set))
	config := c.overview()
	assert.Contains(t, condition(config, "BootImageUpdateProgressing"), "Reconciled 0 of 1 MAPI MachineSets (1 skipped) | Reconciled 0 of 0 ControlPlaneMachineSets | ")
	assert.Equal(t, "4.12.0", config.Status.BootImageSkewEnforcementStatus.Automatic.OCPVersion, "it is as old as the installation")
	assert.Contains(t, condition(config, "Upgradeable"), "False ClusterBootImageSkewError Boot images are too old: boot image 4.12.0 is of OCP 4.12")
	assert.Contains(t, condition(config, "Upgradeable"), "To continue, ")

	infrastructure := &unstructured.Unstructured{}
	infrastructure.SetGroupVersionKind(infrastructureKind)
	infrastructure.SetName("cluster")
	topology := func(name string) {
		c.edit(infrastructure, func() { _ = unstructured.SetNestedField(infrastructure.Object, name, "status", "controlPlaneTopology") })
	}
	topology("SingleReplica")
	assert.EqualValues(t, "None", c.overview().Status.BootImageSkewEnforcementStatus.Mode, "the default of a single node")
	topology("HighlyAvailable")
	assert.EqualValues(t, "Automatic", c.overview().Status.BootImageSkewEnforcementStatus.Mode)

	c.edit(config, func() { config.Spec.BootImageSkewEnforcement.Mode = "None" })
	assert.Equal(t, "True Succeeded ", condition(c.overview(), "Upgradeable"), "the way out")
}

func TestFailuresDegradeAfterAWhileAndRecover(t *testing.T) {
	t.Parallel()
	set := machineSet(t, "a", "worker")
	c := newCluster(t, set)
	c.fail = func(verb string, o client.Object) error {
		if verb == "patch" && o.GetName() == "a" {
			return errors.New("the webhook is down")
		}
		return nil
	}
	_, err := c.reconcile(mapi, set)
	require.ErrorContains(t, err, "the webhook is down")
	assert.Contains(t, condition(c.overview(), "BootImageUpdateDegraded"), "False ")
	for range 5 { // failed tries are no fight
		c.clock.SetTime(c.clock.Now().Add(2 * time.Minute))
		_, err = c.reconcile(mapi, set)
		require.ErrorContains(t, err, "the webhook is down")
	}
	config := c.overview()
	assert.Contains(t, condition(config, "BootImageUpdateDegraded"), "| Error(s): error syncing MAPI MachineSet a: failed to reconcile machineset a, err: ")
	assert.Contains(t, condition(config, "Upgradeable"), "False ClusterBootImageSkewError Boot images cannot be updated: ")

	c.fail = func(string, client.Object) error { return nil }
	c.mustReconcile(mapi, set)
	assert.Equal(t, image9, c.image(set))
	assert.Contains(t, condition(c.overview(), "BootImageUpdateDegraded"), "False BootImagesUpToDate")
	for _, b := range c.update[mapi].ledger.Scrape() {
		assert.Equal(t, metrics.BootImageUpToDate, b.State)
	}
}

func TestBrokenConfigMapIsReported(t *testing.T) {
	t.Parallel()
	set := machineSet(t, "a", "worker")
	c := newCluster(t, set)
	configMap := bootImages("1", "1")
	c.edit(configMap, func() { configMap.Data = map[string]string{"stream": "{"} })
	c.mustReconcile(mapi, set)
	assert.Equal(t, installed, c.image(set))
	assert.Contains(t, condition(c.overview(), "BootImageUpdateDegraded"), `CAPI MachineDeployments | Error(s): ConfigMap "coreos-bootimages" cannot be used: reading key "stream"`)
	require.NoError(t, c.Delete(t.Context(), configMap))
	c.world.invalidate()
	c.world.has.clusterVersion = false
	c.mustReconcile(mapi, set)
	assert.Contains(t, condition(c.overview(), "BootImageUpdateProgressing"), `False BootImagesIdle Boot images are not managed: there is no ConfigMap "coreos-bootimages"`)
}

func TestWhatOpenShiftBringsHasADeadline(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		stop  func(*cluster)
		after time.Duration
		want  string
	}{
		"the ConfigMap": {
			func(c *cluster) { require.NoError(c.t, c.Delete(c.t.Context(), bootImages("", ""))) }, 10 * time.Minute,
			`there is no ConfigMap "coreos-bootimages" in namespace "layerwright"`,
		},
		"the stamp": {
			func(c *cluster) {
				version := &unstructured.Unstructured{}
				version.SetGroupVersionKind(clusterVersionKind)
				version.SetName("version")
				c.edit(version, func() {
					_ = unstructured.SetNestedSlice(version.Object, []any{map[string]any{"state": "Partial", "version": "4.21.0"}}, "status", "history")
				})
			}, updateTakes, "no node of its control plane is known to have the new release",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			set := machineSet(t, "a", "worker")
			c := newCluster(t, set)
			tt.stop(c)
			c.mustReconcile(mapi, set)
			require.Equal(t, installed, c.image(set))
			c.clock.SetTime(t0.Add(tt.after - time.Minute))
			c.world.invalidate()
			config := c.overview()
			assert.Contains(t, condition(config, "BootImageUpdateProgressing"), "True BootImagesUpdating")
			assert.Contains(t, condition(config, "BootImageUpdateProgressing"), tt.want)
			assert.Contains(t, condition(config, "BootImageUpdateDegraded"), "False BootImagesUpToDate")
			res, err := c.view.Reconcile(t.Context(), ctrl.Request{NamespacedName: types.NamespacedName{Name: "cluster"}})
			require.NoError(t, err)
			assert.Equal(t, time.Minute, res.RequeueAfter)
			c.clock.SetTime(t0.Add(tt.after))
			degraded := condition(c.overview(), "BootImageUpdateDegraded")
			assert.Contains(t, degraded, "True BootImageUpdateFailed 0 Degraded MAPI MachineSets | ")
			assert.Contains(t, degraded, tt.want)
			assert.Contains(t, degraded, "this has lasted too long")

			c.world.has.clusterVersion = false // on plain Kubernetes an administrator brings it
			c.world.invalidate()
			assert.Contains(t, condition(c.overview(), "BootImageUpdateDegraded"), "False ")
		})
	}
}

func TestAllSkippedResourcesCanBeListed(t *testing.T) {
	t.Parallel()
	var all []client.Object
	for i := range maxNamed + 3 {
		o := machineSet(t, fmt.Sprintf("set-%d", i), "worker")
		o.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "hive.openshift.io/v1", Kind: "MachinePool", Name: "p", UID: "u"}})
		all = append(all, o)
	}
	c := newCluster(t, all...)
	for _, o := range all {
		c.mustReconcile(mapi, o)
	}
	message := condition(c.overview(), "BootImageUpdateProgressing")
	assert.Contains(t, message, "(8 skipped)")
	assert.Contains(t, message, "and 3 more (metric layerwright_boot_image_skipped has all)")
	var listed []string
	for _, b := range c.update[mapi].ledger.Scrape() {
		assert.Equal(t, metrics.BootImageSkipped, b.State)
		listed = append(listed, b.Name)
	}
	assert.Len(t, listed, len(all))
}

func TestAStubIsTranslatedOnceAndKept(t *testing.T) { //nolint:tparallel // the subtests share one world
	t.Parallel()
	const old = `{"ignition":{"version":"2.2.0","config":{"append":[{"source":"https://a/config/worker"}]}}}`
	set := machineSet(t, "a", "worker")
	c := newCluster(t, set)
	secret := userData(machines, "worker-user-data", "userData", old)
	require.NoError(t, c.Update(t.Context(), secret))
	c.mustReconcile(mapi, set)
	require.NoError(t, c.Get(t.Context(), client.ObjectKeyFromObject(secret), secret))
	assert.Contains(t, string(secret.Data["userData"]), `"version":"3.1.0"`)
	assert.Equal(t, old, string(secret.Data["userData.spec2"])) //nolint:testifylint // the text itself is compared
	assert.Equal(t, "3.1.0", secret.Annotations[mcfgv1.AnnotationStubIgnitionUpgradedTo])
	assert.Equal(t, "2027-01-01T12:00:00Z", secret.Annotations[mcfgv1.AnnotationStubIgnitionUpgradedAt])

	t.Run("one that can't be read is named, and nothing is changed", func(t *testing.T) {
		broken := newCluster(t, machineSet(t, "a", "worker"))
		require.NoError(t, broken.Update(t.Context(), userData(machines, "worker-user-data", "userData", "hunter2")))
		broken.mustReconcile(mapi, set)
		require.Equal(t, installed, broken.image(set))
		broken.clock.SetTime(t0.Add(time.Hour))
		message := condition(broken.overview(), "BootImageUpdateDegraded")
		assert.Contains(t, message, `secret "openshift-machine-api/worker-user-data" with its user data: it is not JSON`)
		assert.NotContains(t, message, "hunter2")
	})
	t.Run("the managed one is named where that was asked for", func(t *testing.T) {
		asked := machineSet(t, "a", "worker")
		asked.SetAnnotations(map[string]string{mcfgv1.AnnotationBootImageUserData: "managed"})
		c := newCluster(t, asked, userData(machines, "worker-user-data-managed", "userData", stub3))
		c.mustReconcile(mapi, asked)
		name, _, _ := unstructured.NestedString(c.get(asked).Object, "spec", "template", "spec", "providerSpec", "value", "userDataSecret", "name")
		assert.Equal(t, "worker-user-data-managed", name)
		assert.Equal(t, image9, c.image(asked))
	})
}

func TestATemplateIsClonedAndCollected(t *testing.T) {
	t.Parallel()
	o, template := deployment(t, "md")
	template.SetLabels(map[string]string{ // of Argo CD, Helm, Flux and kubectl, and one of Cluster API
		"cluster.x-k8s.io/cluster-name": "c", "app.kubernetes.io/instance": "app", "app.kubernetes.io/managed-by": "Helm", "team": "chosen as tracking label",
		"kustomize.toolkit.fluxcd.io/name": "app", "applyset.kubernetes.io/part-of": "set", "topology.cluster.x-k8s.io/owned": "",
	})
	template.SetOwnerReferences([]metav1.OwnerReference{
		{APIVersion: "cluster.x-k8s.io/v1beta2", Kind: "Cluster", Name: "c", UID: "c"}, {APIVersion: "kro.run/v1alpha1", Kind: "Fleet", Name: "f", UID: "f"},
	})
	c := newCluster(t, o, template)
	nameOf := func() string {
		name, _, _ := unstructured.NestedString(c.get(o).Object, "spec", "template", "spec", "infrastructureRef", "name")
		return name
	}
	c.mustReconcile(capiMDs, o)
	first := nameOf()
	require.Regexp(t, `^md-template-[0-9a-f]{8}$`, first)
	clone := template.DeepCopy()
	clone.SetName(first)
	is := c.get(clone)
	spec, _, _ := unstructured.NestedMap(is.Object, "spec", "template", "spec")
	assert.Equal(t, map[string]any{"image": image9, "instanceType": "n1", "rootDeviceSize": int64(128)}, spec)
	assert.Equal(t, map[string]string{"cluster.x-k8s.io/cluster-name": "c", labelCloned: "true"}, is.GetLabels())
	assert.Equal(t, map[string]string{annotationOriginal: "md-template"}, is.GetAnnotations())
	require.Len(t, is.GetOwnerReferences(), 1)
	assert.Equal(t, "Cluster", is.GetOwnerReferences()[0].Kind)
	kept, _, _ := unstructured.NestedStringMap(is.Object, "spec", "template", "metadata", "labels")
	assert.Equal(t, map[string]string{"kept": "yes"}, kept)

	configMap := bootImages("9.8.20260101-0", "10.2.20260101-0")
	configMap.Data["streams"] = strings.ReplaceAll(configMap.Data["streams"], "image-rhel-9", "image-newer")
	require.NoError(t, c.Update(t.Context(), configMap))
	c.world.invalidate()
	c.clock.SetTime(t0.Add(time.Hour))
	c.mustReconcile(capiMDs, o)
	second := nameOf()
	require.NotEqual(t, first, second)
	require.Regexp(t, `^md-template-[0-9a-f]{8}$`, second)
	c.mustReconcile(capiMDs, o)
	err := c.Get(t.Context(), client.ObjectKeyFromObject(clone), clone)
	assert.True(t, apierrors.IsNotFound(err), "nothing uses the first copy any more: %v", err)
	c.get(template) // what people made stays
	assert.Contains(t, condition(c.overview(), "BootImageUpdateProgressing"), "Reconciled 1 of 1 CAPI MachineDeployments")
}

func TestATemplateThatIsInUseStays(t *testing.T) {
	t.Parallel()
	o, template := deployment(t, "md")
	c := newCluster(t, o, template)
	c.mustReconcile(capiMDs, o)
	name, _, _ := unstructured.NestedString(c.get(o).Object, "spec", "template", "spec", "infrastructureRef", "name")
	older := c.get(o)
	older.SetGroupVersionKind(schema.GroupVersionKind{Group: "cluster.x-k8s.io", Version: "v1beta2", Kind: "MachineSet"})
	older.SetName("md-older")
	older.SetResourceVersion("")
	older.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "cluster.x-k8s.io/v1beta2", Kind: "MachineDeployment", Name: "md", UID: "u", Controller: new(true)}})
	require.NoError(t, c.Create(t.Context(), older))
	c.edit(o, func() {
		_ = unstructured.SetNestedField(o.Object, "md-template", "spec", "template", "spec", "infrastructureRef", "name")
		o.SetAnnotations(map[string]string{mcfgv1.AnnotationBootImagePin: installed})
	})
	c.clock.SetTime(t0.Add(time.Hour))
	c.mustReconcile(capiMDs, o)
	kept := template.DeepCopy()
	kept.SetName(name)
	c.get(kept)

	c.mustReconcile(capiSets, older)
	assert.NotContains(t, condition(c.overview(), "BootImageUpdateProgressing"), "skipped", "the MachineDeployment says what its MachineSets have")
	entry := c.update[capiSets].ledger.entries()[1]
	assert.Equal(t, "MachineDeployment clusters/md is looked at in its place", entry.message)
}

func TestTemplatesThatMayNotBeCopied(t *testing.T) {
	t.Parallel()
	o, template := deployment(t, "md")
	c := newCluster(t, o, template)
	c.fail = func(verb string, o client.Object) error {
		if verb == "create" && o.GetObjectKind().GroupVersionKind().Kind == "GCPMachineTemplate" {
			return apierrors.NewForbidden(schema.GroupResource{Resource: "gcpmachinetemplates"}, o.GetName(), nil)
		}
		return nil
	}
	c.mustReconcile(capiMDs, o)
	assert.Contains(t, condition(c.overview(), "BootImageUpdateProgressing"), "is forbidden; give the controller the rights of ClusterRole layerwright-boot-images")
}

func TestAResourceIsSteeredByOneAPI(t *testing.T) {
	t.Parallel()
	moved := machineSet(t, "same", "worker")
	require.NoError(t, unstructured.SetNestedField(moved.Object, "ClusterAPI", "status", "authoritativeAPI"))
	c := newCluster(t, moved)
	c.mustReconcile(mapi, moved)
	assert.Equal(t, installed, c.image(moved), "the other API has the say")

	o, template := deployment(t, "same")
	o.SetGroupVersionKind(schema.GroupVersionKind{Group: "cluster.x-k8s.io", Version: "v1beta2", Kind: "MachineSet"})
	other, _ := deployment(t, "same") // of the same name, in a namespace where nothing is mirrored
	other.SetGroupVersionKind(o.GroupVersionKind())
	for _, each := range []client.Object{o, template} {
		each.SetNamespace(clusterAPINamespace)
	}
	steering := machineSet(t, "same", "worker")
	mirror := newCluster(t, steering, o, template, other)
	mirror.mustReconcile(capiSets, o)
	entries := mirror.update[capiSets].ledger.entries()
	require.Len(t, entries, 1)
	assert.Equal(t, "PartOfAnother", entries[0].reason)
	_, _ = mirror.reconcile(capiSets, other)
	entries = mirror.update[capiSets].ledger.entries()
	require.Len(t, entries, 2)
	assert.NotEqual(t, "PartOfAnother", entries[0].reason)

	handedOver := steering.DeepCopy()
	require.NoError(t, unstructured.SetNestedField(handedOver.Object, "ClusterAPI", "status", "authoritativeAPI"))
	assert.True(t, authorityChanged().Update(event.UpdateEvent{ObjectOld: steering, ObjectNew: handedOver}), "the mirror is looked at again")
	assert.False(t, authorityChanged().Update(event.UpdateEvent{ObjectOld: steering, ObjectNew: steering}))
	assert.Equal(t, []reconcile.Request{{NamespacedName: client.ObjectKeyFromObject(o)}}, mirrorOf(t.Context(), steering))
	steering.SetNamespace("elsewhere")
	assert.Empty(t, mirrorOf(t.Context(), steering))
}

func TestBothVersionsOfClusterAPINameTemplates(t *testing.T) {
	t.Parallel()
	want := reference{"infrastructure.cluster.x-k8s.io", "GCPMachineTemplate", "ns", "x"}
	assert.Equal(t, want, referenceOf(map[string]any{"apiVersion": want.group + "/v1beta1", "kind": want.kind, "name": "x"}, "ns"))
	assert.Equal(t, want, referenceOf(map[string]any{"apiGroup": want.group, "kind": want.kind, "name": "x"}, "ns"))
	assert.Equal(t, reference{namespace: "ns"}, referenceOf(nil, "ns"))
	assert.Equal(t, want, referenceOf(map[string]any{"apiGroup": want.group, "kind": want.kind, "name": "x", "namespace": "of-others"}, "ns"), "nothing is made elsewhere")
}

// TestManyResourcesFromCold is the budget: 2,000 MachineSets below 10 s, with no list for each, and
// an event that touches only its own resource.
func TestManyResourcesFromCold(t *testing.T) {
	t.Parallel()
	const many = 2000
	var objects []client.Object
	for i := range many {
		o := machineSet(t, fmt.Sprintf("set-%04d", i), "worker")
		setImage(o, image9)
		objects = append(objects, o)
	}
	c := newCluster(t, objects...)
	began := time.Now()
	for _, o := range objects {
		c.mustReconcile(mapi, o)
	}
	took := time.Since(began)
	t.Logf("%d MachineSets from cold: %s", many, took)
	for what, n := range c.lists {
		assert.LessOrEqual(t, n, 1, what)
	}
	assert.Contains(t, condition(c.overview(), "BootImageUpdateProgressing"), "Reconciled 2000 of 2000 MAPI MachineSets")
	var histories unstructured.UnstructuredList
	histories.SetGroupVersionKind(schema.GroupVersionKind{Group: "machineconfiguration.openshift.io", Version: "v1alpha1", Kind: "BootImageHistoryList"})
	require.NoError(t, c.List(context.WithoutCancel(t.Context()), &histories))
	assert.Empty(t, histories.Items, "nothing was written for what is up to date")
}

func TestEveryControllerLearnsOfNodes(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	request := []reconcile.Request{{NamespacedName: types.NamespacedName{Name: "x"}}}
	all := func(context.Context, client.Object) []reconcile.Request { return request }
	first, second := c.world.whenNodesDiffer(all), c.world.whenNodesDiffer(all)
	node := &corev1.Node{}
	require.NoError(t, c.Get(t.Context(), client.ObjectKey{Name: "n"}, node))
	for i, when := range []handler.MapFunc{first, second} {
		require.Equal(t, request, when(t.Context(), node), i)
		require.Empty(t, when(t.Context(), node), "one more of the same")
		f, err := c.world.facts(t.Context())
		require.NoError(t, err)
		require.Equal(t, "amd64", f.architecture, "facts that another controller gathered do not hide the change")
	}
	other := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "m", Labels: map[string]string{corev1.LabelArchStable: "arm64"}}}
	require.NoError(t, c.Create(t.Context(), other))
	require.Equal(t, request, first(t.Context(), other))
	require.Equal(t, request, second(t.Context(), other))
	f, err := c.world.facts(t.Context())
	require.NoError(t, err)
	require.Empty(t, f.architecture)
}
