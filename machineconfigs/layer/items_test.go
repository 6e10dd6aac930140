package layer_test

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/machineconfigs"
	"github.com/layerwright/layerwright/machineconfigs/layer"
)

func sha256Of(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "sha256-" + hex.EncodeToString(sum[:])
}

// alike are configurations that mean the same image, in groups; configurations of different groups
// mean different ones.
func alike() [][]string {
	files := func(list string) string { return `{"storage":{"files":[` + list + `]}}` }
	return [][]string{
		{`{}`, `{"passwd":{"users":[{"name":"core","passwordHash":"x"}]}}`, files(`{"path":"/var/x"}`)},
		{
			files(`{"path":"/etc/x","contents":{"source":"data:,hello"}}`),
			files(`{"path":"/etc/x","contents":{"source":"data:;base64,aGVsbG8="}}`),
			files(`{"path":"/etc/x","contents":{"source":"` + zipped("hello") + `","compression":"gzip"}}`),
			files(`{"path":"/etc/x","mode":420,"user":{"id":0},"group":{"name":"root"},"overwrite":true,"contents":{"source":"data:,hello"}}`),
			files(`{"path":"/etc/x","contents":{"source":"data:,hel"},"append":[{"source":"data:,lo"}]}`),
			files(`{"path":"/etc/x","append":[{"source":"data:,hel"},{"source":"data:,lo"}]}`),
			files(fmt.Sprintf(`{"path":"/etc/x","contents":{"source":"https://h/a","verification":{"hash":%q}}}`, sha256Of("hello"))),
			files(fmt.Sprintf(`{"path":"/etc/x","contents":{"source":"https://h/b","verification":{"hash":%q}}}`, sha256Of("hello"))),
		},
		{files(`{"path":"/etc/x","contents":{"source":"data:,hello2"}}`)},
		{files(`{"path":"/etc/x","mode":384,"contents":{"source":"data:,hello"}}`)},
		{files(`{"path":"/etc/x","user":{"id":1000},"contents":{"source":"data:,hello"}}`), files(`{"path":"/etc/x","user":{"name":"core"},"contents":{"source":"data:,hello"}}`)},
		{files(`{"path":"/etc/y","contents":{"source":"data:,hello"}}`)},
		{files(`{"path":"/bin/x"}`), files(`{"path":"/usr/bin/x"}`)},
		{files(`{"path":"/etc/a"},{"path":"/etc/b"}`), files(`{"path":"/etc/b"},{"path":"/etc/a"}`)},
		{files(`{"path":"/etc/chrony.conf","append":[{"source":"data:,hello"}]}`)},
		{files(`{"path":"/etc/chrony.conf","mode":384}`)},
		{`{"storage":{"directories":[{"path":"/etc/x"}]}}`, `{"storage":{"directories":[{"path":"/etc/x","mode":493}]}}`},
		{`{"storage":{"directories":[{"path":"/etc/x","mode":448}]}}`},
		{`{"storage":{"directories":[{"path":"/etc/private"}]}}`},
		{`{"storage":{"directories":[{"path":"/etc/private","overwrite":true}]}}`},
		{`{"storage":{"links":[{"path":"/etc/x","target":"a"}]}}`},
		{`{"storage":{"links":[{"path":"/etc/x","target":"b"}]}}`},
		{`{"storage":{"links":[{"path":"/etc/x","target":"/etc/passwd"}]}}`},
		{`{"storage":{"links":[{"path":"/etc/x","target":"/etc/passwd","hard":true}]}}`},
		{`{"systemd":{"units":[` + unit("a.service", wanted, "") + `]}}`},
		{`{"systemd":{"units":[` + unit("a.service", wanted, `"enabled":false`) + `]}}`},
		{`{"systemd":{"units":[` + unit("a.service", wanted, `"enabled":true`) + `]}}`},
		{`{"systemd":{"units":[` + unit("a.service", wanted, `"mask":true`) + `]}}`, `{"systemd":{"units":[` + unit("a.service", "", `"mask":true`) + `]}}`},
		{
			`{"systemd":{"units":[` + unit("a.service", "", `"dropins":[{"name":"a.conf","contents":"x"},{"name":"b.conf","contents":"y"}]`) + `]}}`,
			`{"systemd":{"units":[` + unit("a.service", "", `"dropins":[{"name":"b.conf","contents":"y"},{"name":"a.conf","contents":"x"}]`) + `]}}`,
		},
		{
			`{"systemd":{"units":[` + unit("a.service", "", `"dropins":[{"name":"a.conf","contents":""}]`) + `]}}`,
			`{"systemd":{"units":[` + unit("a.service", "", `"dropins":[{"name":"a.conf"}]`) + `]}}`,
		},
	}
}

// TestItemsDescribeTheLayer holds both ways: equal items, equal bytes; different items where the
// bytes differ.
func TestItemsDescribeTheLayer(t *testing.T) {
	t.Parallel()
	index := ostree().index(t)
	byItems, byLayer := map[string]int{}, map[string]int{}
	for group, configs := range alike() {
		for _, body := range configs {
			plan, err := layer.Split(config(t, body), index)
			require.NoError(t, err, body)
			inputs := layer.Inputs{Remote: map[string][]byte{}}
			for _, r := range plan.Remote {
				inputs.Remote[r.Key] = []byte("hello")
			}
			l, err := plan.Build(inputs)
			require.NoError(t, err, body)
			id, err := l.DiffID()
			require.NoError(t, err)
			items, err := json.Marshal(plan.Items)
			require.NoError(t, err)
			require.Truef(t, slices.IsSortedFunc(plan.Items, func(a, b layer.Item) int { return compare(a.Name, b.Name) }), "%s", items)
			for _, seen := range []struct {
				groups map[string]int
				key    string
			}{{byItems, string(items)}, {byLayer, id}} {
				if other, ok := seen.groups[seen.key]; ok {
					require.Equal(t, other, group, "%s is like another", body)
				}
				seen.groups[seen.key] = group
			}
		}
	}
	require.Len(t, byItems, len(alike()), "one list of items for each group")
	require.Len(t, byLayer, len(alike()), "one layer for each group")
}

func compare(a, b string) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

func TestNamesOfItems(t *testing.T) {
	t.Parallel()
	cfg := config(t, `{"storage":{"files":[{"path":"/bin/x"}],"directories":[{"path":"/etc/d"}],"links":[{"path":"/etc/l","target":"x"}]},
		"systemd":{"units":[{"name":"sshd.service","enabled":true,"dropins":[{"name":"10-x.conf","contents":"[Unit]\n"}]}]}}`)
	cfg.Extensions, cfg.KernelType = []string{"usbguard", "ipsec"}, "realtime"
	require.Equal(t, []string{
		"directory /etc/d", "drop-in 10-x.conf of unit sshd.service", "extension ipsec", "extension usbguard", "file /usr/bin/x",
		"kernel type realtime", "link /etc/l", "unit sshd.service",
	}, names(split(t, cfg, ostree())))
}

// readRecord reads the record as who knows MachineConfigs does.
func readRecord(t *testing.T, l *layer.Layer) (*mcfgv1.MachineConfig, *machineconfigs.Config) {
	t.Helper()
	e := entries(l)[layer.RecordPath[1:]]
	require.Equal(t, entry{Path: layer.RecordPath[1:], Type: layer.RegularFile, Mode: 0o600, Content: e.Content}, e)
	mc := &mcfgv1.MachineConfig{}
	require.NoError(t, json.Unmarshal(e.Content, mc))
	cfg, err := machineconfigs.Parse(mc)
	require.NoError(t, err, "%s", e.Content)
	return mc, cfg
}

func TestRecord(t *testing.T) {
	t.Parallel()
	cfg := config(t, `{"storage":{"files":[{"path":"/bin/x","mode":493,"user":{"name":"core"},"contents":{"source":"data:,%22%23%0A"}},{"path":"/etc/chrony.conf","append":[{"source":"data:,b"}]},
			{"path":"/etc/os-release","mode":256}],
		"directories":[{"path":"/etc/d"}],"links":[{"path":"/etc/l","target":"\"source\":\"data:;base64,#\""},{"path":"/etc/h","target":"/bin/x","hard":true}]},
		"systemd":{"units":[`+unit("a.service", wanted, `"mask":true,"dropins":[{"name":"b.conf"}]`)+`]}}`)
	cfg.Extensions, cfg.KernelType, cfg.KernelArguments = []string{"usbguard"}, "realtime", []string{"nosmt"}
	cfg.OSImageURL = "registry.example/os@sha256:" + hex.EncodeToString(make([]byte, 32))
	inputs := layer.Inputs{Base: map[string][]byte{"/usr/lib/os-release": []byte("NAME=x\n")}}
	l, err := split(t, cfg, ostree()).Build(inputs)
	require.NoError(t, err)
	mc, back := readRecord(t, l)
	require.Regexp(t, "^config-[0-9a-f]{32}$", mc.Name)
	require.Equal(t, "MachineConfig", mc.Kind)
	require.Equal(t, "machineconfiguration.openshift.io/v1", mc.APIVersion)
	require.Equal(t, []string{"usbguard"}, mc.Spec.Extensions)
	require.Equal(t, "realtime", mc.Spec.KernelType)
	require.Empty(t, mc.Spec.KernelArguments)
	require.Empty(t, mc.Spec.OSImageURL)

	require.Len(t, back.Ignition.Storage.Files, 3)
	byPath := map[string]int{}
	for i, f := range back.Ignition.Storage.Files {
		byPath[f.Path] = i
	}
	x := back.Ignition.Storage.Files[byPath["/usr/bin/x"]]
	require.Equal(t, 0o755, *x.Mode)
	require.Equal(t, 1000, *x.User.ID)
	require.Equal(t, "data:;base64,IiMK", *x.Contents.Source)
	chrony := back.Ignition.Storage.Files[byPath["/etc/chrony.conf"]]
	require.Nil(t, chrony.Contents.Source)
	require.Equal(t, "data:;base64,Yg==", *chrony.Append[0].Source)
	release := back.Ignition.Storage.Files[byPath["/usr/lib/os-release"]]
	require.Empty(t, release.Append)
	require.Equal(t, 0o400, *release.Mode)
	require.Nil(t, back.Ignition.Systemd.Units[0].Contents)

	// What is recorded means the same image again.
	again, err := split(t, back, ostree()).Build(inputs)
	require.NoError(t, err)
	require.Equal(t, changes(entries(l)), changes(entries(again)))
}

func TestEmptyConfigurationHasARecord(t *testing.T) {
	t.Parallel()
	l, err := split(t, config(t, "{}"), base{}).Build(layer.Inputs{})
	require.NoError(t, err)
	mc, _ := readRecord(t, l)
	require.Equal(t, "default", mc.Spec.KernelType)
	require.Len(t, l.Entries(), 3)
}
