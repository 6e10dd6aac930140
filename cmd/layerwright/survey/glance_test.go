package survey_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/cmd/layerwright/survey"
)

// large is a cluster with more nodes than a page. The first nodes are told to change, all others
// have what they should.
type large struct {
	cluster

	all, busy int
	getErr    error
}

func (l *large) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	switch to := list.(type) {
	case *metav1.PartialObjectMetadataList:
		asked := (&client.ListOptions{}).ApplyOptions(options)
		if asked.Limit == 1 {
			to.RemainingItemCount = new(int64(l.all - 1))
			return nil
		}
		for i := range l.all {
			node := metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("node-", i)}}
			node.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "kubelet"}}
			node.Annotations = map[string]string{mcfgv1.AnnotationState: mcfgv1.NodeStateDone, mcfgv1.AnnotationCurrentConfig: "a", mcfgv1.AnnotationDesiredConfig: "a"}
			if i < l.busy {
				node.Annotations[mcfgv1.AnnotationDesiredConfig] = "b"
			}
			to.Items = append(to.Items, node)
		}
		return nil
	case *mcfgv1.MachineConfigNodeList:
		to.Items = make([]mcfgv1.MachineConfigNode, l.all)
	}
	return l.cluster.List(ctx, list, options...)
}

func (l *large) Get(ctx context.Context, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
	report, is := object.(*mcfgv1.MachineConfigNode)
	switch {
	case !is:
		return l.cluster.Get(ctx, key, object, options...)
	case key.Name == "node-0":
		return apierrors.NewNotFound(schema.GroupResource{Resource: "machineconfignodes"}, key.Name)
	default:
		report.Name = key.Name
		return l.getErr
	}
}

func (l *large) columns(context.Context) (*metav1.Table, error) {
	table := &metav1.Table{ColumnDefinitions: []metav1.TableColumnDefinition{{Name: "Name"}, {Name: "Status"}}}
	for i := range l.all {
		status := map[int]string{1: "NotReady", 2: "Ready,SchedulingDisabled", 3: "Unknown"}[i]
		if status == "" {
			status = "Ready"
		}
		table.Rows = append(table.Rows, metav1.TableRow{Cells: []any{fmt.Sprint("node-", i), status}})
	}
	return table, nil
}

func TestGlanceOfALargeCluster(t *testing.T) {
	t.Parallel()
	l := &large{all: 600, busy: 3, cluster: cluster{errors: map[string]error{
		"*v1.NodeList": errors.New("whole"), "*v1.MachineConfigNodeList": errors.New("whole"),
	}}}
	s, err := survey.Glance(t.Context(), l, l.columns, "mine")
	require.NoError(t, err)
	require.Len(t, s.Objects.Nodes, 600)
	assert.Empty(t, s.Objects.Nodes[0].ManagedFields)
	for i, want := range []struct{ ready, cordoned bool }{{true, false}, {false, false}, {true, true}, {false, false}} {
		node := s.Objects.Nodes[i]
		assert.Equal(t, want.cordoned, node.Spec.Unschedulable, node.Name)
		assert.Equal(t, want.ready, node.Status.Conditions[0] == corev1.NodeCondition{Type: corev1.NodeReady, Status: corev1.ConditionTrue}, node.Name)
	}
	var reported []string
	for i := range s.Objects.Reports {
		reported = append(reported, s.Objects.Reports[i].Name)
	}
	assert.ElementsMatch(t, []string{"node-1", "node-2"}, reported, "of node-0 there is none")
}

func TestGlanceWhenMostNodesChange(t *testing.T) {
	t.Parallel()
	l := &large{all: 600, busy: 101, getErr: errors.New("one by one")}
	s, err := survey.Glance(t.Context(), l, l.columns, "mine")
	require.NoError(t, err)
	assert.Len(t, s.Objects.Reports, 600)
}

func TestGlanceSaysWhatIsNotThere(t *testing.T) {
	t.Parallel()
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "machineconfignodes"}, "", nil)
	l := &large{all: 600, busy: 3, getErr: forbidden}
	s, err := survey.Glance(t.Context(), l, l.columns, "mine")
	require.NoError(t, err)
	require.Len(t, s.Notes, 1)
	assert.Contains(t, s.Notes[0], "machineconfignodes")

	_, err = survey.Glance(t.Context(), l, func(context.Context) (*metav1.Table, error) {
		return &metav1.Table{Rows: []metav1.TableRow{{Cells: []any{"node-0"}}}}, nil
	}, "mine")
	require.ErrorContains(t, err, "without the columns Name and Status")
}

func TestGlanceOfASmallCluster(t *testing.T) {
	t.Parallel()
	l := &large{all: 500, cluster: cluster{nodes: 5}}
	s, err := survey.Glance(t.Context(), l, nil, "mine")
	require.NoError(t, err)
	assert.Len(t, s.Objects.Nodes, 5)
	assert.Len(t, s.Objects.Reports, 500, "SINCE of nodes that are done is in them")
}
