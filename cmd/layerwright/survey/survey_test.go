package survey_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/cmd/layerwright/survey"
)

// cluster answers lists: nodes in pages of two, one pool, and of some kinds an error.
type cluster struct {
	client.Reader

	nodes  int
	errors map[string]error
}

func (c *cluster) List(_ context.Context, list client.ObjectList, options ...client.ListOption) error {
	if err := c.errors[fmt.Sprintf("%T", list)]; err != nil {
		return err
	}
	asked := (&client.ListOptions{}).ApplyOptions(options)
	switch l := list.(type) {
	case *mcfgv1.MachineConfigPoolList:
		l.Items = []mcfgv1.MachineConfigPool{{ObjectMeta: metav1.ObjectMeta{Name: "worker"}}}
	case *corev1.NodeList:
		first := len(asked.Continue)
		for i := first; i < min(first+2, c.nodes); i++ {
			n := corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("node-", i)}}
			n.Status.Images = []corev1.ContainerImage{{Names: []string{"large"}}}
			l.Items = append(l.Items, n)
		}
		if first+2 < c.nodes {
			l.Continue = asked.Continue + "--"
		}
	}
	return nil
}

func (c *cluster) Get(ctx context.Context, key client.ObjectKey, object client.Object, _ ...client.GetOption) error {
	if ctx.Err() != nil { // as a real one
		return ctx.Err()
	}
	if lease, is := object.(*coordinationv1.Lease); is && key.Name == "layerwright-controller" && key.Namespace == "mine" {
		lease.Spec.RenewTime = new(metav1.NewMicroTime(time.Unix(7, 0)))
		return nil
	}
	return apierrors.NewForbidden(schema.GroupResource{Resource: "leases"}, key.Name, nil)
}

func TestReadTakesAllPages(t *testing.T) {
	t.Parallel()
	s, err := survey.Read(t.Context(), &cluster{nodes: 5}, "mine")
	require.NoError(t, err)
	assert.Equal(t, "mine", s.Objects.Namespace)
	assert.Len(t, s.Objects.Pools, 1)
	require.Len(t, s.Objects.Nodes, 5)
	assert.Equal(t, "node-4", s.Objects.Nodes[4].Name)
	assert.Empty(t, s.Objects.Nodes[4].Status.Images)
	assert.Empty(t, s.Notes)
	assert.Equal(t, time.Unix(7, 0), s.Renewed)
}

func TestReadSaysWhatIsNotThere(t *testing.T) {
	t.Parallel()
	forbidden := func(resource string) error {
		return apierrors.NewForbidden(schema.GroupResource{Resource: resource}, "", nil)
	}
	absent := apierrors.NewNotFound(schema.GroupResource{}, "")
	for name, test := range map[string]struct {
		errors map[string]error
		notes  []string
		err    string
	}{
		"rights": {map[string]error{"*v1.NodeList": forbidden("nodes")}, []string{
			"not shown, since you may not list them: v1 nodes; an administrator gives the right with a ClusterRole that has the verbs get, list and watch for them",
		}, ""},
		"earlier version": {map[string]error{"*v1alpha1.MachineOSImageList": absent}, []string{
			`not shown, since the cluster has no such kind: MachineOSImage; the controller may be of an earlier version, which "layerwright check" says`,
		}, ""},
		"no rights": {map[string]error{"*v1.MachineConfigPoolList": forbidden("machineconfigpools")}, nil, "you may not list machineconfiguration.openshift.io/v1 machineconfigpools; "},
		"no kinds":  {map[string]error{"*v1.MachineConfigPoolList": absent}, nil, "Layerwright is not installed"},
		"no answer": {map[string]error{"*v1.NodeList": apierrors.NewTimeoutError("slow", 1)}, nil, "listing nodes: "},
	} {
		s, err := survey.Read(t.Context(), &cluster{errors: test.errors}, "")
		if test.err != "" {
			require.ErrorContains(t, err, test.err, name)
			continue
		}
		require.NoError(t, err, name)
		assert.Equal(t, test.notes, s.Notes, name)
		require.NoError(t, s.Need("machineosimages", "machineosbuilds"), name)
		if name == "rights" {
			require.EqualError(t, s.Need("machineosimages", "nodes"), "you may not list v1 nodes; an administrator gives the right with a ClusterRole that has the verbs get, list and watch for them")
		}
	}
}
