package signaturepolicy

import (
	"encoding/base64"
	"encoding/json"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
)

// roleLabel is what pools select MachineConfigs by.
const roleLabel = "machineconfiguration.openshift.io/role"

// MachineConfigName is the name of the MachineConfig with a pool's files. It sorts behind those of most administrators, and wins over them.
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
		ObjectMeta: metav1.ObjectMeta{Name: MachineConfigName(pool), Labels: map[string]string{roleLabel: pool}},
		Spec:       mcfgv1.MachineConfigSpec{Config: runtime.RawExtension{Raw: raw}},
	}, nil
}

// ClusterImagePolicy is the object that makes OpenShift write the same for all nodes of a cluster. It has room for one key alone: with several, there is
// one object for each, and OpenShift wants the signatures of all. Exchange keys there only once every image has both signatures. Of an identity, it has room
// for one key of the log: the first.
func ClusterImagePolicy(name string, r Repository) []*unstructured.Unstructured {
	if r.Identity != nil {
		return []*unstructured.Unstructured{clusterImagePolicy(name, r, map[string]any{
			"policyType": "FulcioCAWithRekor",
			"fulcioCAWithRekor": map[string]any{
				"fulcioCAData":  base64.StdEncoding.EncodeToString(r.Identity.Roots),
				"rekorKeyData":  base64.StdEncoding.EncodeToString(r.Identity.LogKeys[0]),
				"fulcioSubject": map[string]any{"oidcIssuer": r.Identity.Issuer, "signedEmail": r.Identity.Email},
			},
		})}
	}
	var out []*unstructured.Unstructured
	for i, key := range r.Keys {
		one := name
		if i > 0 {
			one = fmt.Sprintf("%s-%d", name, i+1)
		}
		out = append(out, clusterImagePolicy(one, r, map[string]any{
			"policyType": "PublicKey",
			"publicKey":  map[string]any{"keyData": base64.StdEncoding.EncodeToString(key)},
		}))
	}
	return out
}

func clusterImagePolicy(name string, r Repository, root map[string]any) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "config.openshift.io/v1",
		"kind":       "ClusterImagePolicy",
		"metadata":   map[string]any{"name": name},
		"spec": map[string]any{
			"scopes": []any{r.Name},
			"policy": map[string]any{"rootOfTrust": root, "signedIdentity": map[string]any{"matchPolicy": "MatchRepository"}},
		},
	}}
}
