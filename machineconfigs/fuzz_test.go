package machineconfigs

import (
	"encoding/json"
	"maps"
	"slices"
	"testing"

	"github.com/coreos/ignition/v2/config/v3_5"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/stretchr/testify/require"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/machineconfigs/document"
)

// seedConfigs are good and bad configurations to start from.
func seedConfigs() []string {
	var seeds []string
	for _, name := range slices.Sorted(maps.Keys(badConfigs)) {
		if config := badConfigs[name].config; len(config) < 1000 {
			seeds = append(seeds, config)
		}
	}
	for _, mc := range everything() {
		seeds = append(seeds, string(mc.Spec.Config.Raw))
	}
	return append(
		seeds,
		"", "null", "{}", ignition(""), ignition(allKinds), "{\"ignition\":{\"version\":\"3.0.0\"}, \"storage\":{\"files\":[{\"path\":\"/a\",\"contents\":{\"source\":\"data:,a\\u0026b\"}}]}}",
		`{"ignition":{"version":"2.4.0"},"storage":{"files":[{"filesystem":"root","path":"/a","contents":{"source":"data:,a"}},{"filesystem":"root","path":"/a"}]}}`,
		`{"ignition":{"version":"2.2.0"},"systemd":{"units":[{"name":"a.service","enable":true,"dropins":[{"name":"a.conf"}]}]},"passwd":{"users":[{"name":"core","create":{}}]}}`,
		`{"ignition":{"version":"3.5.0","security":{"tls":{"certificateAuthorities":[{"source":"data:,a"},{"source":"data:,b"}]}}},"storage":{"luks":[{"name":"a","device":"/dev/a","keyFile":{"source":"data:,a"}}]}}`,
		files(`{"path":"/a","contents":{"source":"`+document.StandIn+`0"}},{"path":"/b","contents":{"source":"data:,a"}}`),
	)
}

// FuzzParse expects of every input: no panic, the same answer twice, and that what is accepted
// means what Ignition takes it for.
func FuzzParse(f *testing.F) {
	for _, seed := range seedConfigs() {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		cfg, err := Parse(machineConfig("50-a", string(raw)))
		again, againErr := Parse(machineConfig("50-a", string(raw)))
		if err != nil {
			require.Error(t, againErr)
			require.Equal(t, err.Error(), againErr.Error())
			var e *Error
			require.ErrorAs(t, err, &e)
			require.Equal(t, "50-a", e.MachineConfig)
			require.NotEmpty(t, e.Reason)
			return
		}
		require.NoError(t, againErr)
		require.Empty(t, cmp.Diff(cfg, again))
		want, err := json.Marshal(cfg.Ignition)
		require.NoError(t, err)
		got, err := encodeIgnition(cfg.Ignition)
		require.NoError(t, err)
		require.Equal(t, string(want), string(got))
		if theirs, _, err := v3_5.ParseCompatibleVersion(raw); err == nil {
			require.Empty(t, cmp.Diff(theirs, cfg.Ignition))
		} else {
			var spec2 struct{ Ignition struct{ Version string } }
			_ = json.Unmarshal(raw, &spec2)
			require.True(t, isEmpty(raw) || spec2.Ignition.Version[0] == '2', "Ignition refuses it: %v", err)
		}
	})
}

// FuzzRender expects of every two inputs: no panic, the same answer in any order, that what is
// rendered can be read, and that rendering it again changes nothing.
func FuzzRender(f *testing.F) {
	seeds := seedConfigs()
	for i, seed := range seeds {
		f.Add([]byte(seed), []byte(seeds[(i+1)%len(seeds)]), i%2 == 0, "")
		f.Add([]byte(seed), []byte(ignition(allKinds)), i%2 == 1, "quiet")
	}
	f.Fuzz(func(t *testing.T, first, second []byte, secret bool, argument string) {
		configs := func() []*mcfgv1.MachineConfig {
			a, b := machineConfig("50-a", string(first)), machineConfig("60-b", string(second))
			if secret {
				nodeOnly()(a)
			}
			if argument != "" {
				b.Spec.KernelArguments = []string{argument}
			}
			return []*mcfgv1.MachineConfig{a, b}
		}
		opts := Options{Pool: "worker", Images: streamImages}
		r, err := Render(opts, configs())
		turned := configs()
		turned[0], turned[1] = turned[1], turned[0]
		other, otherErr := Render(opts, turned)
		if err != nil {
			require.Error(t, otherErr)
			require.Equal(t, err.Error(), otherErr.Error())
			return
		}
		require.NoError(t, otherErr)
		require.Equal(t, r.MachineConfig.Name, other.MachineConfig.Name)
		require.Equal(t, string(r.MachineConfig.Spec.Config.Raw), string(other.MachineConfig.Spec.Config.Raw))
		cfg, err := Parse(r.MachineConfig)
		require.NoError(t, err)
		require.Empty(t, cmp.Diff(r.Config, cfg, cmpopts.IgnoreFields(Config{}, "Warnings"), cmpopts.EquateEmpty()))
		again, err := Render(opts, []*mcfgv1.MachineConfig{r.MachineConfig})
		require.NoError(t, err)
		require.Equal(t, r.MachineConfig.Name, again.MachineConfig.Name)
		require.Empty(t, cmp.Diff(r.MachineConfig, again.MachineConfig))
	})
}
