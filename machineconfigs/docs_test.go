package machineconfigs

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
)

func TestDocumentedMachineConfigsRender(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../docs/machineconfigs.md")
	require.NoError(t, err)
	var configs []*mcfgv1.MachineConfig
	for i, part := range strings.Split(string(page), "```") {
		example, isYAML := strings.CutPrefix(part, "yaml\n")
		if i%2 == 0 || !isYAML {
			continue
		}
		mc := &mcfgv1.MachineConfig{}
		require.NoError(t, yaml.UnmarshalStrict([]byte(example), mc), example)
		configs = append(configs, mc)
	}
	require.Len(t, configs, 4)
	r := render(t, configs...)
	require.Equal(t, []string{"50-bundle", "50-chrony", "60-vpn-key", "50-motd-rhel9"}, r.Sources)
	require.Equal(t, "server ntp.example.com iburst\n", contentOfFile(t, r, "/etc/chrony.conf"))
	require.Equal(t, NodeOnly{Files: []string{"/etc/vpn/key"}}, r.Config.NodeOnly)
	for _, f := range r.Config.Ignition.Storage.Files {
		require.Contains(t, []int{0o644, 0o600}, *f.Mode)
	}
	require.Empty(t, r.Config.Warnings)
}
