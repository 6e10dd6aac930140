package jobs

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/builder/backend"
	"github.com/layerwright/layerwright/builder/buildertest"
	"github.com/layerwright/layerwright/builder/pods"
)

const (
	namespace = "layerwright"
	buildName = "worker-0123456789abcdef0123456789abcdef"
	image     = "ghcr.io/layerwright/layerwright-builder:v1"
	target    = "registry.example.com/os/worker:1"
	digest    = "registry.example.com/os/worker@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
)

var (
	key = backend.Key{Build: buildName, UID: "uid-1"}
	// t0 is when the Job was made.
	t0 = buildertest.Start
)

func testOptions() *Options {
	return &Options{Namespace: namespace, Image: image, ServiceAccount: pods.DefaultAccount, UserNamespaces: pods.UserNamespacesAuto}
}

// fullSpec is a build that has everything that a build can have.
func fullSpec() *backend.Spec {
	spec := buildertest.FullSpec(key, "worker-layered", target)
	spec.Architectures[0].Context["blob"] = []byte{0xff, 0x00}
	spec.Resources.Limits[corev1.ResourceEphemeralStorage] = resource.MustParse("60Gi")
	spec.Timeout = 90 * time.Minute
	return spec
}

func plainSpec(architectures ...mcfgv1.Architecture) *backend.Spec {
	return buildertest.Spec(key, "", target, architectures...)
}

func newNode(name, arch string, userNamespaces bool) corev1.Node {
	return corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelArchStable: arch, corev1.LabelOSStable: "linux"}},
		Status: corev1.NodeStatus{RuntimeHandlers: []corev1.NodeRuntimeHandler{
			{Name: "other", Features: &corev1.NodeRuntimeHandlerFeatures{UserNamespaces: new(!userNamespaces)}},
			{Name: "", Features: &corev1.NodeRuntimeHandlerFeatures{UserNamespaces: &userNamespaces}},
		}},
	}
}
