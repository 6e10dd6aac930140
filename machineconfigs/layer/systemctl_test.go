package layer_test

import (
	"bytes"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/layerwright/layerwright/machineconfigs/layer"
)

var update = flag.Bool("update", false, "record what this machine's systemctl does")

// operations are configurations of units, and what the published node agent would have systemctl
// do.
func operations() map[string]struct {
	units []string
	base  base
	do    []string
} {
	return map[string]struct {
		units []string
		base  base
		do    []string
	}{
		"enable and disable": {
			units: []string{
				unit("a.service", "[Install]\nWantedBy=multi-user.target\nAlias=al.service\nAlso=a.socket\n", `"enabled":true`),
				unit("a.socket", "[Install]\nWantedBy=sockets.target\n", ""),
				unit("chronyd.service", "", `"enabled":false`),
				unit("getty@tty1.service", "", `"enabled":false`),
				unit("getty@tty2.service", "", `"enabled":true`),
			},
			do: []string{"disable chronyd.service getty@tty1.service", "preset a.socket", "enable a.service", "enable getty@tty2.service"},
		},
		"presets": {
			units: []string{unit("wanted-a.service", wanted, ""), unit("b.service", wanted, ""), unit("wanted-t@.service", wanted+"DefaultInstance=d\n", "")},
			base:  base{admin + "old.target.wants/b.service": "-> /usr/lib/systemd/system/b.service", vendor + "b.service": wanted},
			do:    []string{"preset wanted-a.service b.service wanted-t@.service"},
		},
		"new contents": {
			units: []string{unit("sshd.service", "[Install]\nRequiredBy=getty.target\n", `"enabled":true`)},
			do:    []string{"disable sshd.service", "enable sshd.service"},
		},
		"masks": {
			units: []string{unit("sshd.service", "", `"mask":true`), unit("masked.service", "", `"mask":false,"enabled":true`)},
			base:  base{vendor + "masked.service": wanted},
			do:    []string{"mask sshd.service", "unmask masked.service", "enable masked.service"},
		},
	}
}

// TestUnitsLikeSystemctl compares the links of an image with its layer with those that systemctl
// makes in the same image, now and when the golden files were recorded.
func TestUnitsLikeSystemctl(t *testing.T) {
	t.Parallel()
	for name, test := range operations() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := ostree().with(test.base)
			cfg := units(t, strings.Join(test.units, ","))
			golden := filepath.Join("testdata", strings.ReplaceAll(name, " ", "-")+".golden")
			if program, err := exec.LookPath("systemctl"); err == nil {
				root := t.TempDir()
				unpackTree(t, b, root)
				for _, u := range cfg.Ignition.Systemd.Units {
					if u.Contents != nil {
						require.NoError(t, os.WriteFile(filepath.Join(root, admin, u.Name), []byte(*u.Contents), 0o600))
					}
				}
				for _, do := range test.do {
					out, err := exec.CommandContext(t.Context(), program, append([]string{"--root=" + root}, strings.Fields(do)...)...).CombinedOutput()
					require.NoError(t, err, "%s", out)
				}
				really := unitLinks(t, root)
				if *update {
					require.NoError(t, os.WriteFile(golden, []byte(really), 0o600))
				}
				require.Equal(t, recorded(t, golden), really, "this systemctl differs from what was recorded")
			}
			require.Equal(t, recorded(t, golden), layered(t, b, split(t, cfg, b)))
		})
	}
}

func recorded(t *testing.T, golden string) string {
	t.Helper()
	want, err := os.ReadFile(golden)
	require.NoError(t, err)
	return string(want)
}

// layered are the links of an image with the layer of a plan.
func layered(t *testing.T, b base, plan *layer.Plan) string {
	t.Helper()
	root := t.TempDir()
	unpackTree(t, b, root)
	l, err := plan.Build(layer.Inputs{})
	require.NoError(t, err)
	var archive bytes.Buffer
	_, err = l.WriteTo(&archive)
	require.NoError(t, err)
	unpack(t, &archive, root)
	return unitLinks(t, root)
}

// unitLinks lists the links below /etc/systemd in a folder.
func unitLinks(t *testing.T, root string) string {
	t.Helper()
	all := facts(t, root)
	text := &strings.Builder{}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		_, target, isLink := strings.Cut(all[name], " -> ")
		if isLink && strings.HasPrefix(name, "etc/systemd/") {
			fmt.Fprintf(text, "%s -> %s\n", name, target)
		}
	}
	return text.String()
}
