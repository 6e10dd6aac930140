//go:build e2e

package e2e

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/layerwright/layerwright/test/cluster/toolchain"
	"github.com/layerwright/layerwright/test/fixtures"
)

// renderedConfig touches what breaks images: links of the base among the parents, folders with
// modes and owners of their own, a service that the base has, accounts.
const renderedConfig = `
apiVersion: machineconfiguration.openshift.io/v1
kind: MachineConfig
metadata: {name: 50-all, labels: {machineconfiguration.openshift.io/role: worker}}
spec:
  config:
    ignition: {version: 3.5.0}
    storage:
      directories:
      - {path: /etc/app, mode: 0750, group: {name: adm}}
      files:
      - {path: /bin/tool, mode: 0755, contents: {source: "data:,tool"}}
      - {path: /sbin/admin-tool, mode: 04755, contents: {source: "data:,admin"}}
      - {path: /lib/systemd/system-preset/50-mine.preset, contents: {source: "data:,disable%20*%0A"}}
      - {path: /etc/app/secret, mode: 0640, user: {name: daemon}, group: {name: adm}, contents: {source: "data:,secret"}}
      - {path: /etc/passwd, append: [{source: "data:,app:x:900:900::/:/sbin/nologin%0A"}]}
      - {path: /usr/local/bin/on-node, mode: 0755, contents: {source: "data:,node"}}
      - {path: /home/core/on-node, contents: {source: "data:,node"}}
      links:
      - {path: /etc/localtime, target: ../usr/share/zoneinfo/Europe/Berlin, overwrite: true}
    systemd:
      units:
      - name: mine.service
        enabled: true
        contents: "[Service]\nExecStart=/bin/tool\n[Install]\nWantedBy=multi-user.target\nAlias=ours.service\n"
        dropins: [{name: 10-more.conf, contents: "[Service]\nRestart=always\n"}]
      - {name: apt-daily.timer, mask: true}
`

// testRenderedLayerOverARealRootFileSystem unpacks the full image with tar, then what `layerwright
// render` made for it, and compares.
func testRenderedLayerOverARealRootFileSystem(t *testing.T) {
	t.Parallel()
	base, image := fullImage(t)
	folder := t.TempDir()
	file := filepath.Join(folder, "config.yaml")
	require.NoError(t, os.WriteFile(file, []byte(renderedConfig), 0o600))
	render := func(output string) []byte {
		cmd := exec.CommandContext(t.Context(), filepath.Join(repository, "bin", "layerwright"),
			"render", "-f", file, "--base", base, "--cache-dir", filepath.Join(folder, "cache"), "--output", filepath.Join(folder, output))
		r := finish(t, cmd)
		require.Zero(t, r.code, r.stderr)
		assert.Contains(t, r.stdout, "/var/usrlocal/bin/on-node")
		assert.Contains(t, r.stdout, "/var/home/core/on-node")
		content, err := os.ReadFile(filepath.Join(folder, output, "amd64", "config.tar"))
		require.NoError(t, err)
		return content
	}
	archive := render("one")
	require.Equal(t, archive, render("two"), "the same bytes twice")

	root := filepath.Join(folder, "root")
	require.NoError(t, os.Mkdir(root, 0o755))
	require.NoError(t, unix.Mount("tmpfs", root, "tmpfs", 0, "size=4g,mode=755"))
	t.Cleanup(func() { require.NoError(t, unix.Unmount(root, unix.MNT_DETACH)) })
	unpackImage(t, image, root)
	before := lookAtTree(t, root)
	untar(t, bytes.NewReader(archive), root)
	after := lookAtTree(t, root)

	named := entriesOf(t, archive)
	for path, was := range before {
		if is := after[path]; is != was {
			assert.Contains(t, named, path, "changed from %q to %q and is not in the layer", was, is)
			assert.False(t, strings.HasPrefix(was, "d"), "the folder %s changed from %q to %q", path, was, is)
		}
	}
	for path := range after {
		if _, ok := before[path]; !ok {
			assert.Contains(t, named, path, "new and not in the layer")
		}
	}
	for path, want := range map[string]string{
		"bin":                             before["bin"],
		"usr/bin/tool":                    "-755 0:0",
		"usr/sbin/admin-tool":             after["usr/sbin/admin-tool"],
		"etc/app":                         "d750 0:4",
		"etc/app/secret":                  "-640 1:4",
		"etc/passwd":                      before["etc/passwd"],
		"etc/localtime":                   "l -> ../usr/share/zoneinfo/Europe/Berlin",
		"etc/systemd/system/mine.service": "-644 0:0",
		"etc/systemd/system/ours.service": "l -> /etc/systemd/system/mine.service",
		"etc/systemd/system/multi-user.target.wants/mine.service": "l -> /etc/systemd/system/mine.service",
		"etc/systemd/system/mine.service.d/10-more.conf":          "-644 0:0",
		"etc/systemd/system/apt-daily.timer":                      "l -> /dev/null",
		"usr/lib/systemd/system-preset/50-mine.preset":            "-644 0:0",
	} {
		assert.Equal(t, want, after[path], path)
	}
	assert.True(t, strings.HasPrefix(after["bin"], "l"), "the link is a link")
	accounts, err := os.ReadFile(filepath.Join(root, "etc/passwd"))
	require.NoError(t, err)
	assert.Contains(t, string(accounts), "root:x:0:0", "what the base has stays")
	assert.Contains(t, string(accounts), "\napp:x:900:900")
}

// fullImage makes the full OS image, as an argument of --base and to read.
func fullImage(t *testing.T) (base string, image v1.Image) {
	t.Helper()
	cache, err := toolchain.CacheDir()
	require.NoError(t, err)
	maker, err := fixtures.New(fixtures.Options{CacheDir: cache, Streams: []fixtures.Stream{fixtures.RHEL9}})
	require.NoError(t, err)
	set, err := maker.Build(t.Context(), fixtures.Full)
	require.NoError(t, err)
	image = set.OS[fixtures.RHEL9]["amd64"]
	want, err := image.Digest()
	require.NoError(t, err)
	folders, err := filepath.Glob(filepath.Join(cache, "fixtures", "full-rhel9-coreos-amd64-*"))
	require.NoError(t, err)
	for _, folder := range folders {
		path, err := layout.FromPath(folder)
		if err != nil {
			continue
		}
		if found, err := path.Image(want); err == nil && found != nil {
			return "oci:" + folder + ":os", image
		}
	}
	require.Fail(t, "the cache has no folder with the image", folders)
	return "", nil
}

func unpackImage(t *testing.T, image v1.Image, root string) {
	t.Helper()
	layers, err := image.Layers()
	require.NoError(t, err)
	for _, layer := range layers {
		content, err := layer.Uncompressed()
		require.NoError(t, err)
		untar(t, content, root)
		require.NoError(t, content.Close())
	}
}

// untar unpacks with the system's tar, which replaces a link by a folder where an archive says so.
func untar(t *testing.T, archive io.Reader, root string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "tar", "-x", "-p", "--numeric-owner", "-C", root)
	cmd.Stdin = archive
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, string(out))
}

// lookAtTree says of every path what it is: kind, mode and owner, or the target of a link.
func lookAtTree(t *testing.T, root string) map[string]string {
	t.Helper()
	tree := map[string]string{}
	require.NoError(t, filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		relative := strings.TrimPrefix(strings.TrimPrefix(path, root), "/")
		if entry.Type()&fs.ModeSymlink != 0 {
			target, err := os.Readlink(path)
			tree[relative] = "l -> " + target
			return err
		}
		stat, ok := info.Sys().(*syscall.Stat_t)
		if !ok {
			return errors.New("no owner known")
		}
		tree[relative] = fmt.Sprintf("%.1s%o %d:%d", entry.Type().String(), stat.Mode&0o7777, stat.Uid, stat.Gid)
		return nil
	}))
	return tree
}

// entriesOf are the paths that an archive has.
func entriesOf(t *testing.T, archive []byte) map[string]bool {
	t.Helper()
	paths := map[string]bool{}
	for r := tar.NewReader(bytes.NewReader(archive)); ; {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			return paths
		}
		require.NoError(t, err)
		paths[strings.TrimSuffix(header.Name, "/")] = true
	}
}
