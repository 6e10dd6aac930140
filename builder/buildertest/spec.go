package buildertest

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/builder/backend"
)

// Spec is a build that has only what every build has.
func Spec(key backend.Key, config, target string, architectures ...mcfgv1.Architecture) *backend.Spec {
	spec := &backend.Spec{Key: key, Pool: "worker", Config: config, PushSpec: target, Retries: 3, Timeout: 2 * time.Hour}
	for _, a := range architectures {
		spec.Architectures = append(spec.Architectures, backend.ArchitectureSpec{
			Architecture: a, Instructions: backend.Instructions{Build: key.Build, Architecture: a, Containerfile: "FROM configs\n", Stage: "final", Target: target},
		})
	}
	return spec
}

// FullSpec is a build that has everything that a build can have.
func FullSpec(key backend.Key, config, target string) *backend.Spec {
	spec := Spec(key, config, target, mcfgv1.ArchitectureAMD64)
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
