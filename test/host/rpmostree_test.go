//go:build containers_image_openpgp

package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/layerwright/layerwright/machineconfigs/cmdline"
	"github.com/layerwright/layerwright/test/host/power"
)

// TestMergeOptions has the cases of bootc's own test of this, and what it does of equal words.
func TestMergeOptions(t *testing.T) {
	t.Parallel()
	for want, of := range map[string][3]string{
		"root=a rw isolcpus=1-3 nohz_full=1-3":   {"root=a rw", "", "isolcpus=1-3 nohz_full=1-3"},
		"root=a rw isolcpus=0-7":                 {"root=a rw isolcpus=1-3 nohz_full=1-3", "isolcpus=1-3 nohz_full=1-3", "isolcpus=0-7"},
		"root=a rw":                              {"root=a rw isolcpus=1-3", "isolcpus=1-3", ""},
		"root=a rw rd.driver.pre=vfio nohz=full": {"root=a rw isolcpus=1-3 rd.driver.pre=vfio", "isolcpus=1-3", "nohz=full"},
		"rw quiet x":                             {"rw quiet", "", "quiet x x"},
		"rw":                                     {"rw quiet x quiet", "quiet x", ""},
		"rw a-b=1 c":                             {"rw a-b=1", "", `a_b="1" c`},
	} {
		require.Equal(t, want, strings.Join(mergeOptions(cmdline.Split(of[0]), cmdline.Split(of[1]), cmdline.Split(of[2])), " "))
	}
}

func TestChangeArgs(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		flags, want []string
		err         string
	}{
		"adds":                              {flags: []string{"--append=c", "--append=a"}, want: []string{"a", "b=1", "a", "c", "a"}},
		"adds what is missing only":         {flags: []string{"--append-if-missing=a", "--append-if-missing=c=2"}, want: []string{"a", "b=1", "a", "c=2"}},
		"removes the first of equal ones":   {flags: []string{"--delete=a"}, want: []string{"b=1", "a"}},
		"removes by a name alone":           {flags: []string{"--delete=b"}, want: []string{"a", "a"}},
		"removes nothing that is not there": {flags: []string{"--delete-if-present=b"}, want: []string{"a", "b=1", "a"}},
		"removes before it adds":            {flags: []string{"--append=a", "--delete=a", "--delete=a"}, want: []string{"b=1", "a"}},
		"adds before it removes what may be missing": {
			flags: []string{"--delete-if-present=b=1", "--append-if-missing=b=1"}, want: []string{"a", "a"},
		},
		"keeps quoted words whole":   {flags: []string{`--append=x="c d"`}, want: []string{"a", "b=1", "a", `x="c d"`}},
		"takes words apart":          {flags: []string{"--append=x y"}, want: []string{"a", "b=1", "a", "x", "y"}},
		"says what it can't remove":  {flags: []string{"--delete=x"}, err: `No karg 'x' found`},
		"says what it does not know": {flags: []string{"--editor"}, err: "the stand-in does not know this command line"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := changeArgs([]string{"a", "b=1", "a"}, tt.flags)
			if tt.err != "" {
				require.ErrorContains(t, err, tt.err)
				return
			}
			require.NoError(t, err)
			require.Equal(t, tt.want, got)
		})
	}
}

func TestCommandLines(t *testing.T) {
	t.Parallel()
	run := func(name string, args ...string) (string, error) {
		var out bytes.Buffer
		h := &host{out: &out, line: power.Line{Dir: t.TempDir()}}
		err := h.run(t.Context(), name, args)
		return out.String(), err
	}
	said, err := run("bootc", "--version")
	require.NoError(t, err)
	require.Equal(t, "bootc 1.16.9\n", said)
	said, err = run("rpm-ostree", "--version")
	require.NoError(t, err)
	require.Contains(t, said, "Version: '2026.2'")
	said, err = run("ostree", "--version")
	require.NoError(t, err)
	require.Contains(t, said, "Version: '2026.4'")
	for _, line := range [][]string{{"bootc", "loader-entries", "set-options-for-source"}, {"rpm-ostree", "kargs"}, {"ostree", "admin", "lock-finalization"}} {
		_, err = run(line[0], append(line[1:], "--help")...)
		require.NoError(t, err)
	}
	_, err = run("bootc", "loader-entries", "set-options-for-source", "--source=a.b")
	require.EqualError(t, err, "Setting options for source 'a.b' (staged): Source name must contain only alphanumeric characters, hyphens, or underscores")
	_, err = run("systemctl", "start", "ostree-finalize-staged.path")
	require.NoError(t, err, "ostree starts it, and the shutdown does what it does")
	for _, line := range [][]string{
		{"bootc", "install"},
		{"bootc", "status"},
		{"bootc", "switch"},
		{"bootc", "loader-entries", "list"},
		{"bootc", "edit", "--help"},
		{"rpm-ostree", "rebase", "fedora:39"},
		{"rpm-ostree", "cleanup", "--base"},
		{"rpm-ostree", "status"},
		{"rpm-ostree"},
		{"systemd-run", "--collect", "rm", "-rf", "/"},
	} {
		_, err := run(line[0], line[1:]...)
		require.ErrorIs(t, err, errUsage, "%v", line)
	}
	_, err = run("systemctl", "enable", "x.service")
	require.ErrorIs(t, err, errNoInit)
	_, err = run("dnf")
	require.ErrorContains(t, err, `"dnf" is none of the programs`)
}
