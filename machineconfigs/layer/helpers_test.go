package layer_test

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/machineconfigs"
	"github.com/layerwright/layerwright/machineconfigs/layer"
	"github.com/layerwright/layerwright/osimage/osindex"
)

const (
	vendor = "usr/lib/systemd/system/"
	admin  = "etc/systemd/system/"
)

// base is an image of one layer: its files by path, "-> target" for links. A path with a slash at
// its end is a directory.
type base map[string]string

// ostree is an image with the links of an ostree-like system.
func ostree() base {
	return base{ //nolint:gosec // accounts without passwords, made up
		"bin": "-> usr/bin", "home": "-> var/home", "root": "-> var/roothome", "opt": "-> var/opt", "usr/local": "-> ../var/usrlocal",
		"var/home/": "", "usr/bin/sh": "#!", "boot/": "", "sysroot/ostree/": "", "ostree": "-> sysroot/ostree", "run/": "", "tmp/": "",
		"etc/passwd":                 "root:x:0:0:root:/root:/bin/sh\ncore:x:1000:1000::/var/home/core:/bin/sh\n",
		"etc/group":                  "root:x:0:\ncore:x:1000:\n",
		"usr/lib/passwd":             "chrony:x:994:992::/var/lib/chrony:/sbin/nologin\ncore:x:7:7::/:/bin/sh\n",
		"usr/lib/group":              "chrony:x:992:\nbroken\n",
		"etc/chrony.conf":            "pool example iburst\n",
		"etc/private/":               "",
		"etc/os-release":             "-> ../usr/lib/os-release",
		"usr/lib/os-release":         "NAME=x\n",
		"etc/dangling":               "-> nowhere",
		vendor + "multi-user.target": "[Unit]\nDescription=x\n",
		vendor + "sshd.service":      "[Install]\nWantedBy=multi-user.target\n",
		vendor + "chronyd.service":   "[Install]\nWantedBy=multi-user.target\nAlias=ntp.service\n",
		vendor + "static.service":    "[Unit]\nDescription=x\n",
		vendor + "getty@.service":    "[Install]\nWantedBy=getty.target\nDefaultInstance=tty1\n",
		vendor + "getty.target":      "[Unit]\nDescription=x\n",
		admin + "masked.service":     "-> /dev/null",
		admin + "ntp.service":        "-> /usr/lib/systemd/system/chronyd.service",
		admin + "getty.target.wants/getty@tty1.service":   "-> /usr/lib/systemd/system/getty@.service",
		admin + "multi-user.target.wants/sshd.service":    "-> /usr/lib/systemd/system/sshd.service",
		admin + "multi-user.target.wants/chronyd.service": "-> /usr/lib/systemd/system/chronyd.service",
		admin + "sshd.service.d/10-base.conf":             "[Unit]\n",
		"usr/lib/systemd/system-preset/90-default.preset": "enable sshd.service\nenable getty@.service\nenable wanted*.service\n",
		"usr/lib/systemd/system-preset/99-default.preset": "disable *\n",
	}
}

// with is the image and more.
func (b base) with(more base) base {
	all := maps.Clone(b)
	maps.Copy(all, more)
	return all
}

// special are owners, modes and attributes that are not the usual ones.
func special() map[string]tar.Header {
	return map[string]tar.Header{
		"etc/private/":    {Mode: 0o750, Uid: 3, Gid: 4, PAXRecords: map[string]string{"SCHILY.xattr.user.a": "1"}},
		"etc/chrony.conf": {Mode: 0o664, Uid: 0, Gid: 992, PAXRecords: map[string]string{"SCHILY.xattr.user.c": "2"}},
		"tmp/":            {Mode: 0o1777},
	}
}

// index applies the image.
func (b base) index(tb testing.TB) *osindex.Index {
	tb.Helper()
	x := &osindex.Index{}
	require.NoError(tb, x.Apply(bytes.NewReader(b.tar(tb))))
	return x
}

func (b base) tar(tb testing.TB) []byte {
	tb.Helper()
	var buffer bytes.Buffer
	w := tar.NewWriter(&buffer)
	for _, name := range slices.Sorted(maps.Keys(b)) {
		hdr := special()[name]
		hdr.Name = name
		hdr.Typeflag = tar.TypeReg
		content := b[name]
		target, isLink := strings.CutPrefix(content, "-> ")
		switch {
		case isLink:
			hdr.Typeflag, hdr.Linkname, hdr.Mode, content = tar.TypeSymlink, target, 0o777, ""
		case content == "|":
			hdr.Typeflag, content = tar.TypeFifo, ""
		case strings.HasSuffix(name, "/"):
			hdr.Typeflag = tar.TypeDir
			if hdr.Mode == 0 {
				hdr.Mode = 0o755
			}
		case hdr.Mode == 0:
			hdr.Mode = 0o644
		}
		hdr.Size = int64(len(content))
		require.NoError(tb, w.WriteHeader(&hdr))
		_, err := w.Write([]byte(content))
		require.NoError(tb, err)
	}
	require.NoError(tb, w.Close())
	return buffer.Bytes()
}

// config reads an Ignition configuration as the MachineConfig "rendered-worker-1" has it, without
// "ignition".
func config(tb testing.TB, body string) *machineconfigs.Config {
	tb.Helper()
	raw := `{"ignition":{"version":"3.5.0"},` + strings.TrimPrefix(body, "{")
	if body == "{}" {
		raw = `{"ignition":{"version":"3.5.0"}}`
	}
	require.True(tb, json.Valid([]byte(raw)), "%s", raw)
	cfg, err := machineconfigs.Parse(&mcfgv1.MachineConfig{
		ObjectMeta: metav1.ObjectMeta{Name: "rendered-worker-1"},
		Spec:       mcfgv1.MachineConfigSpec{Config: runtime.RawExtension{Raw: []byte(raw)}},
	})
	require.NoError(tb, err)
	return cfg
}

// files is a configuration of files only.
func files(t *testing.T, list string) *machineconfigs.Config {
	t.Helper()
	return config(t, `{"storage":{"files":[`+list+`]}}`)
}

func units(t *testing.T, list string) *machineconfigs.Config {
	t.Helper()
	return config(t, `{"systemd":{"units":[`+list+`]}}`)
}

// unit is a unit as JSON; more are further fields.
func unit(name, contents, more string) string {
	text, err := json.Marshal(contents)
	if err != nil {
		panic(err)
	}
	if contents != "" {
		more = strings.TrimPrefix(more+`,"contents":`+string(text), ",")
	}
	if more != "" {
		more = "," + more
	}
	return fmt.Sprintf(`{"name":%q%s}`, name, more)
}

// split must work.
func split(t *testing.T, cfg *machineconfigs.Config, b base) *layer.Plan {
	t.Helper()
	plan, err := layer.Split(cfg, b.index(t))
	require.NoError(t, err)
	return plan
}

// build must work.
func build(t *testing.T, cfg *machineconfigs.Config, b base) map[string]entry {
	t.Helper()
	plan, inputs := split(t, cfg, b), layer.Inputs{Base: map[string][]byte{}}
	for _, wanted := range plan.Wanted {
		inputs.Base[wanted] = []byte(b[wanted[1:]])
	}
	l, err := plan.Build(inputs)
	require.NoError(t, err)
	checkLayer(t, l, b)
	return entries(l)
}

func entries(l *layer.Layer) map[string]entry {
	byPath := map[string]entry{}
	for _, e := range l.Entries() {
		content, err := e.Content()
		if err != nil {
			panic(err)
		}
		byPath[e.Path] = entry{
			Path: e.Path, Type: e.Type, Mode: e.Mode, UID: e.UID, GID: e.GID, Target: e.Target, Content: content, Xattrs: e.Xattrs,
		}
	}
	return byPath
}

// entry is an entry with its content.
type entry struct {
	Path     string
	Type     layer.EntryType
	Mode     uint32
	UID, GID int
	Target   string
	Content  []byte
	Xattrs   map[string]string
}

// checkLayer checks what every layer must be like.
func checkLayer(t *testing.T, l *layer.Layer, b base) {
	t.Helper()
	var paths []string
	seen := map[string]layer.EntryType{}
	for _, e := range l.Entries() {
		paths = append(paths, e.Path)
		require.NotContains(t, seen, e.Path, "only once")
		for dir := path.Dir(e.Path); dir != "."; dir = path.Dir(dir) {
			require.Equal(t, layer.DirectoryEntry, seen[dir], "parent %s of %s", dir, e.Path)
			require.False(t, strings.HasPrefix(b[dir], "-> "), "%s goes through a link of the image", e.Path)
		}
		if e.Type == layer.DirectoryEntry {
			_, isPath := b[e.Path]
			require.False(t, isPath, "%s would turn into a directory", e.Path)
		}
		if e.Type == layer.HardLink {
			require.Equal(t, layer.RegularFile, seen[e.Target])
		}
		seen[e.Path] = e.Type
	}
	require.True(t, slices.IsSorted(paths))
	require.Contains(t, seen, strings.TrimPrefix(layer.RecordPath, "/"))
}

// changes lists what a layer has beside directories, the record and the presets: one line each.
func changes(all map[string]entry) []string {
	var lines []string
	for _, at := range slices.Sorted(maps.Keys(all)) {
		e := all[at]
		switch {
		case e.Type == layer.DirectoryEntry, "/"+at == layer.RecordPath, "/"+at == layer.PresetPath:
		case e.Type == layer.SymbolicLink:
			lines = append(lines, at+" -> "+e.Target)
		case e.Type == layer.HardLink:
			lines = append(lines, at+" = "+e.Target)
		default:
			lines = append(lines, at)
		}
	}
	return lines
}
