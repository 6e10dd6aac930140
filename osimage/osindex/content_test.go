package osindex_test

import (
	"archive/tar"
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/layerwright/layerwright/osimage/osindex"
)

func TestContentKept(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		hdr  tar.Header
		kept bool
	}{
		"accounts":                              {file("etc/passwd", "root:x:0:0"), true},
		"groups":                                {file("etc/group", "root:x:0"), true},
		"accounts of an ostree system":          {file("usr/lib/passwd", "root:x:0:0"), true},
		"groups of an ostree system":            {file("usr/lib/group", "root:x:0"), true},
		"accounts of 64 KiB":                    {file("etc/passwd", strings.Repeat("x", 64<<10)), true},
		"accounts that are bigger":              {file("etc/passwd", strings.Repeat("x", 64<<10+1)), false},
		"password hashes":                       {file("etc/shadow", "root:*"), false},
		"password hashes of groups":             {file("etc/gshadow", "root:*"), false},
		"a backup of password hashes":           {file("etc/shadow-", "root:*"), false},
		"password hashes by another way":        {file("./etc//gshadow.rpmsave", "root:*"), false},
		"a preset":                              {file("usr/lib/systemd/system-preset/90-default.preset", "enable *"), true},
		"a preset of the administrator":         {file("etc/systemd/system-preset/10.preset", "enable *"), true},
		"a preset only root reads":              {withMode(file("etc/systemd/system-preset/10.preset", "x"), 0o600), true},
		"a runtime preset":                      {file("run/systemd/system-preset/10.preset", "enable *"), true},
		"something beside the presets":          {file("usr/lib/systemd/system-preset/README", "x"), false},
		"a unit":                                {file("usr/lib/systemd/system/sshd.service", "[Unit]"), true},
		"a unit in the folder of old":           {file("lib/systemd/system/sshd.service", "[Unit]"), true},
		"a unit that was installed by hand":     {file("usr/local/lib/systemd/system/x.service", "[Unit]"), true},
		"a drop-in":                             {file("usr/lib/systemd/system/sshd.service.d/10.conf", "[Service]"), true},
		"a unit of /etc":                        {file("etc/systemd/system/x.timer", "[Timer]"), true},
		"an empty unit":                         {file("etc/systemd/system/x.timer", ""), true},
		"a unit for users":                      {file("usr/lib/systemd/user/x.service", "[Unit]"), false},
		"a unit that is huge":                   {file("usr/lib/systemd/system/x.service", strings.Repeat("x", 64<<10+1)), false},
		"small configuration":                   {file("etc/chrony.conf", "pool"), true},
		"configuration of 16 KiB":               {file("etc/services", strings.Repeat("x", 16<<10)), true},
		"configuration that is bigger":          {file("etc/services", strings.Repeat("x", 16<<10+1)), false},
		"configuration that not all may read":   {withMode(file("etc/sudoers", "root ALL"), 0o440), false},
		"a certificate":                         {file("etc/pki/tls/cert.pem", "x"), false},
		"a certificate in another place":        {file("etc/ssl/cert.pem", "x"), false},
		"a SELinux policy":                      {file("etc/selinux/targeted/policy", "x"), false},
		"a device rule":                         {file("etc/udev/hwdb.d/1.hwdb", "x"), false},
		"a host key":                            {file("etc/ssh/ssh_host_rsa_key", "x"), false},
		"the configuration of ssh":              {file("etc/ssh/sshd_config", "x"), true},
		"a program":                             {file("usr/bin/bash", "x"), false},
		"a file with the name of an account":    {file("home/etc/passwd", "x"), false},
		"the default of /etc on ostree systems": {file("usr/etc/chrony.conf", "x"), false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			x := indexOf(t, layer{test.hdr}, layer{})
			for _, x := range []*osindex.Index{x, decoded(t, encoded(t, x))} {
				content, ok := x.Content(test.hdr.Name)
				require.Equal(t, test.kept, ok)
				if test.kept {
					require.Equal(t, test.hdr.Linkname, string(content))
				}
			}
			source, ok := x.Source(test.hdr.Name)
			require.True(t, ok)
			require.Equal(t, osindex.Source{Name: strings.Join(strings.FieldsFunc(strings.TrimPrefix(test.hdr.Name, "."), isSlash), "/")}, source)
		})
	}
}

func isSlash(r rune) bool { return r == '/' }

func TestContentFollowsTheFile(t *testing.T) {
	t.Parallel()
	x := indexOf(t,
		layer{file("etc/a", "1"), file("usr/share/b", "2"), hardlink("etc/b", "usr/share/b"), hardlink("usr/share/a", "etc/a"), symlink("etc/s", "a")},
		layer{file("etc/a", "22"), hardlink("etc/c", "usr/share/a"), hardlink("etc/d", "etc/c")},
		layer{whiteout("etc/a"), hardlink("etc/e", "etc/d")},
	)
	for _, at := range []string{"/etc/a", "/etc/s", "/etc/b", "/usr/share/a", "/etc/c", "/etc", "/no"} {
		_, ok := x.Content(at)
		require.False(t, ok, at)
	}
	sources := map[string]osindex.Source{
		"/etc/b":       {Name: "etc/b"},
		"/usr/share/a": {Name: "usr/share/a"},
		"/etc/c":       {Name: "usr/share/a"},
		"/etc/d":       {Name: "usr/share/a"},
		"/etc/e":       {Name: "usr/share/a"},
	}
	for at, want := range sources {
		for _, x := range []*osindex.Index{x, decoded(t, encoded(t, x))} {
			source, ok := x.Source(at)
			require.True(t, ok, at)
			require.Equal(t, want, source, at)
		}
	}
	for _, at := range []string{"/etc/a", "/etc/s", "/etc", "/no"} {
		_, ok := x.Source(at)
		require.False(t, ok, at)
	}
}

func TestContentOfLinks(t *testing.T) {
	t.Parallel()
	x := indexOf(t, layer{file("etc/a", "1"), hardlink("etc/b", "etc/a")}, layer{hardlink("etc/c", "etc/b"), file("etc/a", "2")})
	for at, want := range map[string]string{"/etc/a": "2", "/etc/b": "1", "/etc/c": "1"} {
		content, ok := x.Content(at)
		require.True(t, ok, at)
		require.Equal(t, want, string(content), at)
	}
}

func TestSourceOfSpecialNames(t *testing.T) {
	t.Parallel()
	x := indexOf(t,
		layer{file("a", "1"), file("a", "2"), symlink("l", "d"), file("l/x", "")},
		layer{file("b", "1")}, layer{hardlink("y", "d/x")},
	)
	for at, want := range map[string]osindex.Source{
		"/a":   {Name: "a"},
		"/d/x": {Name: "l/x"},
		"/b":   {Layer: 1, Name: "b"},
		"/y":   {Name: "l/x"},
	} {
		source, ok := x.Source(at)
		require.True(t, ok)
		require.Equal(t, want, source, at)
	}
}

func TestContentIsBounded(t *testing.T) {
	t.Parallel()
	var entries layer
	const size = 16 << 10
	for i := range osindex.MaxKept/size + 10 {
		entries = append(entries, file(fmt.Sprintf("etc/%04d", i), strings.Repeat("x", size)))
	}
	x := indexOf(t, entries, layer{file("etc/new", "x"), hardlink("etc/newer", "etc/0001")})
	require.Equal(t, osindex.MaxKept, kept(x))
	_, ok := x.Content("/etc/new")
	require.False(t, ok, "no room")
	_, ok = x.Lookup("/etc/new")
	require.True(t, ok)
	require.Equal(t, osindex.MaxKept, kept(decoded(t, encoded(t, x))))

	x = decoded(t, encoded(t, x))
	require.NoError(t, x.Apply(bytes.NewReader(archive(t, whiteout("etc/0000")))))
	require.NoError(t, x.Apply(bytes.NewReader(archive(t, file("etc/newest", "x")))))
	_, ok = x.Content("/etc/newest")
	require.True(t, ok, "room again")
}

func kept(x *osindex.Index) int {
	total := 0
	for at := range walk(x) {
		content, _ := x.Content(at)
		total += len(content)
	}
	return total
}
