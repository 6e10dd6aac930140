package survey

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/rollout/plan"
	"github.com/layerwright/layerwright/view"
)

const (
	// maxReports is how many MachineConfigNodes are read one by one. To read more than that, a list
	// of all is cheaper.
	maxReports = 100
	// atOnce is how many of them are asked for at the same time.
	atOnce = 16
)

// Columns has the API server print the Nodes, without the objects.
type Columns func(ctx context.Context) (*metav1.Table, error)

// Glance is Read for a screen. Of a cluster with more than 500 nodes it reads only what the screen
// shows: of Nodes their metadata, whether they are Ready and whether they are cordoned, and the
// MachineConfigNodes of those whose agent has something to do. Most bytes of a Node are the images
// on it, and the API server takes long to list objects of custom kinds.
func Glance(ctx context.Context, from client.Reader, columns Columns, namespace string) (*Survey, error) {
	if !isLarge(ctx, from) {
		return Read(ctx, from, namespace)
	}
	s := &Survey{Objects: view.Objects{Namespace: namespace}}
	known := make(chan struct{}) // is closed when the Nodes are there, or can't be read
	return s.read(ctx, from, func(reading context.Context, k *kind) error {
		switch k.list().(type) {
		case *corev1.NodeList:
			defer close(known)
			return s.listNodes(reading, from, columns)
		case *mcfgv1.MachineConfigNodeList:
			<-known
			return s.getReports(reading, from, k)
		default:
			return s.list(reading, from, k)
		}
	})
}

// isLarge asks for one Node, and how many more there are. Where it fails, the list fails too, and
// says why.
func isLarge(ctx context.Context, from client.Reader) bool {
	var first metav1.PartialObjectMetadataList
	first.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("NodeList"))
	err := from.List(ctx, &first, client.Limit(1))
	return err == nil && first.RemainingItemCount != nil && *first.RemainingItemCount >= pageSize
}

func (s *Survey) listNodes(ctx context.Context, from client.Reader, columns Columns) error {
	var list metav1.PartialObjectMetadataList
	list.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("NodeList"))
	var printed map[string]string
	group, reading := errgroup.WithContext(ctx)
	group.Go(func() error { return from.List(reading, &list) })
	group.Go(func() error {
		table, err := columns(reading)
		if err == nil {
			printed, err = statusOf(table)
		}
		return err
	})
	if err := group.Wait(); err != nil {
		return err
	}
	s.Objects.Nodes = make([]corev1.Node, len(list.Items))
	for i := range list.Items {
		node := &s.Objects.Nodes[i]
		node.ObjectMeta = list.Items[i].ObjectMeta
		node.ManagedFields = nil
		words := strings.Split(printed[node.Name], ",")
		ready := corev1.NodeCondition{Type: corev1.NodeReady, Status: corev1.ConditionFalse}
		if slices.Contains(words, "Ready") {
			ready.Status = corev1.ConditionTrue
		}
		node.Status.Conditions = []corev1.NodeCondition{ready}
		node.Spec.Unschedulable = slices.Contains(words, "SchedulingDisabled")
	}
	return nil
}

// statusOf is the column STATUS of each Node.
func statusOf(table *metav1.Table) (map[string]string, error) {
	place := func(name string) int {
		return slices.IndexFunc(table.ColumnDefinitions, func(c metav1.TableColumnDefinition) bool { return c.Name == name })
	}
	name, status := place("Name"), place("Status")
	out := make(map[string]string, len(table.Rows))
	for i := range table.Rows {
		cells := table.Rows[i].Cells
		if name < 0 || status < 0 || max(name, status) >= len(cells) {
			return nil, fmt.Errorf("the API server prints Nodes without the columns Name and Status: it has %v", table.ColumnDefinitions)
		}
		out[fmt.Sprint(cells[name])] = fmt.Sprint(cells[status])
	}
	return out, nil
}

// getReports reads what agents report that have something to do.
func (s *Survey) getReports(ctx context.Context, from client.Reader, k *kind) error {
	var busy []string
	for i := range s.Objects.Nodes {
		if node := plan.Observe(&s.Objects.Nodes[i], nil); !node.IsSettled() {
			busy = append(busy, node.Name)
		}
	}
	if len(busy) > maxReports {
		return s.list(ctx, from, k)
	}
	var lock sync.Mutex
	group, reading := errgroup.WithContext(ctx)
	group.SetLimit(atOnce)
	for _, name := range busy {
		group.Go(func() error {
			var report mcfgv1.MachineConfigNode
			err := from.Get(reading, client.ObjectKey{Name: name}, &report)
			switch {
			case apierrors.IsNotFound(err):
				return nil // its agent has not said anything yet
			case err != nil:
				return err
			}
			report.ManagedFields = nil
			lock.Lock()
			defer lock.Unlock()
			s.add(&report)
			return nil
		})
	}
	return group.Wait()
}
