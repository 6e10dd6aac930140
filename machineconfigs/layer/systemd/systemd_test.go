package systemd_test

import (
	"maps"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/layerwright/layerwright/machineconfigs/layer/systemd"
)

func TestCheckName(t *testing.T) {
	t.Parallel()
	for _, name := range []string{
		"a.service", "a.b.socket", "a@.service", "a@b.service", "a@b@c.service", `a\x2db.mount`, "A:1_-.timer", "x.target", "x.path",
		"x.slice", "x.scope", "x.swap", "x.automount", "x.device", strings.Repeat("a", 247) + ".service",
	} {
		require.NoError(t, systemd.CheckName(name), name)
	}
	for name, want := range map[string]string{
		"":                                    "needs a name",
		"a":                                   "must end in a type",
		".service":                            "must end in a type",
		"a.":                                  "no type of units",
		"a.snapshot":                          "no type of units",
		"a.Service":                           "no type of units",
		"@.service":                           "nothing before the @",
		"@a.service":                          "nothing before the @",
		"a/b.service":                         `not "/"`,
		"a b.service":                         `not " "`,
		"ä.service":                           "only letters, digits",
		"a\x00.service":                       "only letters, digits",
		strings.Repeat("a", 248) + ".service": "at most 255 bytes, this one has 256",
	} {
		require.ErrorContains(t, systemd.CheckName(name), want, name)
	}
	require.Equal(t, "a@.service", systemd.Template("a@b.service"))
	require.Equal(t, "b", systemd.Instance("a@b.service"))
	for _, name := range []string{"a@.service", "a.service", "a"} {
		require.Empty(t, systemd.Template(name))
		require.Empty(t, systemd.Instance(name))
	}
}

// What depends on the machine cannot be compared with what systemctl makes of it here.
func TestSpecifiersOfTheMachineAreRefused(t *testing.T) {
	t.Parallel()
	for _, letter := range "aAbBHlmMoTvVwW" {
		tree := files{vendor + "a.service": install("WantedBy=x" + "%" + string(letter) + ".target\nRequiredBy=y.target\n")}
		report := systemd.Enable(tree, "a.service")
		require.Len(t, report.Failures, 1)
		require.ErrorContains(t, report.Failures[0], "depends on the machine")
		require.Equal(t, admin+"y.target.requires/a.service -> /usr/lib/systemd/system/a.service\n", tree.links())
	}
}

// systemctl needs the device for this, so it is not among the scenarios.
func TestDropInsAndPresetsCanBeSwitchedOff(t *testing.T) {
	t.Parallel()
	tree := files{
		vendor + "a.service":                     install("WantedBy=x.target\n"),
		vendor + "a.service.d/10-x.conf":         "[Install]\nWantedBy=y.target\n",
		admin + "a.service.d/10-x.conf":          "-> /dev/null",
		vendor + "x.target":                      "[Unit]\n",
		preset + "10-x.preset":                   "disable *\n",
		"/etc/systemd/system-preset/10-x.preset": "-> ../../../dev/null",
	}
	presets, err := systemd.ReadPresets(tree)
	require.NoError(t, err)
	report := systemd.Preset(tree, presets, "a.service")
	require.Empty(t, report)
	require.Contains(t, tree.links(), admin+"x.target.wants/a.service -> /usr/lib/systemd/system/a.service\n")
	require.NotContains(t, tree.links(), "y.target")
}

func TestIgnoreRules(t *testing.T) {
	t.Parallel()
	tree := files{vendor + "a.service": install("WantedBy=x.target\n"), preset + "10-x.preset": "ignore a.service\n"}
	before := maps.Clone(tree)
	presets, err := systemd.ReadPresets(tree)
	require.NoError(t, err)
	require.Empty(t, systemd.Preset(tree, presets, "a.service"))
	require.Equal(t, before, tree)
}

func TestFailures(t *testing.T) {
	t.Parallel()
	tree := func() files {
		return files{
			vendor + "masked.service":        "-> /dev/null",
			vendor + "taken.service":         install("Alias=other.service\n"),
			admin + "other.service":          install(""),
			admin + "name.service":           "-> /usr/lib/systemd/system/taken.service",
			vendor + "loop1.service":         "-> loop2.service",
			vendor + "loop2.service":         "-> loop1.service",
			vendor + "gone.service":          install("WantedBy=x.target\n"),
			vendor + "gone.service.d/x.conf": "-> nowhere",
		}
	}
	for name, want := range map[string]error{
		"missing.service": systemd.ErrNotFound, "masked.service": systemd.ErrMasked, "taken.service": systemd.ErrExists, "name.service": systemd.ErrAlias,
	} {
		report := systemd.Enable(tree(), name)
		require.Len(t, report.Failures, 1)
		require.ErrorIs(t, report.Failures[0], want)
		require.ErrorContains(t, report.Failures[0], name)
	}
	for name, want := range map[string]string{
		"loop1.service": "circle", "gone.service": `reading "/usr/lib/systemd/system/gone.service.d/x.conf"`, "no name": "is no unit name",
	} {
		report := systemd.Enable(tree(), name)
		require.Len(t, report.Failures, 1)
		require.ErrorContains(t, report.Failures[0], want)
	}
	require.Len(t, systemd.Disable(tree(), "no name").Failures, 1)
	presets, err := systemd.ReadPresets(files{preset + "10-x.preset": "-> nowhere"})
	require.ErrorContains(t, err, `reading "/usr/lib/systemd/system-preset/10-x.preset"`)
	require.Empty(t, presets)
}

func TestUnlinkLeavesOtherUnitsAlone(t *testing.T) {
	t.Parallel()
	tree := disabling()["everything that leads to it"].tree
	tree = maps.Clone(tree)
	systemd.Unlink(tree, "a.service")
	require.Equal(t, admin+"README -> /usr/lib/systemd/system/a.service\n"+
		admin+"sockets.target.wants/b.socket -> /usr/lib/systemd/system/b.socket\n"+
		admin+"x.target.wants/other.service -> /usr/lib/systemd/system/other.service\n", tree.links())
}

// stubborn is a tree that lets no link be removed.
type stubborn struct{ files }

func (stubborn) Remove(string) {}

func TestDisableEndsWhereNothingCanBeRemoved(t *testing.T) {
	t.Parallel()
	tree := stubborn{maps.Clone(disabling()["everything that leads to it"].tree)}
	before := maps.Clone(tree.files)
	systemd.Disable(tree, "a.service")
	require.Equal(t, before, tree.files)
}

func TestReenables(t *testing.T) {
	t.Parallel()
	tree := files{
		vendor + "d@.service":  install("WantedBy=x.target\nDefaultInstance=one\n"),
		vendor + "n@.service":  install("WantedBy=x.target\n"),
		preset + "10-x.preset": "enable n@.service two\n",
	}
	presets, err := systemd.ReadPresets(tree)
	require.NoError(t, err)
	for name, want := range map[string]bool{
		"d@one.service": true, "d@two.service": false, "n@one.service": false, "n@two.service": true, "missing@x.service": false, "d.service": false, "x": false,
	} {
		require.Equal(t, want, presets.Reenables(tree, name), name)
	}
	tree[preset+"05-x.preset"] = "disable *\n"
	presets, err = systemd.ReadPresets(tree)
	require.NoError(t, err)
	require.False(t, presets.Reenables(tree, "d@one.service"))
}
