package deployments

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// status is what ostree 2022.7 prints.
const status = `  default aa11bb22cc33dd44ee55ff6600112233445566778899aabbccddeeff00112233.0 (staged)
    Version: 9.6
    origin: <unknown origin type>
* default bb11bb22cc33dd44ee55ff6600112233445566778899aabbccddeeff00112233.1
    origin: <unknown origin type>
  default bb11bb22cc33dd44ee55ff6600112233445566778899aabbccddeeff00112233.0 (rollback)
    origin: <unknown origin type>
`

func TestParseStatus(t *testing.T) {
	t.Parallel()
	list, err := parseStatus(status)
	require.NoError(t, err)
	require.Equal(t, []Deployment{
		{Checksum: "aa11bb22cc33dd44ee55ff6600112233445566778899aabbccddeeff00112233", Staged: true},
		{Checksum: "bb11bb22cc33dd44ee55ff6600112233445566778899aabbccddeeff00112233", Serial: 1, Booted: true},
		{Checksum: "bb11bb22cc33dd44ee55ff6600112233445566778899aabbccddeeff00112233"},
	}, list)
	_, err = parseStatus("No deployments.\n")
	require.ErrorContains(t, err, "the host has no deployments")
}

// disk is one with two boot loader entries.
func disk(t *testing.T) *Sysroot {
	t.Helper()
	s := &Sysroot{Path: t.TempDir()}
	dir := s.path("boot", "loader", "entries")
	require.NoError(t, os.MkdirAll(dir, 0o700))
	for name, text := range map[string]string{
		"ostree-1-default.conf": "title old\nversion 1\noptions rw ostree=/ostree/boot.0/default/1/0 lw.old\nlinux /ostree/1/vmlinuz\n",
		"ostree-2-default.conf": "title new\nversion 2\noptions rw ostree=/ostree/boot.0/default/2/0 lw.new\nlinux /ostree/2/vmlinuz\n",
	} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	return s
}

func TestNextBoot(t *testing.T) {
	t.Parallel()
	s := disk(t)
	line, err := s.NextBoot()
	require.NoError(t, err)
	require.Equal(t, "rw ostree=/ostree/boot.0/default/2/0 lw.new", line)
	args, err := s.NextArgs()
	require.NoError(t, err)
	require.Equal(t, []string{"rw", "lw.new"}, args, "without ostree's own")

	require.NoError(t, s.SwapFirst())
	line, err = s.NextBoot()
	require.NoError(t, err)
	require.Contains(t, line, "lw.old")

	require.NoError(t, os.MkdirAll(filepath.Dir(s.path(stagedFile)), 0o700))
	require.NoError(t, os.WriteFile(s.path(stagedFile), nil, 0o600))
	require.NoError(t, os.WriteFile(s.path(stagedArgs), []byte("rw lw.staged\n"), 0o600))
	args, err = s.NextArgs()
	require.NoError(t, err)
	require.Equal(t, []string{"rw", "lw.staged"}, args, "what is staged boots next")
}

func TestRollbackToTheSameKernelKeepsOrder(t *testing.T) {
	t.Parallel()
	s := &Sysroot{Path: t.TempDir()}
	entries, links := s.path("boot", "loader", "entries"), s.path("ostree", "boot.0", "default", "k")
	for _, dir := range []string{entries, links} {
		require.NoError(t, os.MkdirAll(dir, 0o700))
	}
	for name, text := range map[string]string{
		"ostree-1-default.conf": "title old\nversion 1\noptions rw ostree=/ostree/boot.0/default/k/1 lw.old\n",
		"ostree-2-default.conf": "title new\nversion 2\noptions rw ostree=/ostree/boot.0/default/k/0 lw.new\n",
	} {
		require.NoError(t, os.WriteFile(filepath.Join(entries, name), []byte(text), 0o600))
	}
	require.NoError(t, os.Symlink("new", filepath.Join(links, "0")))
	require.NoError(t, os.Symlink("old", filepath.Join(links, "1")))

	require.NoError(t, s.SwapFirst())
	line, err := s.NextBoot()
	require.NoError(t, err)
	require.Equal(t, "rw ostree=/ostree/boot.0/default/k/0 lw.old", line)
	for link, want := range map[string]string{"0": "old", "1": "new"} {
		target, err := os.Readlink(filepath.Join(links, link))
		require.NoError(t, err)
		require.Equal(t, want, target)
	}
}

func TestADiskThatCannotBoot(t *testing.T) {
	t.Parallel()
	s := &Sysroot{Path: t.TempDir()}
	_, err := s.NextBoot()
	require.ErrorContains(t, err, "the disk has no boot loader entry")
	require.Error(t, s.SwapFirst())

	damaged := disk(t)
	require.NoError(t, os.WriteFile(damaged.path("boot", "loader", "entries", "x.conf"), []byte("title x\n"), 0o600))
	_, err = damaged.NextBoot()
	require.ErrorContains(t, err, "x.conf")
}

func TestArrange(t *testing.T) {
	t.Parallel()
	tree := t.TempDir()
	for _, path := range []string{"var/lib/x", "usr/lib/modules/6.1/vmlinuz", "boot/x"} {
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(tree, path)), 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(tree, path), nil, 0o600))
	}
	require.NoError(t, arrange(tree))
	for _, dir := range []string{"var", "run", "tmp", "dev", "proc", "sys", "boot"} {
		require.DirExists(t, filepath.Join(tree, dir))
	}
	require.FileExists(t, filepath.Join(tree, "boot/x"), "what the image has stays")
	require.ErrorIs(t, arrange(t.TempDir()), ErrNoKernel)
}
