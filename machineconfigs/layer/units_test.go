package layer_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/layerwright/layerwright/machineconfigs/layer"
)

const wanted = "[Install]\nWantedBy=multi-user.target\n"

func TestUnits(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		units   string
		base    base
		want    []string
		presets string
	}{
		"contents without an opinion, and no preset": {
			units: unit("a.service", wanted, ""),
			want:  []string{admin + "a.service"},
		},
		"contents without an opinion, and a preset": {
			units: unit("wanted-a.service", wanted, ""),
			want:  []string{admin + "multi-user.target.wants/wanted-a.service -> /etc/systemd/system/wanted-a.service", admin + "wanted-a.service"},
		},
		"contents without an opinion, and no presets at all": {
			units: unit("a.service", wanted, ""),
			base: base{
				"usr/lib/systemd/system-preset/90-default.preset": "", "usr/lib/systemd/system-preset/99-default.preset": "",
			},
			want: []string{admin + "a.service", admin + "multi-user.target.wants/a.service -> /etc/systemd/system/a.service"},
		},
		"enabled": {
			units:   unit("a.service", wanted, `"enabled":true`),
			want:    []string{admin + "a.service", admin + "multi-user.target.wants/a.service -> /etc/systemd/system/a.service"},
			presets: "enable a.service\n",
		},
		"a unit of the image enabled": {
			units:   unit("chronyd.service", "", `"enabled":true`) + "," + unit("static.service", "", `"enabled":true`),
			presets: "enable chronyd.service\nenable static.service\n",
		},
		"a unit of the image enabled by a drop-in": {
			units: `{"name":"static.service","enabled":true,"dropins":[{"name":"10-x.conf","contents":"[Install]\nRequiredBy=getty.target\n"}]}`,
			want: []string{
				admin + "getty.target.requires/static.service -> /usr/lib/systemd/system/static.service", admin + "static.service.d/10-x.conf",
			},
			presets: "enable static.service\n",
		},
		"a unit of the image disabled": {
			units:   unit("chronyd.service", "", `"enabled":false`),
			want:    []string{admin + ".wh.ntp.service", admin + "multi-user.target.wants/.wh.chronyd.service"},
			presets: "disable chronyd.service\n",
		},
		"a unit of the image with new contents": {
			units: unit("sshd.service", "[Install]\nWantedBy=getty.target\n", `"enabled":true`),
			want: []string{
				admin + "getty.target.wants/sshd.service -> /etc/systemd/system/sshd.service",
				admin + "multi-user.target.wants/.wh.sshd.service", admin + "sshd.service",
			},
			presets: "enable sshd.service\n",
		},
		"new contents that are wanted by the same": {
			units: unit("sshd.service", wanted, `"enabled":true`),
			want: []string{
				admin + "multi-user.target.wants/sshd.service -> /etc/systemd/system/sshd.service", admin + "sshd.service",
			},
			presets: "enable sshd.service\n",
		},
		"new contents in the place of a link": {
			units:   unit("ntp.service", wanted, `"enabled":false`),
			want:    []string{admin + "ntp.service"},
			presets: "disable ntp.service\n",
		},
		"masked": {
			units: unit("sshd.service", "", `"mask":true`),
			want:  []string{admin + "sshd.service -> /dev/null"},
		},
		"masked wins over contents and enabled": {
			units:   unit("a.service", wanted, `"mask":true,"enabled":true`),
			want:    []string{admin + "a.service -> /dev/null"},
			presets: "enable a.service\n",
		},
		"unmasked": {
			units: unit("masked.service", "", `"mask":false`) + "," + unit("sshd.service", "", `"mask":false`),
			want:  []string{admin + ".wh.masked.service"},
		},
		"unmasked and enabled": {
			units:   unit("masked.service", "", `"mask":false,"enabled":true`),
			base:    base{vendor + "masked.service": wanted},
			want:    []string{admin + ".wh.masked.service", admin + "multi-user.target.wants/masked.service -> /usr/lib/systemd/system/masked.service"},
			presets: "enable masked.service\n",
		},
		"drop-ins, of which those without contents go away": {
			units: `{"name":"sshd.service","dropins":[{"name":"10-base.conf","contents":""},{"name":"20-x.conf"},{"name":"30-x.conf","contents":"[Unit]\n"}]}`,
			want:  []string{admin + "sshd.service.d/.wh.10-base.conf", admin + "sshd.service.d/30-x.conf"},
		},
		"instances": {
			units: unit("b@.service", wanted, "") + "," + unit("b@one.service", "", `"enabled":true`) + "," + unit("b@two.service", "", `"enabled":true`) +
				"," + unit("b@three.service", "", `"enabled":false`) + "," + unit("a.service", wanted, `"enabled":true`),
			want: []string{
				admin + "a.service", admin + "b@.service",
				admin + "multi-user.target.wants/a.service -> /etc/systemd/system/a.service",
				admin + "multi-user.target.wants/b@one.service -> /etc/systemd/system/b@.service",
				admin + "multi-user.target.wants/b@two.service -> /etc/systemd/system/b@.service",
			},
			presets: "enable b@.service one two\nenable a.service\ndisable b@three.service\n",
		},
		"enabled by name stays so when a disabled one has it in Also=": {
			units: unit("a.service", "[Install]\nAlso=b.socket\n", `"enabled":false`) + "," +
				unit("b.socket", "[Install]\nWantedBy=sockets.target\n", `"enabled":true`),
			want: []string{
				admin + "a.service", admin + "b.socket", admin + "sockets.target.wants/b.socket -> /etc/systemd/system/b.socket",
			},
			presets: "enable b.socket\ndisable a.service\n",
		},
		"disabling leaves the vendor's own links alone": {
			units:   unit("sshd.service", "", `"enabled":false`),
			base:    base{vendor + "multi-user.target.wants/sshd.service": "-> ../sshd.service"},
			want:    []string{admin + "multi-user.target.wants/.wh.sshd.service"},
			presets: "disable sshd.service\n",
		},
		"disabling what does not exist": {units: unit("gone.service", "", `"enabled":false`), presets: "disable gone.service\n"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			all := build(t, units(t, test.units), ostree().with(test.base))
			require.Equal(t, test.want, changes(all))
			_, lines, _ := strings.Cut(string(all[layer.PresetPath[1:]].Content), "\n")
			require.Equal(t, test.presets, lines)
		})
	}
}

func TestUnitsOfFilesCount(t *testing.T) {
	t.Parallel()
	cfg := config(t, `{"storage":{"files":[
			{"path":"/etc/systemd/system/a.service","contents":{"source":"data:,%5BInstall%5D%0AWantedBy=basic.target%0A"}},
			{"path":"/etc/systemd/system/sshd.service.d/20-x.conf","contents":{"source":"data:,%5BInstall%5D%0AWantedBy=basic.target%0A"}},
			{"path":"/etc/systemd/system-preset/00-x.preset","contents":{"source":"data:,enable%20c.service"}}],
		"links":[{"path":"/etc/systemd/system/basic.target.wants/d.service","target":"/etc/systemd/system/d.service"}]},
		"systemd":{"units":[{"name":"a.service","enabled":true},{"name":"sshd.service","enabled":true},`+
		unit("c.service", wanted, "")+","+unit("d.service", wanted, "")+`]}}`)
	var links []string
	for _, line := range changes(build(t, cfg, ostree())) {
		if strings.Contains(line, " -> ") {
			links = append(links, strings.TrimPrefix(line, admin))
		}
	}
	require.Equal(t, []string{
		"basic.target.wants/a.service -> /etc/systemd/system/a.service",
		"basic.target.wants/d.service -> /etc/systemd/system/d.service",
		"basic.target.wants/sshd.service -> /usr/lib/systemd/system/sshd.service",
		"multi-user.target.wants/c.service -> /etc/systemd/system/c.service",
	}, links)
}

func TestNotices(t *testing.T) {
	t.Parallel()
	tests := map[string]struct{ units, want string }{
		"no [Install]":         {unit("static.service", "", `"enabled":true`), `unit "static.service" has nothing in its [Install] section`},
		"no such target":       {unit("a.service", "[Install]\nWantedBy=no.target\n", `"enabled":true`), `"no.target", a unit that does not exist`},
		"missing in Also=":     {unit("a.service", "[Install]\nAlso=no.service\n", `"enabled":true`), `unit "no.service" cannot be enabled together`},
		"disabling nothing":    {unit("no.service", "", `"enabled":false`), `disabling "no.service": there is no such unit`},
		"masked contents":      {unit("a.service", wanted, `"mask":true`), "unit a.service: it is masked, so its contents are left out"},
		"masked and enabled":   {unit("a.service", "", `"mask":true,"enabled":true`), "unit a.service: it is masked, so it is not enabled"},
		"drop-in without text": {`{"name":"a.service","dropins":[{"name":"x.conf"}]}`, "drop-in x.conf of unit a.service: it has no contents"},
		"presets enable what cannot be": {
			unit("wanted.service", "[Install]\nWantedBy=%H.target\n", ""), "presets enable a unit that cannot be enabled",
		},
		"an instance that comes back": {unit("getty@tty1.service", "", `"enabled":false`), `presets enable "getty@.service": mask it instead`},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			plan := split(t, units(t, test.units), ostree())
			require.Contains(t, strings.Join(plan.Notices, "\n"), test.want)
		})
	}
	require.Empty(t, split(t, units(t, unit("a.service", wanted, `"enabled":true`)), ostree()).Notices)
}

func TestPresetsThatAreNotKnownYet(t *testing.T) {
	t.Parallel()
	zero := strings.Repeat("0", 64)
	preset := `{"path":"/etc/systemd/system-preset/00-x.preset","contents":{"source":"https://h/x","verification":{"hash":"sha256-` + zero + `"}}}`
	cfg := config(t, `{"storage":{"files":[`+preset+`]},"systemd":{"units":[`+unit("a.service", wanted, "")+`]}}`)
	_, err := layer.Split(cfg, ostree().index(t))
	require.ErrorContains(t, err, "set enabled to true or false")
	cfg = config(t, `{"storage":{"files":[`+preset+`]},"systemd":{"units":[`+unit("a.service", wanted, `"enabled":true`)+`]}}`)
	_, err = layer.Split(cfg, ostree().index(t))
	require.NoError(t, err, "nothing depends on it")
}
