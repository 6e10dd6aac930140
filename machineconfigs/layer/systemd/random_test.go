package systemd_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
)

// randomTrees is how many random trees are compared.
const randomTrees = 60

// TestRandomTreesLikeSystemctl is TestLikeSystemctl for trees and operations that no one has
// thought of.
func TestRandomTreesLikeSystemctl(t *testing.T) {
	t.Parallel()
	program, version := systemctl(t)
	golden := filepath.Join("testdata", "random.golden")
	var ours, theirs strings.Builder
	for seed := range uint64(randomTrees) {
		s := random(seed)
		fmt.Fprintf(&ours, "--- %d\n%s", seed, s.ours(t))
		if program != "" {
			fmt.Fprintf(&theirs, "--- %d\n%s", seed, s.really(t, program))
		}
	}
	if program != "" {
		if *update {
			require.NoError(t, os.WriteFile(golden, []byte(theirs.String()), 0o600))
		}
		require.Empty(t, cmp.Diff(recorded(t, golden), theirs.String()), "systemctl %d differs from what was recorded", version)
	}
	require.Empty(t, cmp.Diff(recorded(t, golden), ours.String()))
}

// random is a tree of a few units that name each other, with links and presets, and a few
// operations.
func random(seed uint64) scenario {
	r := rand.New(rand.NewPCG(seed, 1)) //nolint:gosec // a test's, and the same every time
	pick := func(from ...string) string { return from[r.IntN(len(from))] }
	services := []string{"a.service", "b.service", "c.service"}
	all := append([]string{"s.socket", "t@.service", "t@i.service", "t@j.service", "x.target", "y@.target"}, services...)
	lines := func() string {
		var text strings.Builder
		for range r.IntN(4) {
			text.WriteString(pick(
				"WantedBy="+pick("x.target", "z.target", "y@.target", "%p.target"), "RequiredBy="+pick("x.target", "x.target "+pick(all...)),
				"Alias="+pick("al.service", "al2.service", "u@.service", "u@i.service"), "Also="+pick(all...), "WantedBy=", "Alias=",
				"DefaultInstance="+pick("i", "k", "%p"),
			) + "\n")
		}
		return "[Unit]\nDescription=x\n[Install]\n" + text.String()
	}
	tree := files{}
	for _, name := range all {
		for range r.IntN(3) {
			tree[pick(vendor, vendor, admin)+name] = lines()
		}
		if r.IntN(5) == 0 {
			tree[pick(vendor, admin)+name+".d/"+pick("10", "20")+".conf"] = lines()
		}
	}
	for range r.IntN(4) {
		to := pick(all...)
		at := pick("x.target.wants/", "z.target.requires/") + to
		tree[admin+at] = "-> " + pick("/usr/lib/systemd/system/", "/etc/systemd/system/") + pick(to, to, strings.Replace(to, "@i", "@", 1))
	}
	if r.IntN(4) == 0 {
		name := pick(services...)
		delete(tree, admin+name)
		tree[admin+name] = "-> /dev/null"
	}
	if r.IntN(4) == 0 {
		to := pick(services...)
		tree[vendor+to] = lines()
		tree[vendor+pick("al.service", "other.service")] = "-> " + to
	}
	for range r.IntN(4) {
		tree[preset+pick("10", "20", "30")+".preset"] = pick("enable ", "disable ") + pick(append(all, "*", "t@.service i q", "?.service")...) + "\n" +
			pick("", "disable *\n")
	}
	s := scenario{tree: tree}
	for range 1 + r.IntN(4) {
		s.operations = append(s.operations, pick("enable ", "enable ", "disable ", "preset ")+pick(append(all, "al.service", "other.service", "t@new.service")...))
	}
	return s
}
