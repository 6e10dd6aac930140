package layer_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha512"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/layerwright/layerwright/machineconfigs/layer"
)

// zipped is a data URL with gzip inside.
func zipped(text string) string {
	return "data:;base64," + base64.StdEncoding.EncodeToString(gzipped(text))
}

func gzipped(text string) []byte {
	var buffer bytes.Buffer
	w := gzip.NewWriter(&buffer)
	if _, err := io.WriteString(w, text); err != nil {
		panic(err)
	}
	if err := w.Close(); err != nil {
		panic(err)
	}
	return buffer.Bytes()
}

// file is an entry of a regular file.
func file(content string, mode uint32, uid, gid int) entry {
	return entry{Type: layer.RegularFile, Mode: mode, UID: uid, GID: gid, Content: []byte(content)}
}

func TestFiles(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		file string // as JSON
		path string
		want entry
	}{
		"plain":                 {`{"path":"/etc/x","contents":{"source":"data:,hello%20you"}}`, "etc/x", file("hello you", 0o644, 0, 0)},
		"base64":                {`{"path":"/etc/x","contents":{"source":"data:;base64,aGVsbG8="}}`, "etc/x", file("hello", 0o644, 0, 0)},
		"gzip":                  {`{"path":"/etc/x","contents":{"source":"` + zipped("hello") + `","compression":"gzip"}}`, "etc/x", file("hello", 0o644, 0, 0)},
		"empty":                 {`{"path":"/etc/x","contents":{"source":""}}`, "etc/x", file("", 0o644, 0, 0)},
		"nothing said":          {`{"path":"/etc/x"}`, "etc/x", file("", 0o644, 0, 0)},
		"no setuid of its own":  {`{"path":"/etc/x","mode":4095,"contents":{"source":"data:,x"}}`, "etc/x", file("x", 0o777, 0, 0)},
		"owner by number":       {`{"path":"/etc/x","user":{"id":12},"group":{"id":13},"contents":{"source":"data:,x"}}`, "etc/x", file("x", 0o644, 12, 13)},
		"owner by name":         {`{"path":"/etc/x","user":{"name":"core"},"group":{"name":"core"}}`, "etc/x", file("", 0o644, 1000, 1000)},
		"owner of nss-altfiles": {`{"path":"/etc/x","user":{"name":"chrony"},"group":{"name":"chrony"}}`, "etc/x", file("", 0o644, 994, 992)},
		"through a link":        {`{"path":"/bin/x","mode":493,"contents":{"source":"data:,x"}}`, "usr/bin/x", file("x", 0o755, 0, 0)},
		"replaces a file, and its mode and owner": {
			`{"path":"/etc/chrony.conf","contents":{"source":"data:,new"}}`, "etc/chrony.conf", file("new", 0o644, 0, 0),
		},
		"replaces a link": {
			`{"path":"/etc/os-release","overwrite":true,"contents":{"source":"data:,new"}}`, "etc/os-release", file("new", 0o644, 0, 0),
		},
		"appends": {
			`{"path":"/etc/chrony.conf","append":[{"source":"data:,a"},{"source":"` + zipped("b") + `","compression":"gzip"}]}`,
			"etc/chrony.conf",
			entry{
				Type: layer.RegularFile, Mode: 0o664, GID: 992, Content: []byte("pool example iburst\nab"),
				Xattrs: map[string]string{"user.c": "2"},
			},
		},
		"appends to its own contents": {
			`{"path":"/etc/chrony.conf","contents":{"source":"data:,a"},"append":[{"source":"data:,b"}]}`, "etc/chrony.conf", file("ab", 0o644, 0, 0),
		},
		"appends to nothing": {`{"path":"/etc/x","append":[{"source":"data:,b"}]}`, "etc/x", file("b", 0o644, 0, 0)},
		"appends where a link leads": {
			`{"path":"/etc/os-release","append":[{"source":"data:,b"}]}`, "usr/lib/os-release", file("NAME=x\nb", 0o644, 0, 0),
		},
		"appends where a link leads to nothing": {
			`{"path":"/etc/dangling","append":[{"source":"data:,b"}]}`, "etc/nowhere", file("b", 0o644, 0, 0),
		},
		"only changes mode and owner": {
			`{"path":"/etc/chrony.conf","mode":384,"user":{"name":"chrony"}}`, "etc/chrony.conf",
			entry{
				Type: layer.RegularFile, Mode: 0o600, UID: 994, GID: 992, Content: []byte("pool example iburst\n"),
				Xattrs: map[string]string{"user.c": "2"},
			},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			all := build(t, files(t, test.file), ostree())
			require.Equal(t, []string{test.path}, changes(all))
			test.want.Path = test.path
			got := all[test.path]
			require.Equal(t, string(test.want.Content), string(got.Content))
			got.Content, test.want.Content = nil, nil
			require.Equal(t, test.want, got)
		})
	}
}

func TestParentsAreAsTheImageHasThem(t *testing.T) {
	t.Parallel()
	all := build(t, files(t, `{"path":"/etc/private/new/x"}`), ostree())
	require.Equal(t, entry{
		Path: "etc/private", Type: layer.DirectoryEntry, Mode: 0o750, UID: 3, GID: 4, Xattrs: map[string]string{"user.a": "1"},
	}, all["etc/private"])
	require.Equal(t, entry{Path: "etc/private/new", Type: layer.DirectoryEntry, Mode: 0o755}, all["etc/private/new"])
}

func TestDirectories(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		directory, path string
		want            entry
	}{
		"new":                       {`{"path":"/etc/a/b"}`, "etc/a/b", entry{Mode: 0o755}},
		"new with mode and owner":   {`{"path":"/etc/a","mode":1528,"user":{"name":"core"},"group":{"id":5}}`, "etc/a", entry{Mode: 0o770, UID: 1000, GID: 5}},
		"existing keeps what it is": {`{"path":"/etc/private"}`, "etc/private", entry{Mode: 0o750, UID: 3, GID: 4, Xattrs: map[string]string{"user.a": "1"}}},
		"existing gets a mode": {
			`{"path":"/etc/private","mode":448}`, "etc/private", entry{Mode: 0o700, UID: 3, GID: 4, Xattrs: map[string]string{"user.a": "1"}},
		},
		"where a link leads": {`{"path":"/bin","mode":365}`, "usr/bin", entry{Mode: 0o555}},
		"emptied":            {`{"path":"/etc/private","overwrite":true}`, "etc/private", entry{Mode: 0o755}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			all := build(t, config(t, `{"storage":{"directories":[`+test.directory+`]}}`), ostree())
			test.want.Path, test.want.Type = test.path, layer.DirectoryEntry
			require.Equal(t, test.want, all[test.path])
			_, emptied := all[test.path+"/.wh..wh..opq"]
			require.Equal(t, name == "emptied", emptied)
		})
	}
}

func TestFilesInAnEmptiedDirectoryAreNew(t *testing.T) {
	t.Parallel()
	cfg := config(t, `{"storage":{"directories":[{"path":"/etc/private","overwrite":true}],
		"files":[{"path":"/etc/private/x","append":[{"source":"data:,b"}]}]}}`)
	all := build(t, cfg, ostree().with(base{"etc/private/x": "old", "etc/private/y": "old"}))
	require.Equal(t, "b", string(all["etc/private/x"].Content))
}

func TestLinks(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		config string
		want   []string
	}{
		"symbolic": {`{"storage":{"links":[{"path":"/etc/x","target":"../anything"}]}}`, []string{"etc/x -> ../anything"}},
		"in the place of a link": {
			`{"storage":{"links":[{"path":"/etc/os-release","target":"x","overwrite":true}]}}`, []string{"etc/os-release -> x"},
		},
		"the same as the image's": {
			`{"storage":{"links":[{"path":"/etc/os-release","target":"../usr/lib//os-release"}]}}`, []string{"etc/os-release -> ../usr/lib//os-release"},
		},
		"hard to a file of the configuration": {
			`{"storage":{"files":[{"path":"/etc/b"}],"links":[{"path":"/etc/c","target":"/etc/b","hard":true},{"path":"/etc/a","target":"/etc/b","hard":true}]}}`,
			[]string{"etc/a", "etc/b = etc/a", "etc/c = etc/a"},
		},
		"hard to a file of the image": {
			`{"storage":{"links":[{"path":"/etc/z","target":"/etc/chrony.conf","hard":true}]}}`, []string{"etc/chrony.conf", "etc/z = etc/chrony.conf"},
		},
		"hard through a link": {
			`{"storage":{"links":[{"path":"/etc/z","target":"/bin/sh","hard":true}]}}`, []string{"etc/z", "usr/bin/sh = etc/z"},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := ostree().with(base{"usr/bin/sh": ""})
			require.Equal(t, test.want, changes(build(t, config(t, test.config), b)))
		})
	}
}

func TestHardLinkToAFileOfTheImageTakesItAlong(t *testing.T) {
	t.Parallel()
	all := build(t, config(t, `{"storage":{"links":[{"path":"/etc/a","target":"/etc/chrony.conf","hard":true,"user":{"id":5}}]}}`), ostree())
	require.Equal(t, entry{
		Path: "etc/a", Type: layer.RegularFile, Mode: 0o664, GID: 992, Content: []byte("pool example iburst\n"), Xattrs: map[string]string{"user.c": "2"},
	}, all["etc/a"])
	require.Equal(t, "etc/a", all["etc/chrony.conf"].Target)
}

func TestRemoteContent(t *testing.T) {
	t.Parallel()
	sum := sha512.Sum512([]byte("fetched"))
	hash := "sha512-" + hex.EncodeToString(sum[:])
	cfg := files(t, fmt.Sprintf(`{"path":"/etc/x","contents":{"source":"https://h/x","compression":"gzip","verification":{"hash":%q},
		"httpHeaders":[{"name":"A","value":"b"}]},"append":[{"source":"data:,!"},{"source":"http://h/y","verification":{"hash":%q}}]}`, hash, hash))
	plan := split(t, cfg, ostree())
	require.Len(t, plan.Remote, 2)
	plain, packed := plan.Remote[0], plan.Remote[1]
	require.Equal(t, layer.Remote{Key: plain.Key, URL: "http://h/y", Hash: hash}, plain)
	require.Equal(t, layer.Remote{
		Key: packed.Key, URL: "https://h/x", Hash: hash, Compression: "gzip", Headers: []layer.Header{{Name: "A", Value: "b"}},
	}, packed)

	l, err := plan.Build(layer.Inputs{Remote: map[string][]byte{plain.Key: []byte("fetched"), packed.Key: gzipped("fetched")}})
	require.NoError(t, err)
	require.Equal(t, "fetched!fetched", string(entries(l)["etc/x"].Content))

	_, err = plan.Build(layer.Inputs{Remote: map[string][]byte{plain.Key: []byte("fetched")}})
	require.ErrorContains(t, err, `the content of "https://h/x" was not fetched`)
	_, err = plan.Build(layer.Inputs{Remote: map[string][]byte{plain.Key: []byte("other"), packed.Key: gzipped("fetched")}})
	require.ErrorContains(t, err, `MachineConfig "rendered-worker-1": spec.config.storage.files[0]: file /etc/x: content of "http://h/y"`)
}

func TestMissingIndexContentIsFetched(t *testing.T) {
	t.Parallel()
	large := strings.Repeat("x", 100_000)
	cfg := config(t, `{"storage":{"files":[{"path":"/etc/large","append":[{"source":"data:,b"}]},{"path":"/etc/chrony.conf","mode":256}],
		"links":[{"path":"/etc/sh","target":"/usr/bin/sh","hard":true}]}}`)
	plan := split(t, cfg, ostree().with(base{"etc/large": large}))
	require.Equal(t, []string{"/etc/large", "/usr/bin/sh"}, plan.Wanted)
	inputs := layer.Inputs{Base: map[string][]byte{"/etc/large": []byte(large), "/usr/bin/sh": []byte("#!")}}
	l, err := plan.Build(inputs)
	require.NoError(t, err)
	require.Equal(t, large+"b", string(entries(l)["etc/large"].Content))
	require.Equal(t, "#!", string(entries(l)["etc/sh"].Content))

	delete(inputs.Base, "/etc/large")
	_, err = plan.Build(inputs)
	require.ErrorContains(t, err, "file /etc/large: the content of /etc/large in the image below was not read")
}

func TestArchive(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("n", 200)
	cfg := config(t, `{"storage":{"files":[{"path":"/etc/private/ü"},{"path":"/etc/`+long+`"},{"path":"/etc/big","user":{"id":4294967294}}],
		"links":[{"path":"/etc/l","target":"t"}]},"systemd":{"units":[{"name":"sshd.service","enabled":false}]}}`)
	l, err := split(t, cfg, ostree()).Build(layer.Inputs{})
	require.NoError(t, err)
	var buffer bytes.Buffer
	n, err := l.WriteTo(&buffer)
	require.NoError(t, err)
	require.EqualValues(t, buffer.Len(), n)
	var names []string
	for r := tar.NewReader(bytes.NewReader(buffer.Bytes())); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
		names = append(names, h.Name)
		require.Equal(t, time.Unix(0, 0).UTC(), h.ModTime.UTC())
		require.True(t, h.AccessTime.IsZero() && h.ChangeTime.IsZero())
		require.Empty(t, h.Uname+h.Gname)
		require.Equal(t, len(h.PAXRecords) > 0, h.Format == tar.FormatPAX, h.Name)
		require.Equal(t, slices.Contains([]string{"etc/private/", "etc/private/ü", "etc/" + long, "etc/big"}, h.Name), h.Format == tar.FormatPAX, h.Name)
	}
	require.Equal(t, []string{
		"etc/", "etc/big", "etc/l", "etc/machine-config-daemon/", "etc/machine-config-daemon/currentconfig", "etc/" + long,
		"etc/private/", "etc/private/ü", "etc/systemd/", "etc/systemd/system/", "etc/systemd/system-preset/",
		"etc/systemd/system-preset/10-machineconfigs.preset", "etc/systemd/system/multi-user.target.wants/",
		"etc/systemd/system/multi-user.target.wants/.wh.sshd.service",
	}, names)
}

func TestLayerIsAlwaysTheSame(t *testing.T) {
	t.Parallel()
	cfg := config(t, `{"storage":{"files":[{"path":"/etc/a","contents":{"source":"data:,a"}},{"path":"/bin/b","mode":493}],
		"directories":[{"path":"/etc/private","mode":448}],"links":[{"path":"/etc/l","target":"x"}]},
		"systemd":{"units":[`+unit("a.service", "[Install]\nWantedBy=multi-user.target\n", `"enabled":true,"dropins":[{"name":"x.conf","contents":"[Unit]\n"}]`)+
		`,{"name":"sshd.service","enabled":false}]}}`)
	for range 5 {
		plan := split(t, cfg, ostree())
		for range 2 {
			l, err := plan.Build(layer.Inputs{})
			require.NoError(t, err)
			id, err := l.DiffID()
			require.NoError(t, err)
			// Who changes the bytes on purpose raises Version, so that images made before are not
			// taken for ones made now.
			require.Equal(t, 1, layer.Version)
			require.Equal(t, "sha256:d5528993baa7e1b5a293a402b804887d856e71b181006e9bf602c32fd8842388", id)
		}
	}
}

func TestPlanThatIsNotOfSplitCannotBeBuilt(t *testing.T) {
	t.Parallel()
	_, err := (&layer.Plan{}).Build(layer.Inputs{})
	require.ErrorContains(t, err, "the plan does not come from Split")
}

// full is a writer that takes no more than n bytes.
type full struct{ n int }

func (f *full) Write(p []byte) (int, error) {
	if len(p) > f.n {
		return f.n, io.ErrShortWrite
	}
	f.n -= len(p)
	return len(p), nil
}

func TestWriteErrorsAreTold(t *testing.T) {
	t.Parallel()
	l, err := split(t, files(t, `{"path":"/etc/a","contents":{"source":"data:,abc"}}`), ostree()).Build(layer.Inputs{})
	require.NoError(t, err)
	for n := range 8 {
		_, err := l.WriteTo(&full{n * 512})
		require.ErrorIs(t, err, io.ErrShortWrite)
	}
}
