package nodestate

import (
	"errors"
	"strings"
	"testing"

	"github.com/coreos/ignition/v2/config/v3_5/types"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/layerwright/layerwright/machineconfigs"
)

// atHome resolves like a host that has its homes in /var, and a link of a user's in one of them.
func atHome(written string) (string, error) {
	if strings.HasPrefix(written, "/var/home/core/link") {
		return "", errors.New("a link that is not root's")
	}
	return strings.Replace(written, "/home/core", "/var/home/core", 1), nil
}

var people = ParseAccounts(
	[][]byte{
		[]byte("root:x:0:0:root:/root:/bin/bash\ncore:x:1000:1001:CoreOS:/home/core:/bin/bash\nbroken\nlate:x:a:1::/:/bin/sh\n"),
		[]byte("core:x:9:9:another:/nowhere:/bin/sh\nchrony:x:994:993::/var/lib/chrony:/sbin/nologin\nbin:x:1:1::/usr/bin:/sbin/nologin\nguest:x:65534:65534::/:/sbin/nologin\n"),
	},
	[][]byte{[]byte("root:x:0:\ncore:x:1001:\nwheel:x:10:core\n")},
)

func source(text string) types.Resource { return types.Resource{Source: new("data:," + text)} }

func file(path, text string) types.File {
	return types.File{Node: types.Node{Path: path}, FileEmbedded1: types.FileEmbedded1{Contents: source(text)}}
}

// paths are the items of a state by path, without folders that are only needed by others.
func paths(s State) map[string]Item {
	out := map[string]Item{}
	for _, i := range s.Items {
		if !i.Loose || i.Kind != Directory {
			out[i.Path] = i
		}
	}
	return out
}

func TestOfHasContentThatNoImageHas(t *testing.T) {
	t.Parallel()
	cfg := &machineconfigs.Config{NodeOnly: machineconfigs.NodeOnly{Files: []string{"/etc/secret", "/usr/lib/secret"}, Units: []string{"own.service"}}}
	secret := file("/etc/secret", "hush")
	secret.Mode, secret.User.Name, secret.Group.Name = new(0o400), new("chrony"), new("wheel")
	cfg.Ignition.Storage.Files = []types.File{
		file("/etc/chrony.conf", "image"), file("/var/lib/app/data", "1"), secret, file("/usr/lib/secret", "hush"),
		{Node: types.Node{Path: "/var/remote"}, FileEmbedded1: types.FileEmbedded1{Contents: types.Resource{Source: new("https://example.com/a")}}},
		{Node: types.Node{Path: "/var/log/more"}, FileEmbedded1: types.FileEmbedded1{Append: []types.Resource{source("x")}}},
		{Node: types.Node{Path: "/var/unowned", User: types.NodeUser{Name: new("nemo")}}},
		file("/var/home/core/link/x", "1"),
	}
	cfg.Ignition.Storage.Directories = []types.Directory{{Node: types.Node{Path: "/var/spool/app"}, DirectoryEmbedded1: types.DirectoryEmbedded1{Mode: new(0o1777)}}}
	cfg.Ignition.Storage.Links = []types.Link{
		{Node: types.Node{Path: "/var/latest"}, LinkEmbedded1: types.LinkEmbedded1{Target: new("lib/app")}},
		{Node: types.Node{Path: "/var/hard"}, LinkEmbedded1: types.LinkEmbedded1{Target: new("/var/a"), Hard: new(true)}},
	}
	cfg.Ignition.Systemd.Units = []types.Unit{
		{Name: "own.service", Enabled: new(true), Contents: new("[Install]\nWantedBy=multi-user.target\n"), Dropins: []types.Dropin{{Name: "a.conf", Contents: new("[Unit]\n")}}},
		{Name: "images.service", Contents: new("[Unit]\n")},
	}
	cfg.Ignition.Passwd.Users = []types.PasswdUser{
		{Name: "core", SSHAuthorizedKeys: []types.SSHAuthorizedKey{"ssh-ed25519 A a", "ssh-ed25519 B b\n"}, PasswordHash: new("$6$hash")},
		{Name: "nemo", PasswordHash: new("$6$other")},
		{Name: "bin", SSHAuthorizedKeys: []types.SSHAuthorizedKey{"ssh-ed25519 A"}},
		{Name: "guest", SSHAuthorizedKeys: []types.SSHAuthorizedKey{"ssh-ed25519 A"}},
	}
	cfg.Ignition.Passwd.Groups = []types.PasswdGroup{{Name: "wheel"}, {Name: "divers"}}

	s := Of(cfg, people, atHome)
	got := paths(s)
	assert.Equal(t, Entry{Kind: File, Mode: 0o644, Sum: sum([]byte("1"))}, got["/var/lib/app/data"].Entry)
	assert.Equal(t, Entry{Kind: File, Mode: 0o400, UID: 994, GID: 10, Sum: sum([]byte("hush"))}, got["/etc/secret"].Entry)
	assert.Equal(t, Entry{Kind: Directory, Mode: 0o777}, got["/var/spool/app"].Entry)
	assert.Equal(t, Entry{Kind: Link, Target: "lib/app"}, got["/var/latest"].Entry)
	assert.Equal(t, "[Unit]\n", string(got["/etc/systemd/system/own.service.d/a.conf"].Content))
	assert.Equal(t, Link, got["/etc/systemd/system/multi-user.target.wants/own.service"].Kind)
	keys := got["/var/home/core/.ssh/authorized_keys.d/ignition"]
	assert.Equal(t, "ssh-ed25519 A a\nssh-ed25519 B b\n", string(keys.Content))
	assert.Equal(t, []int{0o600, 1000, 1001}, []int{int(keys.Mode), keys.UID, keys.GID})
	assert.Len(t, got, 8, "and the unit itself; all else is the image's")
	assert.Equal(t, []Password{{"core", "$6$hash"}}, s.Passwords)
	assert.Equal(t, []string{
		"file /usr/lib/secret: nothing can be written below /usr of a host",
		"file /var/remote: its content has to be fetched; give it as a data URL",
		"file /var/log/more: it is appended to, which can't be repeated; give it whole",
		"file /var/unowned: the host has no user nemo",
		"file /var/home/core/link/x: a link that is not root's",
		"link /var/hard: it is a hard link; use a symbolic one",
		"user nemo: the host does not have it; make it in the Containerfile",
		`SSH keys of user bin: its home "/usr/bin" can't be used: nothing can be written there`,
		`SSH keys of user guest: its home "/" can't be used: nothing can be written there`,
		"group divers: the host does not have it; make it in the Containerfile",
	}, s.Left)
}

func TestOfSortsFoldersBeforeTheirContent(t *testing.T) {
	t.Parallel()
	cfg := &machineconfigs.Config{}
	cfg.Ignition.Storage.Files = []types.File{file("/var/a/b/c", "1"), file("/var/a-b", "2")}
	seen := map[string]bool{"/": true}
	for _, i := range Of(cfg, people, atHome).Items {
		parent := i.Path[:strings.LastIndex(i.Path, "/")]
		require.True(t, parent == "" || seen[parent], i.Path)
		seen[i.Path] = true
	}
	assert.True(t, seen["/var/a/b/c"])
}

func TestPlan(t *testing.T) {
	t.Parallel()
	item := func(path, text string) Item { return newFile(path, []byte(text)) }
	state := func(items ...Item) State { return State{Items: items} }
	has := func(items ...Item) Facts {
		f := Facts{Entries: map[string]Entry{}, Passwords: map[string]string{"core": "old"}}
		for _, i := range items {
			f.Entries[i.Path] = i.Entry
		}
		return f
	}
	was := func(paths ...string) Record {
		r := Record{Entries: map[string]Entry{}}
		for _, p := range paths {
			r.Entries[p] = Entry{}
		}
		return r
	}
	folder := Item{Path: "/var/d", Entry: Entry{Kind: Directory, Mode: 0o755}, Loose: true}
	private := Item{Path: "/var/d", Entry: Entry{Kind: Directory, Mode: 0o700}}
	hash := func(h string) State { return State{Passwords: []Password{{"core", h}}} }
	tests := map[string]struct {
		current, desired State
		record           Record
		has              Facts
		want             []string
	}{
		"nothing where all is there":          {desired: state(item("/var/a", "1")), has: has(item("/var/a", "1"))},
		"writes what is missing":              {desired: state(folder, item("/var/d/a", "1")), want: []string{"write /var/d", "write /var/d/a"}},
		"writes what has other content":       {desired: state(item("/var/a", "1")), has: has(item("/var/a", "2")), want: []string{"write /var/a"}},
		"leaves a folder that will do":        {desired: state(folder), has: has(private)},
		"changes a folder that will not":      {desired: state(private), has: has(folder), want: []string{"write /var/d"}},
		"restores what is wanted no more":     {current: state(item("/var/a", "1")), record: was("/var/a"), has: has(item("/var/a", "1")), want: []string{"restore /var/a"}},
		"restores from the depth upwards":     {record: was("/var/d", "/var/d/a"), want: []string{"restore /var/d/a", "restore /var/d"}},
		"removes what Ignition wrote":         {current: state(item("/var/a", "1")), has: has(item("/var/a", "1")), want: []string{"remove /var/a"}},
		"leaves what was changed since":       {current: state(item("/var/a", "1")), has: has(item("/var/a", "2"))},
		"leaves folders that it did not make": {current: state(folder), has: has(folder)},
		"writes before it restores":           {desired: state(item("/var/z", "1")), record: was("/var/a"), want: []string{"write /var/z", "restore /var/a"}},
		"makes way for a folder": {
			current: state(item("/var/d", "1")), desired: state(folder, item("/var/d/a", "1")), record: was("/var/d"), has: has(item("/var/d", "1")),
			want: []string{"remove /var/d", "write /var/d", "write /var/d/a"},
		},
		"makes way for a file": {
			current: state(folder, item("/var/d/a", "1")), desired: state(item("/var/d", "1")), record: was("/var/d", "/var/d/a", "/var/z"),
			has: has(folder, item("/var/d/a", "1")), want: []string{"restore /var/d/a", "remove /var/d", "write /var/d", "restore /var/z"},
		},
		"takes no file of others out of the way":   {desired: state(folder), has: has(item("/var/d", "1")), want: []string{"write /var/d"}},
		"takes no folder of others out of the way": {desired: state(item("/var/d", "1")), has: has(folder), want: []string{"write /var/d"}},
		"leaves a file in the place of a folder":   {current: state(folder), record: was("/var/d"), has: has(item("/var/d", "1")), want: []string{"leave /var/d"}},
		"sets a password":                          {desired: hash("new"), has: has(), want: []string{"set the password of core"}},
		"leaves a password that is right":          {desired: hash("old"), has: has()},
		"restores a password":                      {current: hash("new"), record: Record{Passwords: map[string]string{"core": "old"}}, want: []string{"restore the password of core"}},
		"keeps a password that it has changed":     {desired: hash("old"), record: Record{Passwords: map[string]string{"core": "!"}}, has: has()},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var got []string
			for _, c := range Plan(tt.current, tt.desired, tt.record, tt.has) {
				got = append(got, c.String())
			}
			assert.Equal(t, tt.want, got)
		})
	}
}

func TestChangesHideSecrets(t *testing.T) {
	t.Parallel()
	c := Change{Action: SetPassword, Password: Password{User: "core", Hash: "$6$secret"}}
	assert.Equal(t, "set the password of core", c.String())
}

func TestWithHash(t *testing.T) {
	t.Parallel()
	tests := map[string]struct{ shadow, want string }{
		"in its line": {"root:*:1:0:::::\ncore:old:2:0:99999:7:::\nx:!::\n", "root:*:1:0:::::\ncore:new:2:0:99999:7:::\nx:!::\n"},
		"a new line":  {"root:*:1:0:::::", "root:*:1:0:::::\ncore:new:::::::\n"},
		"empty":       {"", "core:new:::::::\n"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := withHash([]byte(tt.shadow), "core", "new")
			require.NoError(t, err)
			assert.Equal(t, tt.want, string(got))
		})
	}
	for _, hash := range []string{"a:b", "a\nroot::0"} {
		_, err := withHash(nil, "core", hash)
		require.ErrorContains(t, err, `user "core"`)
		assert.NotContains(t, err.Error(), hash)
	}
}

func FuzzWithHash(f *testing.F) {
	f.Add([]byte("root:*:1:0:::::\ncore:old:2:0:99999:7:::\n"), "core", "$6$x")
	f.Add([]byte("core"), "core", "!")
	f.Fuzz(func(t *testing.T, shadow []byte, user, hash string) {
		got, err := withHash(shadow, user, hash)
		if err != nil || user == "" || strings.TrimSpace(hash) != hash {
			return
		}
		set, has := hashOf(got, user)
		if first, had := hashOf(shadow, user); had && !strings.Contains(string(shadow), user+":"+first+":") {
			return // a line without a second field stays as it is
		}
		require.True(t, has)
		require.Equal(t, hash, set)
	})
}

func TestDiffering(t *testing.T) {
	t.Parallel()
	at := func(path string, kind Kind, sum string) Item {
		return Item{Path: path, Entry: Entry{Kind: kind, Sum: sum}}
	}
	before := State{Items: []Item{at("/var/d", Directory, ""), at("/var/d/gone", File, "1"), at("/var/d/new", File, "1"), at("/var/d/same", File, "1"), at("/var/f", Directory, "")}}
	after := State{Items: []Item{at("/var/a", Link, ""), at("/var/d/new", File, "2"), at("/var/d/same", File, "1"), at("/var/e", Directory, ""), at("/var/f", File, "1")}}
	assert.Equal(t, []string{"/var/a", "/var/d/gone", "/var/d/new", "/var/f"}, Differing(before, after))
	assert.Empty(t, Differing(before, before))
}
