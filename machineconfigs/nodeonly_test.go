package machineconfigs

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
)

const allKinds = `"storage":{"files":[{"path":"/etc/f"}],"directories":[{"path":"/etc/d"}],"links":[{"path":"/etc/l","target":"/etc/f"}]},
	"systemd":{"units":[{"name":"u.service"}]},"passwd":{"users":[{"name":"core"}],"groups":[{"name":"g"}]}`

func TestParseNodeOnly(t *testing.T) {
	t.Parallel()
	all := NodeOnly{
		Files: []string{"/etc/f"}, Directories: []string{"/etc/d"}, Links: []string{"/etc/l"}, Units: []string{"u.service"}, Users: []string{"core"}, Groups: []string{"g"},
	}
	tests := map[string]struct {
		options []option
		want    NodeOnly
	}{
		"nothing without the annotation": {nil, NodeOnly{}},
		"nothing if it says false":       {[]option{annotated(mcfgv1.AnnotationNodeOnly, "false")}, NodeOnly{}},
		"all of it":                      {[]option{nodeOnly()}, all},
		"all of a rendered one, whatever else it has": {[]option{nodeOnly(), ownedByPool(), spec(func(s *mcfgv1.MachineConfigSpec) {
			s.KernelType, s.OSImageURL = mcfgv1.KernelTypeDefault, "quay.io/a:b"
		})}, all},
		"what the list names and the configuration has": {
			[]option{annotated(mcfgv1.AnnotationNodeOnlyContent, `{"files":["/etc/f","/etc/gone"],"units":["u.service"],"later":["x"]}`)},
			NodeOnly{Files: []string{"/etc/f"}, Units: []string{"u.service"}},
		},
		"a path whatever is there": {
			[]option{annotated(mcfgv1.AnnotationNodeOnlyContent, `{"files":["/etc/l"]}`)},
			NodeOnly{Links: []string{"/etc/l"}},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg, err := Parse(machineConfig("50-a", ignition(allKinds), test.options...))
			require.NoError(t, err)
			require.Equal(t, test.want, cfg.NodeOnly)
		})
	}
}

func TestRenderNodeOnly(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		configs []*mcfgv1.MachineConfig
		want    NodeOnly
		text    string
	}{
		"nothing": {[]*mcfgv1.MachineConfig{machineConfig("50-a", ignition(allKinds))}, NodeOnly{}, ""},
		"only what it has a part in": {
			[]*mcfgv1.MachineConfig{machineConfig("50-a", files(file("/etc/b", "x")+","+file("/etc/a", "x")), nodeOnly()), machineConfig("60-b", files(file("/etc/c", "x")))},
			NodeOnly{Files: []string{"/etc/a", "/etc/b"}},
			`{"files":["/etc/a","/etc/b"]}`,
		},
		"also what a later one replaces": {
			[]*mcfgv1.MachineConfig{machineConfig("50-a", files(file("/etc/a", "x")), nodeOnly()), machineConfig("60-b", files(file("/etc/a", "y")))},
			NodeOnly{Files: []string{"/etc/a"}},
			`{"files":["/etc/a"]}`,
		},
		"also what it changes of an earlier one": {
			[]*mcfgv1.MachineConfig{
				machineConfig("50-a", ignition(`"systemd":{"units":[{"name":"u.service","contents":"[Unit]"}]}`)),
				machineConfig("60-b", ignition(`"systemd":{"units":[{"name":"u.service","dropins":[{"name":"10.conf","contents":"[Service]"}]}]}`), nodeOnly()),
			},
			NodeOnly{Units: []string{"u.service"}},
			`{"units":["u.service"]}`,
		},
		"a path that has become something else": {
			[]*mcfgv1.MachineConfig{
				machineConfig("50-a", files(file("/etc/a", "x")), nodeOnly()),
				machineConfig("60-b", ignition(`"storage":{"links":[{"path":"/etc/a","target":"/etc/b"}]}`)),
			},
			NodeOnly{Links: []string{"/etc/a"}},
			`{"links":["/etc/a"]}`,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := render(t, test.configs...)
			require.Equal(t, test.want, r.Config.NodeOnly)
			text, ok := r.MachineConfig.Annotations[mcfgv1.AnnotationNodeOnlyContent]
			require.Equal(t, test.text != "", ok)
			require.Equal(t, test.text, text)
			cfg, err := Parse(r.MachineConfig)
			require.NoError(t, err)
			require.Equal(t, test.want, cfg.NodeOnly)
		})
	}
}

func TestRenderRefusesAListThatIsTooLong(t *testing.T) {
	t.Parallel()
	var list []string
	for i := range 1000 {
		list = append(list, file(fmt.Sprintf("/etc/%s/%d", strings.Repeat("a", 240), i), "x"))
	}
	_, err := Render(Options{Pool: "worker"}, []*mcfgv1.MachineConfig{machineConfig("50-a", files(strings.Join(list, ",")), nodeOnly())})
	require.EqualError(t, err, `metadata.annotations[machineconfiguration.openshift.io/nodeOnlyContent]: the names of what stays out of images take 245 KiB, `+
		`and there is room for 200 KiB: mark fewer or smaller MachineConfigs with machineconfiguration.openshift.io/nodeOnly`)
	var e *Error
	require.ErrorAs(t, err, &e)
	require.Equal(t, mcfgv1.ReasonInvalidMachineConfig, e.Reason)
}
