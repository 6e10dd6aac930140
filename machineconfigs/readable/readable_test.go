package readable

import (
	"encoding/json"
	"testing"

	"github.com/coreos/ignition/v2/config/v3_5/types"
	"github.com/stretchr/testify/require"
)

func TestWhatPullsMustBeReadable(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		storage string
		want    string
	}{
		"a certificate for root alone": {
			`{"files":[{"path":"/etc/containers/certs.d/registry:5000/ca.crt","mode":384}]}`,
			`MachineConfig "50-a": file "/etc/containers/certs.d/registry:5000/ca.crt" has mode 0600: hosts pull images as a user without rights, who cannot read it; give it mode 0644`,
		},
		"a policy for a group": {
			`{"files":[{"path":"/etc/containers/policy.json","mode":416}]}`,
			`MachineConfig "50-a": file "/etc/containers/policy.json" has mode 0640: hosts pull images as a user without rights, who cannot read it; give it mode 0644`,
		},
		"a directory for root alone": {
			`{"directories":[{"path":"/etc/containers/registries.d","mode":448}]}`,
			`MachineConfig "50-a": directory "/etc/containers/registries.d" has mode 0700: hosts pull images as a user without rights, who cannot read it; give it mode 0755`,
		},
		"without a mode":                {`{"files":[{"path":"/etc/containers/policy.json"}],"directories":[{"path":"/etc/containers/certs.d"}]}`, ""},
		"readable":                      {`{"files":[{"path":"/etc/containers/policy.json","mode":420}]}`, ""},
		"a login, which is handed over": {`{"files":[{"path":"/etc/containers/auth.json","mode":384}]}`, ""},
		"a file with a similar name":    {`{"files":[{"path":"/etc/containers/policy.json.d","mode":384}]}`, ""},
		"a secret of something else":    {`{"files":[{"path":"/etc/secret","mode":384}]}`, ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var storage types.Storage
			require.NoError(t, json.Unmarshal([]byte(tt.storage), &storage))
			if tt.want == "" {
				require.Empty(t, Warnings("50-a", &storage))
				return
			}
			require.Equal(t, []string{tt.want}, Warnings("50-a", &storage))
		})
	}
}
