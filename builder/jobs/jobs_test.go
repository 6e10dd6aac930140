package jobs

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/builder/backend"
	"github.com/layerwright/layerwright/builder/pods"
)

const (
	namespace = "layerwright"
	buildName = "worker-0123456789abcdef0123456789abcdef"
	image     = "ghcr.io/layerwright/layerwright-builder:v1"
	digest    = "registry.example.com/os/worker@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
)

var (
	key = backend.Key{Build: buildName, UID: "uid-1"}
	// t0 is when the Job was made.
	t0 = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
)

func testOptions() *Options {
	return &Options{Namespace: namespace, Image: image, ServiceAccount: pods.DefaultAccount, UserNamespaces: pods.UserNamespacesAuto}
}

// fullSpec is a build that has everything that a build can have.
func fullSpec() *backend.Spec {
	return &backend.Spec{
		Key: key, Pool: "worker", Config: "worker-layered", Rendered: "rendered-worker-1", PushSpec: "registry.example.com/os/worker:1",
		Architectures: []backend.ArchitectureSpec{{
			Architecture: mcfgv1.ArchitectureAMD64,
			Instructions: backend.Instructions{Build: buildName, Architecture: mcfgv1.ArchitectureAMD64, Containerfile: "FROM configs\n", Stage: "final", Target: "registry.example.com/os/worker:1"},
			Context:      map[string][]byte{"motd": []byte("hello\n"), "blob": {0xff, 0x00}},
		}},
		PullSecret: "pull", PushSecret: "push",
		Inputs: []backend.Input{
			{Name: backend.InputEntitlement, Secret: "etc-pki-entitlement-worker"}, //nolint:gosec // a name
			{Name: backend.InputYumRepos, ConfigMap: "etc-yum-repos-d"},
			{Name: backend.InputRPMKeys, Secret: "etc-pki-rpm-gpg"}, //nolint:gosec // a name
		},
		Registries: []byte("unqualified-search-registries = []\n"), Policy: []byte("{}\n"), TrustBundle: []byte("-----BEGIN CERTIFICATE-----\n"),
		Proxy: map[string]string{"NO_PROXY": ".svc", "HTTPS_PROXY": "http://proxy:3128"},
		Resources: &mcfgv1.BuildResources{
			Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("2")},
			Limits:   corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("8Gi"), corev1.ResourceEphemeralStorage: resource.MustParse("60Gi")},
		},
		Placement: &mcfgv1.BuildPlacement{
			NodeSelector: map[string]string{"node-role.kubernetes.io/build": ""},
			Tolerations:  []corev1.Toleration{{Key: "build", Operator: corev1.TolerationOpExists}},
		},
		Retries: 3, Timeout: 90 * time.Minute,
	}
}

// plainSpec is a build that has only what every build has.
func plainSpec(architectures ...mcfgv1.Architecture) *backend.Spec {
	spec := &backend.Spec{Key: key, Pool: "worker", PushSpec: "registry.example.com/os/worker:1", Retries: 3, Timeout: 2 * time.Hour}
	for _, a := range architectures {
		spec.Architectures = append(spec.Architectures, backend.ArchitectureSpec{
			Architecture: a, Instructions: backend.Instructions{Build: buildName, Architecture: a, Containerfile: "FROM configs\n", Stage: "final", Target: "registry.example.com/os/worker:1"},
		})
	}
	return spec
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
