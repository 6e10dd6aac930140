package survey

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	mcfgv1alpha1 "github.com/layerwright/layerwright/api/machineconfiguration/v1alpha1"
	operatorv1 "github.com/layerwright/layerwright/api/operator/v1"
	"github.com/layerwright/layerwright/internal/manifests"
	"github.com/layerwright/layerwright/internal/names"
	"github.com/layerwright/layerwright/view"
)

// pageSize is how many objects the API server sends at once, which are in memory whole.
const pageSize = 500

// kind is one of those that a survey reads.
type kind struct {
	gvk      schema.GroupVersionKind
	resource string
	list     func() client.ObjectList
}

// kinds are all of them, pools first.
var kinds = []kind{
	{mcfgv1.GroupVersion.WithKind("MachineConfigPool"), "machineconfigpools", empty[mcfgv1.MachineConfigPoolList]},
	{mcfgv1.GroupVersion.WithKind("MachineOSConfig"), "machineosconfigs", empty[mcfgv1.MachineOSConfigList]},
	{mcfgv1.GroupVersion.WithKind("MachineOSBuild"), "machineosbuilds", empty[mcfgv1.MachineOSBuildList]},
	{mcfgv1alpha1.GroupVersion.WithKind("MachineOSImage"), "machineosimages", empty[mcfgv1alpha1.MachineOSImageList]},
	{corev1.SchemeGroupVersion.WithKind("Node"), "nodes", empty[corev1.NodeList]},
	{mcfgv1.GroupVersion.WithKind("MachineConfigNode"), "machineconfignodes", empty[mcfgv1.MachineConfigNodeList]},
	{mcfgv1.GroupVersion.WithKind("OSImageStream"), "osimagestreams", empty[mcfgv1.OSImageStreamList]},
	{operatorv1.GroupVersion.WithKind("MachineConfiguration"), "machineconfigurations", empty[operatorv1.MachineConfigurationList]},
}

// add takes an object of these kinds. No two of the same kind are added at once.
func (s *Survey) add(object runtime.Object) {
	to := &s.Objects
	switch o := object.(type) {
	case *mcfgv1.MachineConfigPool:
		to.Pools = append(to.Pools, *o)
	case *mcfgv1.MachineOSConfig:
		to.Configs = append(to.Configs, *o)
	case *mcfgv1.MachineOSBuild:
		to.Builds = append(to.Builds, *o)
	case *mcfgv1alpha1.MachineOSImage:
		to.Images = append(to.Images, *o)
	case *corev1.Node:
		o.Status.Images = nil // which is most of a Node
		to.Nodes = append(to.Nodes, *o)
	case *mcfgv1.MachineConfigNode:
		to.Reports = append(to.Reports, *o)
	case *mcfgv1.OSImageStream:
		to.Streams = append(to.Streams, *o)
	case *operatorv1.MachineConfiguration:
		to.Machines = append(to.Machines, *o)
	}
}

func empty[L any, P interface {
	*L
	client.ObjectList
}]() client.ObjectList {
	return P(new(L))
}

// Scheme knows the kinds that a survey reads.
func Scheme() (*runtime.Scheme, error) {
	scheme := runtime.NewScheme()
	known := runtime.NewSchemeBuilder(coordinationv1.AddToScheme, corev1.AddToScheme, policyv1.AddToScheme, mcfgv1.AddToScheme, mcfgv1alpha1.AddToScheme, operatorv1.AddToScheme)
	return scheme, known.AddToScheme(scheme)
}

// Mapper knows where the API server has them, and what commands read beside them, so that it need
// not be asked.
func Mapper() meta.RESTMapper {
	mapper := meta.NewDefaultRESTMapper(nil)
	for i := range kinds {
		mapper.Add(kinds[i].gvk, meta.RESTScopeRoot)
	}
	mapper.Add(mcfgv1.GroupVersion.WithKind("MachineConfig"), meta.RESTScopeRoot)
	for _, namespaced := range []schema.GroupVersionKind{pods.gvk, budgets.gvk, bootImages.gvk, corev1.SchemeGroupVersion.WithKind("ConfigMap"), Job, PipelineRun} {
		mapper.Add(namespaced, meta.RESTScopeNamespace)
	}
	mapper.Add(coordinationv1.SchemeGroupVersion.WithKind("Lease"), meta.RESTScopeNamespace)
	return mapper
}

// NotInstalledError is of a cluster that has no pools, or no other kind that is named.
type NotInstalledError struct{ Kind string }

func (e *NotInstalledError) Error() string {
	return "the cluster has no kind " + cmp.Or(e.Kind, "MachineConfigPool") + `: Layerwright is not installed there; "layerwright check" says what it takes`
}

// DeniedError is of a user who may read nothing that matters.
type DeniedError struct{ Resources []string }

func (e *DeniedError) Error() string {
	return "you may not list " + strings.Join(e.Resources, ", ") + "; " + howToGetRights
}

const howToGetRights = "an administrator gives the right with a ClusterRole that has the verbs get, list and watch for them"

// Survey is what could be read.
type Survey struct {
	Objects view.Objects
	// Notes say what is not in it, and why.
	Notes []string
	// Renewed is when the controller renewed its Lease, by its own clock; zero where that is not
	// known.
	Renewed time.Time

	denied []string
}

// Need is an error where the user may not list one of these resources, such as "nodes": for who
// can't do without, that nothing was read does not mean that there is nothing.
func (s *Survey) Need(resources ...string) error {
	var lacks []string
	for _, one := range s.denied {
		if _, resource, _ := strings.Cut(one, " "); slices.Contains(resources, resource) {
			lacks = append(lacks, one)
		}
	}
	if lacks == nil {
		return nil
	}
	return &DeniedError{lacks}
}

// Read reads all kinds. The namespace is that of Layerwright.
func Read(ctx context.Context, from client.Reader, namespace string) (*Survey, error) {
	s := &Survey{Objects: view.Objects{Namespace: namespace}}
	return s.read(ctx, from, func(reading context.Context, k *kind) error { return s.list(reading, from, k) })
}

// read reads all kinds at once.
func (s *Survey) read(ctx context.Context, from client.Reader, list func(context.Context, *kind) error) (*Survey, error) {
	var lock sync.Mutex
	var denied, absent []string
	group, listing := errgroup.WithContext(ctx)
	for i := range kinds {
		group.Go(func() error {
			k := &kinds[i]
			err := list(listing, k)
			lock.Lock()
			defer lock.Unlock()
			switch {
			case apierrors.IsForbidden(err):
				denied = append(denied, k.gvk.GroupVersion().Identifier()+" "+k.resource)
			case meta.IsNoMatchError(err), apierrors.IsNotFound(err):
				absent = append(absent, k.gvk.Kind)
			case err != nil:
				return fmt.Errorf("listing %s: %w", k.resource, err)
			}
			return nil
		})
	}
	group.Go(func() error {
		var lease coordinationv1.Lease
		if err := from.Get(listing, client.ObjectKey{Namespace: s.Objects.Namespace, Name: names.ControllerLease}, &lease); err == nil && lease.Spec.RenewTime != nil {
			s.Renewed = lease.Spec.RenewTime.Time
		}
		return nil
	})
	if err := group.Wait(); err != nil {
		return nil, err
	}
	slices.Sort(denied)
	slices.Sort(absent)
	if err := s.judge(denied, absent); err != nil {
		return nil, err
	}
	return s, nil
}

// list adds the objects of a kind.
func (s *Survey) list(ctx context.Context, from client.Reader, k *kind) error {
	return k.read(ctx, from, s.add)
}

// ReadFiles takes a recorded cluster from files and folders with lists of objects, as "kubectl get
// -o yaml" prints them.
func ReadFiles(names ...string) (*Survey, error) {
	scheme, err := Scheme()
	if err != nil {
		return nil, err
	}
	set, err := (&manifests.Reader{Scheme: scheme}).Read(names)
	if err != nil {
		return nil, err
	}
	s := &Survey{}
	for _, object := range set.Objects {
		s.add(object)
	}
	if len(set.Others) > 0 {
		s.Notes = append(s.Notes, "not shown: "+strings.Join(set.Others, ", "))
	}
	return s, nil
}

// judge says what is missing.
func (s *Survey) judge(denied, absent []string) error {
	pools := kinds[0]
	if slices.Contains(absent, pools.gvk.Kind) {
		return &NotInstalledError{}
	}
	if slices.Contains(denied, pools.gvk.GroupVersion().Identifier()+" "+pools.resource) {
		return &DeniedError{denied}
	}
	s.denied = denied
	if len(denied) > 0 {
		s.Notes = append(s.Notes, "not shown, since you may not list them: "+strings.Join(denied, ", ")+"; "+howToGetRights)
	}
	if len(absent) > 0 {
		s.Notes = append(s.Notes, "not shown, since the cluster has no such kind: "+strings.Join(absent, ", ")+`; the controller may be of an earlier version, which "layerwright check" says`)
	}
	return nil
}

// read reads the pages of a kind.
func (k *kind) read(ctx context.Context, from client.Reader, see func(runtime.Object)) error {
	for next := ""; ; {
		page := k.list()
		if err := from.List(ctx, page, client.Limit(pageSize), client.Continue(next)); err != nil {
			return err
		}
		err := meta.EachListItem(page, func(object runtime.Object) error {
			if of, err := meta.Accessor(object); err == nil {
				of.SetManagedFields(nil) // which no one reads, and which is more than the rest
			}
			see(object)
			return nil
		})
		if next = page.GetContinue(); next == "" || err != nil {
			return err
		}
	}
}
