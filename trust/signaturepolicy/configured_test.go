package signaturepolicy_test

import (
	"encoding/base64"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/machineconfigs"
	"github.com/layerwright/layerwright/trust/signaturepolicy"
)

const accepting = `{"default":[{"type":"insecureAcceptAnything"}]}`

// policyOf is a MachineConfig with a policy.json.
func policyOf(name, role, policy string, change ...func(*mcfgv1.MachineConfig)) *mcfgv1.MachineConfig {
	mc := &mcfgv1.MachineConfig{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{mcfgv1.LabelRole: role}},
		Spec: mcfgv1.MachineConfigSpec{Config: runtime.RawExtension{Raw: fmt.Appendf(nil,
			`{"ignition":{"version":"3.2.0"},"storage":{"files":[{"path":%q,"mode":420,"overwrite":true,"contents":{"source":"data:;base64,%s"}}]}}`,
			signaturepolicy.PolicyPath, base64.StdEncoding.EncodeToString([]byte(policy)))}},
	}
	for _, c := range change {
		c(mc)
	}
	return mc
}

func ofStream(mc *mcfgv1.MachineConfig) { mc.Labels[mcfgv1.LabelOSStream] = "rhel-10" }

// oursOf is the signature policy of a pool, as the controller makes it.
func oursOf(t *testing.T, pool string, there signaturepolicy.Files) *mcfgv1.MachineConfig {
	t.Helper()
	files, err := signaturepolicy.MakeFiles(there, []signaturepolicy.Repository{worker(firstKey)})
	require.NoError(t, err)
	mc, err := signaturepolicy.MachineConfig(pool, files)
	require.NoError(t, err)
	mc.OwnerReferences = []metav1.OwnerReference{{APIVersion: mcfgv1.GroupVersion.String(), Kind: "MachineOSConfig", Name: pool, UID: "1", Controller: new(true)}}
	return mc
}

// TestPolicyThatNodesGet compares with what Render makes of the same MachineConfigs.
func TestPolicyThatNodesGet(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		pool    string
		other   *mcfgv1.MachineConfig
		isOurs  bool
		message string
	}{
		"before ours":                       {"worker", policyOf("50-policy", "worker", accepting), true, ""},
		"behind ours":                       {"worker", policyOf("99-zz-policy", "worker", accepting), false, "rename it, so that its name sorts before"},
		"the worker's, in a pool before it": {"infra", policyOf("99-worker-layerwright-signature-policy", "worker", accepting), true, ""},
		"the worker's, in a pool behind it": {"zone", policyOf("99-worker-layerwright-signature-policy", "worker", accepting), true, ""},
		"a later name, of the role worker":  {"infra", policyOf("99-zz-policy", "worker", accepting), true, ""},
		"a later name, of the pool's role":  {"infra", policyOf("99-zz-policy", "infra", accepting), false, `MachineConfig "99-zz-policy" has /etc/containers/policy.json`},
		"an earlier name, of another role":  {"worker", policyOf("50-policy", "other", accepting), false, "joined after it"},
		"an earlier name, of a stream": {
			"worker", policyOf("50-policy", "worker", accepting, ofStream), false, `without the label "machineconfiguration.openshift.io/osstream"`,
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			selected := []*mcfgv1.MachineConfig{tt.other, oursOf(t, tt.pool, nil)}
			rendered, err := machineconfigs.Render(machineconfigs.Options{Pool: tt.pool, Images: machineconfigs.Images{OSImage: "r.example.com/os@sha256:1"}}, selected)
			require.NoError(t, err)
			files, err := signaturepolicy.FilesOf(rendered.MachineConfig)
			require.NoError(t, err)
			require.Equal(t, tt.isOurs, signaturepolicy.Enforce(signaturepolicy.Files{
				signaturepolicy.PolicyPath: files[signaturepolicy.PolicyPath], signaturepolicy.RegistryPath: files[signaturepolicy.RegistryPath],
			}, worker(firstKey)), "what nodes get")

			there, err := signaturepolicy.Read(tt.pool, selected)
			require.NoError(t, err)
			assert.JSONEq(t, accepting, string(there.Files[signaturepolicy.PolicyPath]))
			for _, err := range []error{there.InTheWay(), signaturepolicy.CheckKept(tt.pool, selected)} {
				if tt.isOurs {
					require.NoError(t, err)
				} else {
					require.ErrorContains(t, err, tt.message)
				}
			}
		})
	}
}

func TestPolicyKeptByALaterMachineConfig(t *testing.T) {
	t.Parallel()
	ours := oursOf(t, "worker", nil)
	files, err := signaturepolicy.FilesOf(ours)
	require.NoError(t, err)
	tests := map[string]struct {
		selected []*mcfgv1.MachineConfig
		want     string
	}{
		"that insists on the same": {[]*mcfgv1.MachineConfig{ours, policyOf("99-zz", "worker", string(files[signaturepolicy.PolicyPath]))}, ""},
		"that can't be read":       {[]*mcfgv1.MachineConfig{ours, policyOf("99-zz", "worker", "{")}, `MachineConfig "99-zz"`},
		"that appends":             {[]*mcfgv1.MachineConfig{ours, appending("99-zz")}, "it appends to the file"},
		"where there is no policy": {[]*mcfgv1.MachineConfig{policyOf("99-zz", "worker", accepting)}, ""},
		"where a person made the policy": {
			[]*mcfgv1.MachineConfig{policyOf("99-worker-layerwright-signature-policy", "worker", accepting), policyOf("99-zz", "worker", accepting)}, "",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := signaturepolicy.CheckKept("worker", tt.selected)
			if tt.want == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, tt.want)
		})
	}
}

// appending is a MachineConfig that adds to the policy.json.
func appending(name string) *mcfgv1.MachineConfig {
	return policyOf(name, "worker", "", func(mc *mcfgv1.MachineConfig) {
		mc.Spec.Config.Raw = fmt.Appendf(nil, `{"ignition":{"version":"3.2.0"},"storage":{"files":[{"path":%q,"append":[{"source":"data:,x"}]}]}}`, signaturepolicy.PolicyPath)
	})
}
