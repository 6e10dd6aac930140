package deployments

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestPlaces has the rules of ostree-ext (tar/write.rs).
func TestPlaces(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		derived, old, all string // of an image with a commit, the same for an ostree before 2024.3, and of any other image
	}{
		"./":             {"./", "./", "./"},
		"usr/bin/sh":     {"./usr/bin/sh", "./usr/bin/sh", "./usr/bin/sh"},
		"/usr//bin/./sh": {"./usr/bin/sh", "./usr/bin/sh", "./usr/bin/sh"},
		"etc":            {"usr/etc", "usr/etc", "usr/etc"},
		"./etc/motd":     {"usr/etc/motd", "usr/etc/motd", "usr/etc/motd"},
		"var/lib/a":      {"./var/lib/a", "usr/share/factory/var/lib/a", "./var/lib/a"},
		"run":            {"./run", "./run", "./run"},
		"run/lock":       {"", "", ""},
		"opt/agent":      {"", "", "./opt/agent"},
		"sysroot/a":      {"", "", "./sysroot/a"},
		"etcetera":       {"", "", "./etcetera"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for f, want := range map[filter]string{{keepsVar: true}: tt.derived, {}: tt.old, {keepsVar: true, keepsAll: true}: tt.all} {
				got, err := f.place(name)
				require.NoError(t, err)
				require.Equal(t, want, got, "%+v", f)
			}
		})
	}
	_, err := filter{}.place("usr/../../etc/shadow")
	require.ErrorContains(t, err, "Invalid path: usr/../../etc/shadow")
}

// TestCopyKeepsWhatArchivesHave has what older formats of archives can't have.
func TestCopyKeepsWhatArchivesHave(t *testing.T) {
	t.Parallel()
	const capability = "\x01\x00\x00\x02\x00\x04\x00\x00"
	var in, out bytes.Buffer
	from := tar.NewWriter(&in)
	for _, header := range []tar.Header{
		{Typeflag: tar.TypeXGlobalHeader, PAXRecords: map[string]string{"comment": "of the archive"}},
		{Name: "etc/one", Typeflag: tar.TypeReg, Mode: 0o4755, Uid: 3000000, Size: 3, PAXRecords: map[string]string{"SCHILY.xattr.security.capability": capability}},
		{Name: "etc/two", Typeflag: tar.TypeLink, Linkname: "etc/one"},
		{Name: "opt/left", Typeflag: tar.TypeReg, Mode: 0o644, Size: 3},
		{Name: "etc/.wh.gone", Typeflag: tar.TypeReg},
	} {
		require.NoError(t, from.WriteHeader(&header))
		if header.Size > 0 {
			_, err := io.WriteString(from, "abc")
			require.NoError(t, err)
		}
	}
	require.NoError(t, from.Close())
	require.NoError(t, filter{}.copy(&out, &in))

	var got []tar.Header
	for r := tar.NewReader(&out); ; {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
		got = append(got, *header)
	}
	require.Len(t, got, 3)
	require.Equal(t, "usr/etc/one", got[0].Name)
	require.Equal(t, int64(0o4755), got[0].Mode)
	require.Equal(t, 3000000, got[0].Uid)
	require.Equal(t, capability, got[0].PAXRecords["SCHILY.xattr.security.capability"])
	require.Equal(t, "usr/etc/two", got[1].Name)
	require.Equal(t, "usr/etc/one", got[1].Linkname)
	require.Equal(t, "usr/etc/.wh.gone", got[2].Name)
}

func TestVersions(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{
		"libostree:\n Version: '2022.7'\n Git: 2022.7\n": false, "libostree:\n Version: '2024.2'\n": false,
		"libostree:\n Version: '2024.10'\n": true, "libostree:\n Version: '2025.2'\n": true,
	} {
		got, err := isSince(text, varSince)
		require.NoError(t, err)
		require.Equal(t, want, got, text)
	}
	_, err := isSince("something else", varSince)
	require.ErrorContains(t, err, "reading the version of ostree")
}

func TestFindBase(t *testing.T) {
	t.Parallel()
	unpacked := []string{"sha256:a", "sha256:b", "sha256:c"}
	base, err := FindBase(map[string]string{"containers.bootc": "1"}, unpacked)
	require.NoError(t, err)
	require.Zero(t, base)
	base, err = FindBase(map[string]string{"ostree.commit": "abc", "ostree.final-diffid": "sha256:b"}, unpacked)
	require.NoError(t, err)
	require.Equal(t, Base{Commit: "abc", Layers: 2}, base)
	_, err = FindBase(map[string]string{"ostree.final-diffid": "sha256:x"}, unpacked)
	require.ErrorContains(t, err, "Missing ostree.final-diffid sha256:x")
}

func TestOverlaysRoot(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{
		"": false, "[composefs]\nenabled = yes\n": true, "[composefs]\nenabled=maybe\n[sysroot]\nreadonly=true\n": true,
		"[composefs]\nenabled = no\n": false, "[root]\ntransient = true\n": true, "[etc]\ntransient = true\n": false,
	} {
		require.Equal(t, want, overlaysRoot(text), text)
	}
}
