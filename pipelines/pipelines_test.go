package pipelines

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"knative.dev/pkg/apis"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/builder/backend"
	"github.com/layerwright/layerwright/builder/pods"
)

const (
	namespace = "layerwright"
	buildName = "worker-0123456789abcdef0123456789abcdef"
	image     = "ghcr.io/layerwright/layerwright-builder:v1"
	target    = "registry.example.com/os/worker:content-1"
	digest    = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
	pushed    = "registry.example.com/os/worker@" + digest
)

var (
	key = backend.Key{Build: buildName, UID: "uid-1"}
	// t0 is when the PipelineRun was made.
	t0 = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
)

func testOptions() *Options {
	return &Options{Namespace: namespace, Image: image, ServiceAccount: pods.DefaultAccount, UserNamespaces: pods.UserNamespacesAuto}
}

// asError is nil where there is none, which a *apis.FieldError in an interface is not.
func asError(err *apis.FieldError) error {
	if err == nil {
		return nil
	}
	return err
}

func plainSpec(architectures ...mcfgv1.Architecture) *backend.Spec {
	spec := &backend.Spec{Key: key, Pool: "worker", Config: "worker", PushSpec: target, Retries: 3, Timeout: 2 * time.Hour}
	for _, a := range architectures {
		spec.Architectures = append(spec.Architectures, backend.ArchitectureSpec{
			Architecture: a, Instructions: backend.Instructions{Build: buildName, Architecture: a, Containerfile: "FROM configs\n", Stage: "final", Target: target},
		})
	}
	return spec
}

// fullSpec is a build that has everything that a build can have.
func fullSpec() *backend.Spec {
	spec := plainSpec(mcfgv1.ArchitectureAMD64)
	spec.Rendered, spec.PullSecret, spec.PushSecret = "rendered-worker-1", "pull", "push"
	spec.Architectures[0].Context = map[string][]byte{"motd": []byte("hello\n")}
	spec.Inputs = []backend.Input{
		{Name: backend.InputEntitlement, Secret: "etc-pki-entitlement-worker"}, //nolint:gosec // a name
		{Name: backend.InputYumRepos, ConfigMap: "etc-yum-repos-d"},
		{Name: backend.InputRPMKeys, Secret: "etc-pki-rpm-gpg"}, //nolint:gosec // a name
	}
	spec.Registries, spec.Policy, spec.TrustBundle = []byte("unqualified-search-registries = []\n"), []byte("{}\n"), []byte("-----BEGIN CERTIFICATE-----\n")
	spec.Proxy = map[string]string{"NO_PROXY": ".svc", "HTTPS_PROXY": "http://proxy:3128"}
	spec.Resources = &mcfgv1.BuildResources{
		Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("2")},
		Limits:   corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("8Gi")},
	}
	spec.Placement = &mcfgv1.BuildPlacement{
		NodeSelector: map[string]string{"node-role.kubernetes.io/build": ""},
		Tolerations:  []corev1.Toleration{{Key: "build", Operator: corev1.TolerationOpExists}},
	}
	return spec
}
