package pools

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/nodes/nodestest"
)

// t0 is when the tests take place, in whole seconds as the API stores times.
var t0 = time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)

// newPool makes a pool that selects nodes and MachineConfigs as pools of its name do.
func newPool(name string, change ...func(*mcfgv1.MachineConfigPool)) *mcfgv1.MachineConfigPool {
	pool := &mcfgv1.MachineConfigPool{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid-" + name), Generation: 1}}
	pool.Spec.NodeSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"node-role.kubernetes.io/" + name: ""}}
	roles := []string{name}
	if name != mcfgv1.PoolMaster && name != mcfgv1.PoolArbiter {
		roles = []string{mcfgv1.PoolWorker, name}
	}
	pool.Spec.MachineConfigSelector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
		{Key: mcfgv1.LabelRole, Operator: metav1.LabelSelectorOpIn, Values: roles},
	}}
	for _, c := range change {
		c(pool)
	}
	return pool
}

// wanting gives a pool a configuration in its spec.
func wanting(config string) func(*mcfgv1.MachineConfigPool) {
	return func(p *mcfgv1.MachineConfigPool) { p.Spec.Configuration.Name = config }
}

// wantingImage gives a pool an image by a digest of one repeated character.
func wantingImage(digit string) func(*mcfgv1.MachineConfigPool) {
	return func(p *mcfgv1.MachineConfigPool) { p.Status.OSImagePullSpec = mcfgv1.ImageDigestFormat(pinned(digit)) }
}

func paused(p *mcfgv1.MachineConfigPool) { p.Spec.Paused = true }

// Nodes of tests, by the short names that they have here.
var (
	newNode       = nodestest.New
	having        = nodestest.Having
	havingImage   = nodestest.HavingImage
	annotated     = nodestest.Annotated
	labelled      = nodestest.Labelled
	inState       = nodestest.InState
	withCondition = nodestest.WithCondition
	cordoned      = nodestest.Cordoned
	observeAll    = nodestest.ObserveAll
	pinned        = nodestest.Pinned
)

// newConfig makes a MachineConfig for a role that writes one file.
func newConfig(name, role, path string) *mcfgv1.MachineConfig {
	mc := &mcfgv1.MachineConfig{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{mcfgv1.LabelRole: role}}}
	mc.Spec.Config = runtime.RawExtension{Raw: fmt.Appendf(nil,
		`{"ignition":{"version":"3.4.0"},"storage":{"files":[{"path":%q,"mode":420,"contents":{"source":"data:,%s"}}]}}`, path, name)}
	return mc
}

// newStream makes the OSImageStream with the given streams, of which the first is the default.
func newStream(names ...string) *mcfgv1.OSImageStream {
	s := &mcfgv1.OSImageStream{ObjectMeta: metav1.ObjectMeta{Name: mcfgv1.OSImageStreamName}}
	s.Spec.DefaultStream = names[0]
	var sets []mcfgv1.OSImageStreamSet
	for _, name := range names {
		sets = append(sets, mcfgv1.OSImageStreamSet{
			Name: name, OSImage: mcfgv1.ImageDigestFormat(streamImage(name)), OSExtensionsImage: mcfgv1.ImageDigestFormat(streamImage(name)),
		})
	}
	s.Status.SetStreams(sets, names[0])
	return s
}

// streamImage is the OS image of a stream, with a digest that is the stream's.
func streamImage(name string) string {
	return fmt.Sprintf("quay.io/os/%s@sha256:%064x", name, name)
}
