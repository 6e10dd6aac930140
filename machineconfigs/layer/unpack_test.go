package layer_test

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/stretchr/testify/require"

	"github.com/layerwright/layerwright/machineconfigs/layer"
	"github.com/layerwright/layerwright/osimage/osindex"
	"github.com/layerwright/layerwright/test/fixtures"
)

// unpack lays an archive over a folder as container runtimes do. Whoever unpacks as another user
// than root gets no owners.
func unpack(t *testing.T, archive io.Reader, root string) {
	t.Helper()
	for r := tar.NewReader(archive); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return
		}
		require.NoError(t, err)
		unpackEntry(t, h, r, root)
	}
}

func unpackEntry(t *testing.T, h *tar.Header, content io.Reader, root string) {
	t.Helper()
	at := filepath.Join(root, h.Name) //nolint:gosec // archives of this test, in a folder of its own
	for dir := path.Dir(path.Clean(h.Name)); dir != "."; dir = path.Dir(dir) {
		info, err := os.Lstat(filepath.Join(root, dir))
		require.NoError(t, err, "parent of %s", h.Name)
		require.True(t, info.IsDir(), "%s goes through %s", h.Name, dir)
	}
	if removed, ok := strings.CutPrefix(path.Base(h.Name), ".wh."); ok {
		require.NotEqual(t, ".wh..opq", removed)
		require.NoError(t, os.RemoveAll(filepath.Join(filepath.Dir(at), removed)))
		return
	}
	old, err := os.Lstat(at)
	exists := err == nil
	if exists && h.Typeflag == tar.TypeDir {
		require.True(t, old.IsDir(), "%s would turn into a directory", h.Name)
	} else if exists {
		require.False(t, old.IsDir(), "%s would replace a directory", h.Name)
		require.NoError(t, os.Remove(at))
	}
	switch h.Typeflag {
	case tar.TypeDir:
		if !exists {
			require.NoError(t, os.Mkdir(at, 0o700))
		}
	case tar.TypeSymlink:
		require.NoError(t, os.Symlink(h.Linkname, at))
	case tar.TypeLink:
		require.NoError(t, os.Link(filepath.Join(root, h.Linkname), at)) //nolint:gosec // as above
	default:
		data, err := io.ReadAll(content)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(at, data, 0o600))
	}
	if os.Geteuid() == 0 {
		require.NoError(t, os.Lchown(at, h.Uid, h.Gid))
	}
	if h.Typeflag != tar.TypeSymlink {
		require.NoError(t, syscall.Chmod(at, uint32(h.Mode))) //nolint:gosec // of a tar header
	}
}

// facts are what a path is, as text: type, mode, owner where that is known, and target or content.
func facts(t *testing.T, root string) map[string]string {
	t.Helper()
	all := map[string]string{}
	require.NoError(t, filepath.WalkDir(root, func(at string, _ fs.DirEntry, err error) error {
		if err != nil || at == root {
			return err
		}
		info, err := os.Lstat(at)
		if err != nil {
			return err
		}
		stat, ok := info.Sys().(*syscall.Stat_t)
		require.True(t, ok)
		text := fmt.Sprintf("%o", stat.Mode)
		if os.Geteuid() == 0 {
			text += fmt.Sprintf(" %d:%d", stat.Uid, stat.Gid)
		}
		switch {
		case info.Mode()&fs.ModeSymlink != 0:
			target, err := os.Readlink(at)
			require.NoError(t, err)
			text += " -> " + target
		case info.Mode().IsRegular():
			data, err := os.ReadFile(at) //nolint:gosec // no one else writes there
			require.NoError(t, err)
			text += " " + string(data)
		}
		all[strings.TrimPrefix(at, root+"/")] = text
		return nil
	}))
	return all
}

// fact is what facts say about a path.
func fact(mode uint32, uid, gid int, rest string) string {
	text := fmt.Sprintf("%o", mode)
	if os.Geteuid() == 0 {
		text += fmt.Sprintf(" %d:%d", uid, gid)
	}
	return text + rest
}

// fixture is the small image, unpacked, and its index.
func fixture(t *testing.T) (layers [][]byte, index *osindex.Index) {
	t.Helper()
	maker, err := fixtures.New(fixtures.Options{
		CacheDir: t.TempDir(), Streams: []fixtures.Stream{fixtures.RHEL10}, Architectures: []string{runtime.GOARCH},
	})
	require.NoError(t, err)
	set, err := maker.Build(t.Context(), fixtures.Tiny)
	require.NoError(t, err)
	index = &osindex.Index{}
	for _, l := range layersOf(t, set.OS[fixtures.RHEL10][runtime.GOARCH]) {
		data, err := io.ReadAll(l)
		require.NoError(t, err)
		require.NoError(t, l.Close())
		require.NoError(t, index.Apply(bytes.NewReader(data)))
		layers = append(layers, data)
	}
	return layers, index
}

func layersOf(t *testing.T, img v1.Image) []io.ReadCloser {
	t.Helper()
	layers, err := img.Layers()
	require.NoError(t, err)
	var all []io.ReadCloser
	for _, l := range layers {
		r, err := l.Uncompressed()
		require.NoError(t, err)
		all = append(all, r)
	}
	return all
}

const fixtureConfig = `{
	"passwd":{"users":[{"name":"core","sshAuthorizedKeys":["ssh-ed25519 AAAA"]}]},
	"storage":{
		"files":[
			{"path":"/etc/chrony.conf","mode":416,"group":{"name":"chrony"},"contents":{"source":"data:,pool%20x%0A"}},
			{"path":"/etc/ssh/sshd_config","append":[{"source":"data:,X%0A"}]},
			{"path":"/bin/hello","mode":2541,"contents":{"source":"data:,%23!"}},
			{"path":"/lib/systemd/system/own.service","contents":{"source":"data:,%5BInstall%5D%0AWantedBy=multi-user.target%0A"}},
			{"path":"/etc/os-release","overwrite":true,"contents":{"source":"data:,NAME=own%0A"}},
			{"path":"/usr/local/bin/tool","contents":{"source":"data:,x"}},
			{"path":"/home/core/.profile","contents":{"source":"data:,x"}},
			{"path":"/root/.vimrc","contents":{"source":"data:,x"}},
			{"path":"/opt/app/conf","contents":{"source":"data:,x"}}],
		"directories":[{"path":"/etc/own.d","mode":448,"user":{"name":"core"},"group":{"name":"core"}},{"path":"/lib"}],
		"links":[{"path":"/etc/hosts2","target":"hosts","hard":false},{"path":"/etc/own.d/hard","target":"/etc/chrony.conf","hard":true}]},
	"systemd":{"units":[
		{"name":"kubelet.service","enabled":true,"dropins":[{"name":"10-x.conf","contents":"[Install]\nRequiredBy=x.target\n"}]},
		{"name":"own.service","enabled":true},
		{"name":"sshd.service","enabled":false},
		{"name":"rpm-ostreed.service","mask":true},
		{"name":"chronyd.service","contents":"[Install]\nWantedBy=time.target\n"}]}}`

// fixtureChanges are what the configuration makes of the fixture, beside the record and the
// presets.
func fixtureChanges() map[string]string {
	const wants = admin + "multi-user.target.wants"
	return map[string]string{
		"etc/chrony.conf":                           fact(0o100640, 0, 992, " pool x\n"),
		"etc/ssh/sshd_config":                       fact(0o100644, 0, 0, " PermitRootLogin no\nPasswordAuthentication no\nInclude /etc/ssh/sshd_config.d/*.conf\nX\n"),
		"usr/bin/hello":                             fact(0o100755, 0, 0, " #!"),
		vendor + "own.service":                      fact(0o100644, 0, 0, " [Install]\nWantedBy=multi-user.target\n"),
		"etc/os-release":                            fact(0o100644, 0, 0, " NAME=own\n"),
		"etc/own.d":                                 fact(0o040700, 1000, 1000, ""),
		"etc/own.d/hard":                            fact(0o100640, 0, 992, " pool x\n"),
		"etc/hosts2":                                fact(0o120777, 0, 0, " -> hosts"),
		wants + "/kubelet.service":                  fact(0o120777, 0, 0, " -> /usr/lib/systemd/system/kubelet.service"),
		admin + "x.target.requires":                 fact(0o040755, 0, 0, ""),
		admin + "x.target.requires/kubelet.service": fact(0o120777, 0, 0, " -> /usr/lib/systemd/system/kubelet.service"),
		admin + "kubelet.service.d":                 fact(0o040755, 0, 0, ""),
		admin + "kubelet.service.d/10-x.conf":       fact(0o100644, 0, 0, " [Install]\nRequiredBy=x.target\n"),
		wants + "/own.service":                      fact(0o120777, 0, 0, " -> /usr/lib/systemd/system/own.service"),
		wants + "/sshd.service":                     "",
		admin + "rpm-ostreed.service":               fact(0o120777, 0, 0, " -> /dev/null"),
		admin + "chronyd.service":                   fact(0o100644, 0, 0, " [Install]\nWantedBy=time.target\n"),
		wants + "/chronyd.service":                  "",
		admin + "time.target.wants":                 fact(0o040755, 0, 0, ""),
		admin + "time.target.wants/chronyd.service": fact(0o120777, 0, 0, " -> /etc/systemd/system/chronyd.service"),
		"etc/systemd/system-preset":                 fact(0o040755, 0, 0, ""),
		"etc/machine-config-daemon":                 fact(0o040755, 0, 0, ""),
	}
}

// TestLayerOverTheFixture unpacks the layer over the small image, and finds exactly what the
// configuration says: links of the image are as they were, modes and owners are right, and files
// are where the image's links lead.
func TestLayerOverTheFixture(t *testing.T) {
	t.Parallel()
	layers, index := fixture(t)
	root := filepath.Join(t.TempDir(), "root")
	require.NoError(t, os.Mkdir(root, 0o755))
	for _, l := range layers {
		unpack(t, bytes.NewReader(l), root)
	}
	want := facts(t, root)
	require.Contains(t, want["usr/local"], " -> ../var/usrlocal")

	plan, err := layer.Split(config(t, fixtureConfig), index)
	require.NoError(t, err)
	require.Empty(t, plan.Wanted)
	require.Len(t, plan.NodeState.Files, 4)
	l, err := plan.Build(layer.Inputs{})
	require.NoError(t, err)
	var archive bytes.Buffer
	_, err = l.WriteTo(&archive)
	require.NoError(t, err)
	unpack(t, bytes.NewReader(archive.Bytes()), root)

	for name, is := range fixtureChanges() {
		want[name] = is
	}
	maps.DeleteFunc(want, func(_, is string) bool { return is == "" })
	got := facts(t, root)
	for _, own := range []string{layer.RecordPath[1:], layer.PresetPath[1:]} {
		require.Contains(t, got, own)
		want[own] = got[own]
	}
	require.Equal(t, want, got)
	require.True(t, strings.HasPrefix(got[layer.RecordPath[1:]], fact(0o100600, 0, 0, " {")))
	requireLike(t, index, archive.Bytes(), root)
}

// requireLike holds what the index says about the image with the layer against the unpacked folder.
func requireLike(t *testing.T, index *osindex.Index, archive []byte, root string) {
	t.Helper()
	require.NoError(t, index.Apply(bytes.NewReader(archive)))
	for name := range facts(t, root) {
		info, err := os.Lstat(filepath.Join(root, name))
		require.NoError(t, err)
		entry, ok := index.Lookup("/" + name)
		require.True(t, ok, name)
		require.Equal(t, info.IsDir(), entry.Kind == osindex.Directory, name)
		require.Equal(t, info.Mode()&fs.ModeSymlink != 0, entry.Kind == osindex.Symlink, name)
	}
}

// TestTarUnpacksTheLayer lets the system's tar unpack the layer, which knows no whiteouts, and
// replaces a link by a directory if an archive has one there.
func TestTarUnpacksTheLayer(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	b := ostree()
	unpackTree(t, b, root)
	before := facts(t, root)
	plan := split(t, config(t, `{"storage":{"files":[{"path":"/bin/x","mode":493},{"path":"/etc/a/b"}],"directories":[{"path":"/etc/private"}]}}`), b)
	l, err := plan.Build(layer.Inputs{})
	require.NoError(t, err)
	var archive bytes.Buffer
	_, err = l.WriteTo(&archive)
	require.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), "tar", "--extract", "--preserve-permissions", "--directory", root)
	cmd.Stdin = &archive
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	after := facts(t, root)
	var added []string
	for name, is := range after {
		if before[name] == "" {
			added = append(added, name)
		} else {
			require.Equal(t, before[name], is, name)
		}
	}
	slices.Sort(added)
	require.Equal(t, []string{"etc/a", "etc/a/b", "etc/machine-config-daemon", "etc/machine-config-daemon/currentconfig", "usr/bin/x"}, added)
}

// unpackTree unpacks an image, with the directories that its archive leaves out.
func unpackTree(t *testing.T, b base, root string) {
	t.Helper()
	for r := tar.NewReader(bytes.NewReader(b.tar(t))); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return
		}
		require.NoError(t, err)
		require.NoError(t, os.MkdirAll(filepath.Join(root, path.Dir(path.Clean(h.Name))), 0o755))
		unpackEntry(t, h, r, root)
	}
}
