package pools

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	mcfgv1alpha1 "github.com/layerwright/layerwright/api/machineconfiguration/v1alpha1"
	"github.com/layerwright/layerwright/nodes/nodestest"
)

// made makes rendered MachineConfigs, the first one first.
func made(names ...string) []*mcfgv1.MachineConfig {
	var all []*mcfgv1.MachineConfig
	for i, name := range names {
		all = append(all, &mcfgv1.MachineConfig{ObjectMeta: metav1.ObjectMeta{
			Name: name, CreationTimestamp: metav1.NewTime(t0.Add(time.Duration(i) * time.Minute)),
		}})
	}
	return all
}

func TestPrune(t *testing.T) {
	t.Parallel()
	goingAlready := made("a", "b", "c")
	goingAlready[0].DeletionTimestamp = new(metav1.Now())
	sameSecond := made("b", "a", "c")
	for _, mc := range sameSecond {
		mc.CreationTimestamp = metav1.NewTime(t0)
	}
	tests := map[string]struct {
		rendered   []*mcfgv1.MachineConfig
		referenced []string
		limit      int
		want       []string
	}{
		"nothing there":                             {limit: 3},
		"fewer than the limit":                      {rendered: made("a", "b"), limit: 3},
		"as many as the limit":                      {rendered: made("a", "b", "c"), limit: 3},
		"the oldest goes":                           {rendered: made("a", "b", "c", "d"), limit: 3, want: []string{"a"}},
		"the oldest go":                             {rendered: made("a", "b", "c", "d"), limit: 1, want: []string{"a", "b", "c"}},
		"what is referred to stays, however old":    {rendered: made("a", "b", "c", "d"), referenced: []string{"a"}, limit: 2, want: []string{"b"}},
		"references among the newest are no extra":  {rendered: made("a", "b", "c"), referenced: []string{"c"}, limit: 1, want: []string{"a", "b"}},
		"no limit but references":                   {rendered: made("a", "b"), referenced: []string{"b"}, limit: 0, want: []string{"a"}},
		"references to what is gone mean nothing":   {rendered: made("a"), referenced: []string{"x", ""}, limit: 1},
		"what is being deleted is not deleted anew": {rendered: goingAlready, limit: 1, want: []string{"b"}},
		"of one second, the last by name is newest": {rendered: sameSecond, limit: 1, want: []string{"a", "b"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			before := slices.Clone(tt.rendered)
			var got []string
			for _, mc := range prune(tt.rendered, sets.New(tt.referenced...), tt.limit) {
				got = append(got, mc.Name)
			}
			slices.Sort(got)
			assert.Equal(t, tt.want, got)
			assert.Equal(t, before, tt.rendered, "the list is the cache's")
		})
	}
}

func TestReferenced(t *testing.T) {
	t.Parallel()
	pool := newPool("worker", wanting("pool-spec"))
	pool.Status.Configuration.Name = "pool-status"
	nodes := observeAll(newNode("n", nil, annotated(mcfgv1.AnnotationCurrentConfig, "node-current"), annotated(mcfgv1.AnnotationDesiredConfig, "node-desired"),
		annotated(mcfgv1.AnnotationFirstPivotConfig, "node-first"), annotated(mcfgv1.AnnotationPreviousConfig, "node-previous")), newNode("windows", nil, labelled(corev1.LabelOSStable, "windows"), having("of-no-pool")))
	build := mcfgv1.MachineOSBuild{Spec: mcfgv1.MachineOSBuildSpec{MachineConfig: mcfgv1.MachineConfigReference{Name: "build"}}}
	image := mcfgv1alpha1.MachineOSImage{Spec: mcfgv1alpha1.MachineOSImageSpec{RenderedMachineConfig: "image"}}
	image.Status.RenderedMachineConfig = "image-later"

	got := referenced([]*mcfgv1.MachineConfigPool{pool, newPool("infra")}, nodes, []mcfgv1.MachineOSBuild{build}, []mcfgv1alpha1.MachineOSImage{image, {}})
	want := []string{"build", "image", "image-later", "node-current", "node-desired", "node-first", "node-previous", "of-no-pool", "pool-spec", "pool-status"}
	assert.Equal(t, want, sets.List(got.Delete("")))
}

func TestRenderedOf(t *testing.T) {
	t.Parallel()
	pool, earlier := newPool("worker"), newPool("worker")
	earlier.UID = "of one that was deleted"
	own, foreign, source := made("rendered-worker-1")[0], made("rendered-worker-2")[0], made("rendered-by-name-only")[0]
	kind := mcfgv1.GroupVersion.WithKind(poolKind)
	own.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(pool, kind)}
	foreign.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(earlier, kind)}
	assert.Equal(t, []*mcfgv1.MachineConfig{own}, renderedOf(pool, []*mcfgv1.MachineConfig{source, foreign, own}))
}

func TestAbandoned(t *testing.T) {
	t.Parallel()
	pool := newPool("worker")
	pool.UID = "worker-uid"
	config := &mcfgv1.MachineOSConfig{ObjectMeta: metav1.ObjectMeta{Name: "worker", UID: "config-uid"}}
	before := &mcfgv1.MachineOSConfig{ObjectMeta: metav1.ObjectMeta{Name: "worker", UID: "before-uid"}}
	imageOf := func(controller *mcfgv1.MachineOSConfig, owners ...metav1.OwnerReference) mcfgv1alpha1.MachineOSImage {
		i := mcfgv1alpha1.MachineOSImage{ObjectMeta: metav1.ObjectMeta{Name: "image", OwnerReferences: owners}}
		i.Spec.PullSpec = mcfgv1.ImageDigestFormat(nodestest.Pinned("1"))
		if controller != nil {
			i.OwnerReferences = append(i.OwnerReferences, *metav1.NewControllerRef(controller, mcfgv1.GroupVersion.WithKind("MachineOSConfig")))
		}
		return i
	}
	ofPool := metav1.OwnerReference{Kind: poolKind, Name: "worker", UID: pool.UID}
	going := imageOf(nil, ofPool)
	going.DeletionTimestamp = new(metav1.Now())
	tests := map[string]struct {
		image mcfgv1alpha1.MachineOSImage
		layer *mcfgv1.MachineOSConfig
		node  string // the annotation that names the image
		named string
		want  bool
	}{
		"its MachineOSConfig is there":          {image: imageOf(config, ofPool), layer: config},
		"its MachineOSConfig is gone":           {image: imageOf(nil, ofPool), want: true},
		"the garbage collector has not seen it": {image: imageOf(config, ofPool), want: true},
		"it is that of the one before":          {image: imageOf(before, ofPool), layer: config, want: true},
		"a node runs it":                        {image: imageOf(nil, ofPool), node: mcfgv1.AnnotationCurrentImage},
		"a node is to run it":                   {image: imageOf(nil, ofPool), node: mcfgv1.AnnotationDesiredImage},
		"a node would go back to it":            {image: imageOf(nil, ofPool), node: mcfgv1.AnnotationPreviousImage},
		"a pool names it":                       {image: imageOf(nil, ofPool), named: "image"},
		"it was never the pool's":               {image: imageOf(nil)},
		"it is being deleted":                   {image: going},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := pool.DeepCopy()
			p.Spec.MachineOSImage = tt.named
			n := newNode("n", nil)
			if tt.node != "" {
				n = newNode("n", nil, annotated(tt.node, nodestest.Pinned("1")))
			}
			s := &scope{
				pool: p, pools: []*mcfgv1.MachineConfigPool{p}, layer: tt.layer,
				images: []mcfgv1alpha1.MachineOSImage{tt.image}, onNodes: onNodes(observeAll(n)),
			}
			assert.Equal(t, tt.want, len(abandoned(s)) == 1)
		})
	}
}
