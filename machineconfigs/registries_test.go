package machineconfigs_test

import (
	"fmt"
	"net/url"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/machineconfigs"
)

func TestRegistriesConf(t *testing.T) {
	t.Parallel()
	const conf, dropIns = "/etc/containers/registries.conf", "/etc/containers/registries.conf.d/"
	tests := map[string]struct {
		files [][2]string
		want  string
		err   string
	}{
		"none":                {},
		"other files":         {files: [][2]string{{dropIns + "10.conf.bak", "a = 1"}, {dropIns + "x/10.conf", "a = 1"}, {"/etc/motd", "hello"}}},
		"one, as it is":       {files: [][2]string{{conf, "# mine\na = 1\n"}}, want: "# mine\na = 1\n"},
		"one drop-in":         {files: [][2]string{{dropIns + "10.conf", "# mine\na = 1\n"}}, want: "# mine\na = 1\n"},
		"keys of a later one": {files: [][2]string{{dropIns + "20.conf", "a = 3\nb = [\"late\"]"}, {conf, "a = 1"}, {dropIns + "10.conf", "a = 2"}}, want: "a = 3\nb = [\"late\"]\n"},
		"aliases add up":      {files: [][2]string{{conf, "[aliases]\nx = \"a\"\ny = \"b\""}, {dropIns + "10.conf", "[aliases]\ny = \"c\""}}, want: "[aliases]\n  x = \"a\"\n  y = \"c\"\n"},
		"registries by their prefix": {
			files: [][2]string{
				{conf, "[[registry]]\nlocation = \"a.io/\"\n[[registry]]\nprefix = \"b.io\"\nlocation = \"c.io\"\n"},
				{dropIns + "10.conf", "[[registry]]\nlocation = \"a.io\"\nblocked = true\n[[registry.mirror]]\nlocation = \"d.io\"\n"},
			},
			want: "[[registry]]\n  location = \"c.io\"\n  prefix = \"b.io\"\n\n[[registry]]\n  blocked = true\n  location = \"a.io\"\n\n  [[registry.mirror]]\n    location = \"d.io\"\n",
		},
		"no TOML": {files: [][2]string{{conf, ""}, {dropIns + "10.conf", "[[registry]"}}, err: "file /etc/containers/registries.conf.d/10.conf: "},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			text := ""
			for i, file := range tt.files {
				if i > 0 {
					text += ","
				}
				text += fmt.Sprintf(`{"path":%q,"contents":{"source":"data:,%s"}}`, file[0], url.PathEscape(file[1]))
			}
			config, err := machineconfigs.Parse(&mcfgv1.MachineConfig{Spec: mcfgv1.MachineConfigSpec{
				Config: runtime.RawExtension{Raw: []byte(`{"ignition":{"version":"3.5.0"},"storage":{"files":[` + text + `]}}`)},
			}})
			require.NoError(t, err)
			got, err := config.RegistriesConf()
			if tt.err != "" {
				require.ErrorContains(t, err, tt.err)
				return
			}
			require.NoError(t, err)
			assert.Equal(t, tt.want, string(got))
		})
	}
}
