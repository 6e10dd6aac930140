package bootimages

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
)

const cpms = "ControlPlaneMachineSets"

// controlPlaneSet is a ControlPlaneMachineSet.
func controlPlaneSet(t *testing.T) *unstructured.Unstructured {
	t.Helper()
	o := machineSet(t, "cluster", "master")
	spec, _, _ := unstructured.NestedMap(o.Object, providerSpec...)
	o.SetGroupVersionKind(schema.GroupVersionKind{Group: "machine.openshift.io", Version: "v1", Kind: "ControlPlaneMachineSet"})
	require.NoError(t, unstructured.SetNestedMap(o.Object, map[string]any{
		"machineType": cpmsTemplate, cpmsTemplate: map[string]any{"spec": map[string]any{"providerSpec": map[string]any{"value": spec}}},
	}, "spec", "template"))
	return o
}

func sized(t *testing.T, name string, replicas int64) *unstructured.Unstructured {
	t.Helper()
	o := machineSet(t, name, "worker")
	require.NoError(t, unstructured.SetNestedField(o.Object, replicas, "spec", "replicas"))
	return o
}

// firsts are the stand-ins of a cluster whose smallest MachineSet comes last by name.
func firsts(t *testing.T) (masters, empty, large, small *unstructured.Unstructured, c *cluster) {
	t.Helper()
	masters, empty, large, small = controlPlaneSet(t), sized(t, "a", 0), sized(t, "b", 9), sized(t, "z", 2)
	pool := &mcfgv1.MachineConfigPool{}
	pool.Name = "master"
	pool.Annotations = map[string]string{mcfgv1.AnnotationRememberedStream: "rhel-9"}
	return masters, empty, large, small, newCluster(t, masters, empty, large, small, pool, userData(machines, "master-user-data", "userData", stub3))
}

func TestTheSmallestOfWorkersIsTheCanary(t *testing.T) {
	t.Parallel()
	masters, empty, large, small, c := firsts(t)
	for kind, each := range map[string][]client.Object{cpms: {masters}, mapi: {empty, large}} {
		for _, o := range each {
			assert.Equal(t, time.Hour, c.mustReconcile(kind, o).RequeueAfter, o.GetName())
		}
	}
	require.Len(t, c.update[mapi].wake[c.update[mapi].kind], 1, "the canary is told, by the first that came")
	assert.Equal(t, installed, c.image(large))
	assert.Contains(t, condition(c.overview(), "BootImageUpdateProgressing"),
		"MachineSet openshift-machine-api/a: MachineSet openshift-machine-api/z is updated first, and no machine of it has joined the cluster since")
	c.clock.SetTime(t0.Add(10 * time.Minute))
	c.mustReconcile(mapi, small)
	assert.Equal(t, image9, c.image(small))
	c.clock.SetTime(t0.Add(time.Hour))
	assert.Equal(t, 10*time.Minute, c.mustReconcile(cpms, masters).RequeueAfter, "the hour begins with the update")
	c.clock.SetTime(t0.Add(70 * time.Minute))
	c.mustReconcile(mapi, large)
	assert.Equal(t, image9, c.image(large))
}

func TestACanaryThatCannotGoMakesRoom(t *testing.T) {
	t.Parallel()
	for name, stop := range map[string]func(*cluster, *unstructured.Unstructured){
		"it fails": func(c *cluster, small *unstructured.Unstructured) {
			c.fail = func(verb string, o client.Object) error {
				if verb == "patch" && o.GetName() == small.GetName() {
					return errors.New("the webhook is down")
				}
				return nil
			}
		},
		"it is pinned": func(c *cluster, small *unstructured.Unstructured) {
			c.edit(small, func() { small.SetAnnotations(map[string]string{mcfgv1.AnnotationBootImagePin: installed}) })
		},
		"it is deleted": func(c *cluster, small *unstructured.Unstructured) {
			require.NoError(c.t, c.Delete(c.t.Context(), small))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			masters, _, large, small, c := firsts(t)
			c.mustReconcile(cpms, masters)
			stop(c, small)
			_, _ = c.reconcile(mapi, small)
			require.Len(t, c.update[cpms].wake[c.update[cpms].kind], 1, "who waited is told")
			c.mustReconcile(cpms, masters)
			c.mustReconcile(mapi, large)
			assert.Equal(t, image9, c.image(large), "the next one is the canary")
		})
	}
}
