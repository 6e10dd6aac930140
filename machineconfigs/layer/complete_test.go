package layer_test

import (
	"bytes"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/layerwright/layerwright/machineconfigs"
	"github.com/layerwright/layerwright/machineconfigs/layer"
	"github.com/layerwright/layerwright/osimage/osindex"
)

// lateConfig wants two accounts and a unit that the image below does not have.
const lateConfig = `{"storage":{
	"files":[{"path":"/etc/a","mode":384,"user":{"name":"app"},"group":{"name":"core"},"contents":{"source":"data:,a"}}],
	"directories":[{"path":"/etc/d","group":{"name":"app"}}],
	"links":[{"path":"/etc/b","target":"/etc/a","hard":true},{"path":"/etc/l","target":"nowhere","user":{"name":"app"}}]},
	"systemd":{"units":[{"name":"app.service","enabled":true},{"name":"sshd.service","enabled":true}]}}`

// app is content with what lateConfig wants.
func app() base {
	return base{ //nolint:gosec // accounts without passwords, made up
		"usr/lib/group": "app:x:901:\n", "usr/lib/passwd": "app:x:900:901::/:/sbin/nologin\n", vendor + "app.service": wanted,
	}
}

func TestProvisionalLayerBeforeContent(t *testing.T) {
	t.Parallel()
	cfg := config(t, lateConfig)
	_, err := layer.Split(cfg, ostree().index(t))
	require.Len(t, errorsOf(err), 4)

	plan, err := layer.Provisional(cfg, ostree().index(t))
	require.NoError(t, err)
	require.Equal(t, []string{"group app", "unit app.service", "user app"}, plan.Expected)
	all := layerOf(t, plan, nil)
	require.Equal(t, []string{"etc/a", "etc/b = etc/a", "etc/l -> nowhere"}, changes(all), "all but what is expected")
	require.Contains(t, string(all[layer.PresetPath[1:]].Content), "enable app.service\n")

	other := files(t, `{"path":"/etc/a","mode":384,"user":{"name":"app2"},"group":{"name":"core"},"contents":{"source":"data:,a"}}`)
	otherPlan, err := layer.Provisional(other, ostree().index(t))
	require.NoError(t, err)
	require.NotEqual(t, itemHash(t, plan, "file /etc/a"), itemHash(t, otherPlan, "file /etc/a"), "the name counts while no one knows its number")

	built := ostree().with(app())
	all = build(t, cfg, built)
	require.Equal(t, 900, all["etc/a"].UID)
	require.Equal(t, 901, all["etc/d"].GID)

	plan, err = layer.Provisional(cfg, built.index(t))
	require.NoError(t, err)
	require.Empty(t, plan.Expected, "the base has everything already")
	rest, err := plan.Complete(built.index(t))
	require.NoError(t, err)
	require.Nil(t, rest)
	_, err = layer.Provisional(files(t, `{"path":"/etc/private"}`), ostree().index(t))
	require.Error(t, err, "what no content mends is wrong from the beginning")
}

func TestUnitsOfExtensionsAreExpected(t *testing.T) {
	t.Parallel()
	cfg := units(t, unit("usbguard.service", "", `"enabled":true`))
	cfg.Extensions = []string{"usbguard"}
	plan, err := layer.Provisional(cfg, ostree().index(t))
	require.NoError(t, err)
	require.Equal(t, []string{"unit usbguard.service"}, plan.Expected)
	_, err = layer.Split(cfg, ostree().index(t))
	require.ErrorContains(t, err, "there is no such unit", "the finished image has the packages of extensions")
}

func TestCompleteAfterContent(t *testing.T) {
	t.Parallel()
	const enabled = admin + "multi-user.target.wants/app.service"
	all := []string{"etc/a", "etc/b = etc/a", "etc/l -> nowhere", enabled + " -> /usr/lib/systemd/system/app.service"}
	tests := map[string]struct {
		content base
		want    []string
		wantErr []string
	}{
		"everything is there": {content: app(), want: all},
		"the content has changed the file": {
			content: app().with(base{"etc/a": "changed"}), want: all,
		},
		"the content has removed the file": {
			content: app().with(base{"etc/.wh.a": "", "etc/.wh.b": ""}), want: all[2:],
		},
		"the content has replaced the file": {
			content: app().with(base{"etc/a": "-> elsewhere", "etc/.wh.b": ""}), want: all[2:],
		},
		"the content has moved the file to the node": {
			content: app().with(base{"etc/.wh.a": "", "etc/.wh.b": "", "etc/.wh.l": "", "etc/.wh.d": "", "var/a": ""}), want: all[3:],
		},
		"the content has enabled the unit": {
			content: app().with(base{enabled: "-> /usr/lib/systemd/system/app.service"}), want: all[:3],
		},
		"nothing is there": {
			content: base{"usr/bin/x": ""},
			wantErr: []string{
				`unit app.service: enabling "app.service": there is no such unit`, `file /etc/a: user "app" is not in the image below`,
				`directory /etc/d: group "app" is not`, `link /etc/l: user "app" is not`,
			},
		},
		"the unit is missing": {
			content: app().with(base{vendor + "app.service": "-> /dev/null"}),
			wantErr: []string{`MachineConfig "rendered-worker-1": spec.config.systemd.units[0]: unit app.service: enabling`},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			plan, finished := built(t, config(t, lateConfig), tt.content)
			rest, err := plan.Complete(finished)
			for _, text := range tt.wantErr {
				require.ErrorContains(t, err, text)
			}
			if len(tt.wantErr) > 0 {
				return
			}
			require.NoError(t, err)
			require.Equal(t, tt.want, changes(layerOf(t, rest, tt.content)))
		})
	}
}

func TestCompleteOwners(t *testing.T) {
	t.Parallel()
	plan, finished := built(t, config(t, lateConfig), app().with(base{"etc/a": "changed"}))
	rest, err := plan.Complete(finished)
	require.NoError(t, err)
	all := layerOf(t, rest, base{"etc/a": "changed"})
	require.Equal(t, entry{Path: "etc/a", Type: layer.RegularFile, Mode: 0o644, UID: 900, Content: []byte("changed")}, all["etc/a"],
		"the group was known before, and the content has changed it")
	require.Equal(t, 901, all["etc/d"].GID)
	require.Equal(t, 900, all["etc/l"].UID)
	require.NotContains(t, all, layer.PresetPath[1:], "it is right already")

	whole := build(t, config(t, lateConfig), ostree().with(app()))
	wanted, got := string(whole[layer.RecordPath[1:]].Content), string(all[layer.RecordPath[1:]].Content)
	require.Contains(t, got, `"path":"/etc/a","user":{"id":900}`)
	require.Equal(t, withoutName(wanted), withoutName(got), "it says what the MachineConfigs say")

	plan, finished = built(t, files(t, `{"path":"/usr/share/a","user":{"name":"app"},"contents":{"source":"data:,a"}}`), app())
	rest, err = plan.Complete(finished)
	require.NoError(t, err)
	require.Equal(t, []string{"/usr/share/a"}, rest.Wanted)
}

func TestCompleteOfUnitsAlone(t *testing.T) {
	t.Parallel()
	plan, finished := built(t, units(t, unit("app.service", "", `"enabled":true`)), app())
	rest, err := plan.Complete(finished)
	require.NoError(t, err)
	require.Empty(t, rest.Remote)
	require.NotContains(t, layerOf(t, rest, nil), layer.RecordPath[1:], "it is right already")
	again, err := plan.Complete(finished)
	require.NoError(t, err)
	require.Equal(t, layerOf(t, rest, nil), layerOf(t, again, nil))
}

// built is a provisional plan, and the image with its layer and content above it.
func built(t *testing.T, cfg *machineconfigs.Config, content base) (*layer.Plan, *osindex.Index) {
	t.Helper()
	finished := ostree().index(t)
	plan, err := layer.Provisional(cfg, ostree().index(t))
	require.NoError(t, err)
	made, err := plan.Build(layer.Inputs{})
	require.NoError(t, err)
	var archive bytes.Buffer
	_, err = made.WriteTo(&archive)
	require.NoError(t, err)
	require.NoError(t, finished.Apply(&archive))
	require.NoError(t, finished.Apply(bytes.NewReader(content.tar(t))))
	return plan, finished
}

// layerOf is what a plan makes over an image with these files.
func layerOf(t *testing.T, plan *layer.Plan, below base) map[string]entry {
	t.Helper()
	inputs := layer.Inputs{Base: map[string][]byte{}}
	for _, wanted := range plan.Wanted {
		content, ok := below[wanted[1:]]
		if !ok {
			content = "a"
		}
		inputs.Base[wanted] = []byte(content)
	}
	l, err := plan.Build(inputs)
	require.NoError(t, err)
	return entries(l)
}

// withoutName is a record without the digest in its name.
func withoutName(record string) string {
	at := slices.Index([]byte(record), '}')
	return record[at:]
}

func itemHash(t *testing.T, plan *layer.Plan, name string) string {
	t.Helper()
	for _, item := range plan.Items {
		if item.Name == name {
			return item.Hash
		}
	}
	require.Fail(t, "no item", name)
	return ""
}
