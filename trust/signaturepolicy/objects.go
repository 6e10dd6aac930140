package signaturepolicy

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
)

// MachineConfigName is the name of the MachineConfig with a pool's files. It sorts behind those of
// most administrators, and wins over them.
func MachineConfigName(pool string) string {
	return "99-" + pool + "-layerwright-signature-policy"
}

// MachineConfig is the MachineConfig that gives a pool the files.
func MachineConfig(pool string, files Files) (*mcfgv1.MachineConfig, error) {
	type file struct {
		Path      string            `json:"path"`
		Mode      int               `json:"mode"`
		Overwrite bool              `json:"overwrite"`
		Contents  map[string]string `json:"contents"`
	}
	const readable = 0o644
	var list []file
	for _, path := range files.Paths() {
		list = append(list, file{path, readable, true, map[string]string{
			"source": "data:;base64," + base64.StdEncoding.EncodeToString(files[path]),
		}})
	}
	raw, err := json.Marshal(map[string]any{
		"ignition": map[string]string{"version": "3.2.0"}, "storage": map[string]any{"files": list},
	})
	if err != nil {
		return nil, fmt.Errorf("writing the MachineConfig of pool %q: %w", pool, err)
	}
	return &mcfgv1.MachineConfig{
		TypeMeta:   metav1.TypeMeta{APIVersion: mcfgv1.GroupVersion.String(), Kind: "MachineConfig"},
		ObjectMeta: metav1.ObjectMeta{Name: MachineConfigName(pool), Labels: map[string]string{mcfgv1.LabelRole: pool}},
		Spec:       mcfgv1.MachineConfigSpec{Config: runtime.RawExtension{Raw: raw}},
	}, nil
}

// ClusterImagePolicyName is the name of the ClusterImagePolicy for a pool's repository.
func ClusterImagePolicyName(pool string) string { return "layerwright-" + pool }

// TrustedLabel is on the ClusterImagePolicies for repositories of the trust policy, which belong to
// no pool. Layerwright writes it, and knows them by it.
const TrustedLabel = "layerwright.io/trusted-repository"

// TrustedClusterImagePolicyName is the name of the ClusterImagePolicy for a repository of the trust
// policy, which may be longer than a name. It is none that ClusterImagePolicyName gives, whatever a
// pool is called.
func TrustedClusterImagePolicyName(repository string) string {
	const enough = 8
	hash := sha256.Sum256([]byte(repository))
	return "layerwright.trusted-" + hex.EncodeToString(hash[:enough])
}

// ClusterImagePolicyKind is what OpenShift makes the files of, for all nodes of a cluster.
var ClusterImagePolicyKind = schema.GroupKind{Group: "config.openshift.io", Kind: "ClusterImagePolicy"}

// ClusterImagePolicyVersions are those of its versions that are known here, the best first. What is
// said of it in one is said in the other alike.
func ClusterImagePolicyVersions() []string { return []string{"v1", "v1alpha1"} }

// ClusterImagePolicy is the object of a name that makes OpenShift write the files for a repository
// with one key, or with an identity and one key of the log; nil for one with other numbers of keys.
// The kind has room for one of each. Of several objects about one repository OpenShift makes
// requirements that all have to be met, so that two keys would refuse what only one of them has
// signed.
func ClusterImagePolicy(name, version string, r Repository) *unstructured.Unstructured {
	var root map[string]any
	switch {
	case r.Identity != nil && len(r.Identity.LogKeys) == 1:
		root = map[string]any{
			"policyType": "FulcioCAWithRekor",
			"fulcioCAWithRekor": map[string]any{
				"fulcioCAData":  base64.StdEncoding.EncodeToString(r.Identity.Roots),
				"rekorKeyData":  base64.StdEncoding.EncodeToString(r.Identity.LogKeys[0]),
				"fulcioSubject": map[string]any{"oidcIssuer": r.Identity.Issuer, "signedEmail": r.Identity.Email},
			},
		}
	case r.Identity == nil && len(r.Keys) == 1:
		root = map[string]any{
			"policyType": "PublicKey",
			"publicKey":  map[string]any{"keyData": base64.StdEncoding.EncodeToString(r.Keys[0])},
		}
	default:
		return nil
	}
	object := &unstructured.Unstructured{Object: map[string]any{
		"spec": map[string]any{
			"scopes": []any{r.Name},
			"policy": map[string]any{"rootOfTrust": root, "signedIdentity": map[string]any{"matchPolicy": "MatchRepository"}},
		},
	}}
	object.SetGroupVersionKind(ClusterImagePolicyKind.WithVersion(version))
	object.SetName(name)
	return object
}
