package pools

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
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

func pinned(digit string) string { return "quay.io/os/image@sha256:" + strings.Repeat(digit, 64) }

func paused(p *mcfgv1.MachineConfigPool) { p.Spec.Paused = true }

// newNode makes a healthy node with roles.
func newNode(name string, roles []string, change ...func(*corev1.Node)) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelOSStable: "linux"}, Annotations: map[string]string{}}}
	for _, role := range roles {
		n.Labels["node-role.kubernetes.io/"+role] = ""
	}
	n.Status.Conditions = []corev1.NodeCondition{
		{Type: corev1.NodeDiskPressure, Status: corev1.ConditionFalse}, {Type: corev1.NodeReady, Status: corev1.ConditionTrue},
	}
	for _, c := range change {
		c(n)
	}
	return n
}

// having says that the node has a configuration, and is to have that one.
func having(config string) func(*corev1.Node) {
	return func(n *corev1.Node) {
		metav1.SetMetaDataAnnotation(&n.ObjectMeta, mcfgv1.AnnotationCurrentConfig, config)
		metav1.SetMetaDataAnnotation(&n.ObjectMeta, mcfgv1.AnnotationDesiredConfig, config)
		metav1.SetMetaDataAnnotation(&n.ObjectMeta, mcfgv1.AnnotationState, mcfgv1.NodeStateDone)
	}
}

func havingImage(digit string) func(*corev1.Node) {
	return func(n *corev1.Node) {
		n.Annotations[mcfgv1.AnnotationCurrentImage] = pinned(digit)
		n.Annotations[mcfgv1.AnnotationDesiredImage] = pinned(digit)
	}
}

func annotated(key, value string) func(*corev1.Node) {
	return func(n *corev1.Node) { n.Annotations[key] = value }
}

func labelled(key, value string) func(*corev1.Node) {
	return func(n *corev1.Node) { n.Labels[key] = value }
}

func inState(state, reason string) func(*corev1.Node) {
	return func(n *corev1.Node) {
		n.Annotations[mcfgv1.AnnotationState], n.Annotations[mcfgv1.AnnotationReason] = state, reason
	}
}

func withCondition(conditionType corev1.NodeConditionType, status corev1.ConditionStatus) func(*corev1.Node) {
	return func(n *corev1.Node) {
		for i := range n.Status.Conditions {
			if n.Status.Conditions[i].Type == conditionType {
				n.Status.Conditions[i].Status = status
			}
		}
	}
}

func cordoned(n *corev1.Node) { n.Spec.Unschedulable = true }

// observeAll observes nodes.
func observeAll(nodes ...*corev1.Node) []node {
	var out []node
	for _, n := range nodes {
		out = append(out, observe(n))
	}
	return out
}

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
