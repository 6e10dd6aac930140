package systemd_test

import (
	"maps"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/layerwright/layerwright/machineconfigs/layer/systemd"
)

// FuzzUnit enables, presets and disables any unit with any drop-in and any preset file. It holds
// that there is no panic, that the answer is always the same, and that nothing but links below
// /etc/systemd/system is touched.
func FuzzUnit(f *testing.F) {
	for _, s := range scenarios() {
		for file, content := range s.tree {
			for _, operation := range s.operations {
				_, unit, _ := strings.Cut(operation, " ")
				f.Add(unit, content, "[Install]\nWantedBy=x.target\n", "enable *\ndisable "+file)
			}
		}
	}
	f.Fuzz(func(t *testing.T, unit, content, dropin, rules string) {
		unit, _, _ = strings.Cut(unit, " ")
		tree := files{
			vendor + "other.service":                 install("WantedBy=x.target\nAlso=" + unit + "\n"),
			"/etc/systemd/system-preset/10-x.preset": rules,
			admin + "x.target.wants/other.service":   "-> /usr/lib/systemd/system/other.service",
			admin + "x.target.wants/link.service":    "-> ../link2.service",
			admin + "link2.service":                  "-> link.service",
			admin + "link.service":                   "-> link2.service",
		}
		if systemd.CheckName(unit) == nil {
			tree[vendor+unit], tree[admin+unit+".d/10-x.conf"] = content, dropin
			if template := systemd.Template(unit); template != "" {
				tree[vendor+template] = content
			}
		}
		before, again := maps.Clone(tree), maps.Clone(tree)
		for _, verb := range []string{"enable ", "disable ", "preset "} {
			report := run(t, tree, verb+unit)
			require.Equal(t, report, run(t, again, verb+unit))
			require.Equal(t, tree, again)
			for name, content := range tree {
				if before[name] != content {
					require.True(t, strings.HasPrefix(name, admin) && strings.HasPrefix(content, "-> "), "%s: %q", name, content)
					base := name[strings.LastIndex(name, "/")+1:]
					require.NoError(t, systemd.CheckName(base))
				}
			}
			for name, content := range before {
				if !strings.HasPrefix(content, "-> ") {
					require.Equal(t, content, tree[name])
				}
			}
		}
	})
}
