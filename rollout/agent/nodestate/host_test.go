package nodestate

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/coreos/ignition/v2/config/v3_5/types"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/layerwright/layerwright/machineconfigs"
	"github.com/layerwright/layerwright/trust/signaturepolicy"
)

// newHost makes the root of a host. Everything belongs to who runs the test.
func newHost(t *testing.T) (string, *Host) {
	t.Helper()
	root := t.TempDir()
	for _, dir := range []string{"etc/containers", "usr/etc/containers", "usr/lib", "var/home/core", "var/lib", "run"} {
		require.NoError(t, os.MkdirAll(filepath.Join(root, dir), 0o755))
	}
	require.NoError(t, os.Symlink("var/home", filepath.Join(root, "home")))
	put(t, root, "/etc/passwd", fmt.Sprintf("core:x:%d:%d::/home/core:/bin/bash\n", os.Getuid(), os.Getgid()))
	put(t, root, "/etc/group", "")
	put(t, root, "/etc/shadow", "root:*:1::::::\ncore:old:1::::::\n")
	put(t, root, "/var/there", "before")
	return root, Open(root)
}

func put(t *testing.T, root, at, text string) {
	t.Helper()
	require.NoError(t, os.MkdirAll(filepath.Dir(root+at), 0o755))
	require.NoError(t, os.WriteFile(root+at, []byte(text), 0o644))
}

func get(t *testing.T, root, at string) string {
	t.Helper()
	content, err := os.ReadFile(root + at)
	require.NoError(t, err)
	return string(content)
}

// own makes what a configuration writes belong to who runs the test.
func ownNode(path string) types.Node {
	return types.Node{Path: path, User: types.NodeUser{ID: new(os.Getuid())}, Group: types.NodeGroup{ID: new(os.Getgid())}}
}

func ownFile(path, text string) types.File {
	f := file(path, text)
	f.Node = ownNode(path)
	return f
}

func configuration() *machineconfigs.Config {
	cfg := &machineconfigs.Config{NodeOnly: machineconfigs.NodeOnly{Files: []string{"/etc/secret"}}}
	cfg.Ignition.Storage.Directories = []types.Directory{{Node: ownNode("/var/d/e"), DirectoryEmbedded1: types.DirectoryEmbedded1{Mode: new(0o750)}}}
	cfg.Ignition.Storage.Files = []types.File{ownFile("/var/there", "after"), ownFile("/var/d/e/new", "1"), ownFile("/etc/secret", "hush")}
	cfg.Ignition.Storage.Links = []types.Link{{Node: ownNode("/var/latest"), LinkEmbedded1: types.LinkEmbedded1{Target: new("d/e")}}}
	cfg.Ignition.Passwd.Users = []types.PasswdUser{{Name: "core", SSHAuthorizedKeys: []types.SSHAuthorizedKey{"ssh-ed25519 A"}, PasswordHash: new("$6$new")}}
	return cfg
}

// owned makes the folders that are needed by others belong to who runs the test.
func owned(s State) State {
	for n := range s.Items {
		s.Items[n] = mine(s.Items[n])
	}
	return s
}

func apply(h *Host, current, desired *machineconfigs.Config) error {
	from, err := h.Of(current)
	if err != nil {
		return err
	}
	to, err := h.Of(desired)
	if err != nil {
		return err
	}
	changes, err := h.Plan(owned(from), owned(to))
	if err != nil {
		return err
	}
	return h.Apply(changes)
}

// snapshot is everything that a host has, but for what is kept for Revert.
func snapshot(t *testing.T, root string) map[string]string {
	t.Helper()
	out := map[string]string{}
	require.NoError(t, filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		at := strings.TrimPrefix(name, root)
		if err != nil {
			return err
		}
		if at == filepath.Dir(Folder) || at == shadowLock {
			if d.IsDir() {
				return filepath.SkipDir
			}
			return nil
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		what := info.Mode().String()
		switch {
		case info.Mode().IsRegular():
			what += " " + get(t, root, at)
		case info.Mode()&fs.ModeSymlink != 0:
			target, err := os.Readlink(name)
			require.NoError(t, err)
			what += " " + target
		}
		out[at] = what
		return nil
	}))
	return out
}

func TestApplyAndRevert(t *testing.T) {
	t.Parallel()
	root, h := newHost(t)
	before := snapshot(t, root)
	none := &machineconfigs.Config{}
	require.NoError(t, apply(h, none, configuration()))
	assert.Equal(t, "after", get(t, root, "/var/there"))
	assert.Equal(t, "1", get(t, root, "/var/latest/new"))
	assert.Equal(t, "hush", get(t, root, "/etc/secret"))
	assert.Equal(t, "ssh-ed25519 A\n", get(t, root, "/var/home/core/.ssh/authorized_keys.d/ignition"))
	assert.Equal(t, "root:*:1::::::\ncore:$6$new:1::::::\n", get(t, root, "/etc/shadow"))

	wanted, err := h.Of(configuration())
	require.NoError(t, err)
	changes, err := h.Plan(State{}, owned(wanted))
	require.NoError(t, err)
	assert.Empty(t, changes, "it is all there")

	less := configuration()
	less.Ignition.Storage.Files, less.Ignition.Passwd = less.Ignition.Storage.Files[:2], types.Passwd{}
	require.NoError(t, apply(h, configuration(), less))
	assert.NoFileExists(t, root+"/etc/secret")
	assert.NoDirExists(t, root+"/var/home/core/.ssh")
	assert.Contains(t, get(t, root, "/etc/shadow"), "core:old:")

	require.NoError(t, h.Revert())
	assert.Equal(t, before, snapshot(t, root))
	require.NoError(t, h.Revert(), "it can be repeated")
}

func TestKilledAtEveryStep(t *testing.T) {
	t.Parallel()
	errKilled := errors.New("killed")
	none := &machineconfigs.Config{}
	killedAfter := func(h *Host, steps int) *Host {
		h.tree.before = func(string) error {
			if steps--; steps < 0 {
				return errKilled
			}
			return nil
		}
		return h
	}
	kills := 0
	for step := 0; ; step++ {
		root, h := newHost(t)
		before := snapshot(t, root)
		first := apply(killedAfter(h, step), none, configuration())
		require.NoError(t, apply(Open(root), none, configuration()), "after step %d", step)
		assert.Equal(t, "after", get(t, root, "/var/there"))
		second := killedAfter(Open(root), step).Revert()
		require.NoError(t, Open(root).Revert(), "after step %d", step)
		require.Equal(t, before, snapshot(t, root), "after step %d", step)
		if first == nil && second == nil {
			break
		}
		for _, err := range []error{first, second} {
			if err != nil {
				require.ErrorIs(t, err, errKilled)
				kills++
			}
		}
	}
	assert.Greater(t, kills, 30, "so many moments were tried")
}

func TestForeignLinksAreNotFollowed(t *testing.T) {
	t.Parallel()
	t.Run("a link in place of a folder is refused", func(t *testing.T) {
		t.Parallel()
		root, h := newHost(t)
		require.NoError(t, os.MkdirAll(root+"/etc/victim", 0o755))
		require.NoError(t, os.Symlink("/etc/victim", root+"/var/home/core/.ssh"))
		require.Error(t, apply(h, &machineconfigs.Config{}, configuration()))
		left, err := os.ReadDir(root + "/etc/victim")
		require.NoError(t, err)
		assert.Empty(t, left)
	})
	t.Run("a link in place of a file is replaced", func(t *testing.T) {
		t.Parallel()
		root, h := newHost(t)
		require.NoError(t, os.Remove(root+"/var/there"))
		put(t, root, "/etc/victim", "safe")
		require.NoError(t, os.Symlink("/etc/victim", root+"/var/there"))
		require.NoError(t, apply(h, &machineconfigs.Config{}, configuration()))
		assert.Equal(t, "safe", get(t, root, "/etc/victim"))
		assert.Equal(t, "after", get(t, root, "/var/there"))
	})
	t.Run("no link leads out of the root", func(t *testing.T) {
		t.Parallel()
		root, h := newHost(t)
		outside := t.TempDir()
		require.NoError(t, os.Symlink(outside, root+"/var/d"))
		require.NoError(t, apply(h, &machineconfigs.Config{}, configuration()))
		left, err := os.ReadDir(outside)
		require.NoError(t, err)
		assert.Empty(t, left)
	})
	t.Run("a device is not replaced", func(t *testing.T) {
		t.Parallel()
		root, h := newHost(t)
		require.NoError(t, os.Remove(root+"/var/there"))
		require.NoError(t, unix.Mkfifo(root+"/var/there", 0o600))
		require.ErrorContains(t, apply(h, &machineconfigs.Config{}, configuration()), "/var/there is a special: remove it")
	})
}

// TestWhatIsInTheWay names it, and goes on once it is gone.
func TestWhatIsInTheWay(t *testing.T) {
	t.Parallel()
	wants := &machineconfigs.Config{}
	wants.Ignition.Storage.Files = []types.File{ownFile("/var/d/e/new", "1")}
	none := &machineconfigs.Config{}
	t.Run("a file of others above a path", func(t *testing.T) {
		t.Parallel()
		root, h := newHost(t)
		put(t, root, "/var/d", "a file of others")
		require.ErrorContains(t, apply(h, none, wants), "/var/d is a file, and no directory: remove it")
		assert.Equal(t, "a file of others", get(t, root, "/var/d"))
		require.NoError(t, os.Remove(root+"/var/d"))
		require.NoError(t, apply(h, none, wants))
		assert.Equal(t, "1", get(t, root, "/var/d/e/new"))

		require.NoError(t, os.RemoveAll(root+"/var/d"))
		put(t, root, "/var/d", "again")
		require.NoError(t, apply(h, wants, none), "there is nothing to remove")
		assert.Equal(t, "again", get(t, root, "/var/d"), "what was in the way does not come back")
	})
	t.Run("a file of others above what comes back", func(t *testing.T) {
		t.Parallel()
		root, h := newHost(t)
		put(t, root, "/var/d/e/new", "before")
		require.NoError(t, apply(h, none, wants))
		require.NoError(t, os.RemoveAll(root+"/var/d"))
		put(t, root, "/var/d", "a file of others")
		require.ErrorContains(t, apply(h, wants, none), "/var/d is a file, and no directory: remove it")
		require.NoError(t, os.Remove(root+"/var/d"))
		require.NoError(t, os.MkdirAll(root+"/var/d/e", 0o755))
		require.NoError(t, apply(h, wants, none))
		assert.Equal(t, "before", get(t, root, "/var/d/e/new"))
	})
	t.Run("a folder of others", func(t *testing.T) {
		t.Parallel()
		root, h := newHost(t)
		require.NoError(t, os.MkdirAll(root+"/var/d/e/new", 0o755))
		require.ErrorContains(t, apply(h, none, wants), "/var/d/e/new is a directory: remove it")
	})
	t.Run("a folder of ours that others use", func(t *testing.T) {
		t.Parallel()
		root, h := newHost(t)
		file := &machineconfigs.Config{}
		file.Ignition.Storage.Files = []types.File{ownFile("/var/d", "file")}
		require.NoError(t, apply(h, none, wants))
		put(t, root, "/var/d/e/other", "data")
		require.ErrorContains(t, apply(h, wants, file), "/var/d is a directory: remove it")
		assert.Equal(t, "data", get(t, root, "/var/d/e/other"))
	})
}

// TestOursMakesWay has a configuration turn a file of the one before into a folder, and back.
func TestOursMakesWay(t *testing.T) {
	t.Parallel()
	none, file, below := &machineconfigs.Config{}, &machineconfigs.Config{}, &machineconfigs.Config{}
	file.Ignition.Storage.Files = []types.File{ownFile("/var/there", "file")}
	below.Ignition.Storage.Files = []types.File{ownFile("/var/there/deep/er", "below")}
	link := &machineconfigs.Config{}
	link.Ignition.Storage.Links = []types.Link{{Node: ownNode("/var/there"), LinkEmbedded1: types.LinkEmbedded1{Target: new("elsewhere")}}}
	root, h := newHost(t)
	before := snapshot(t, root)
	at := none
	for _, next := range []*machineconfigs.Config{file, below, link, file, below, none, file, none} {
		require.NoError(t, apply(h, at, next))
		at = next
		switch next {
		case file:
			assert.Equal(t, "file", get(t, root, "/var/there"))
		case below:
			assert.Equal(t, "below", get(t, root, "/var/there/deep/er"))
		case none:
			assert.Equal(t, before, snapshot(t, root), "what the host had is there again")
		}
	}
}

func TestErrorsOfTheKernelAreExplained(t *testing.T) {
	t.Parallel()
	require.ErrorContains(t, explained(&fs.PathError{Op: "rename", Path: "x", Err: unix.EPERM}), "is immutable")
	require.ErrorContains(t, explained(&fs.PathError{Op: "open", Path: "x", Err: unix.EROFS}), "mounted read-only")
	other := errors.New("x")
	require.Equal(t, other, explained(other))
}

func TestPasswordsNeedTheFileOfHashes(t *testing.T) {
	t.Parallel()
	root, h := newHost(t)
	require.NoError(t, os.Remove(root+"/etc/shadow"))
	require.ErrorContains(t, apply(h, &machineconfigs.Config{}, configuration()), "the host has no file /etc/shadow")
}

func TestPolicyIsLent(t *testing.T) {
	t.Parallel()
	const at = signaturepolicy.PolicyPath
	cfg := &machineconfigs.Config{Name: "rendered-1"}
	cfg.Ignition.Storage.Files = []types.File{file(at, "strict"), file(signaturepolicy.RegistryPath, "sigstore"), file("/etc/other", "1")}
	install := func(t *testing.T) (string, *Host) {
		t.Helper()
		root, h := newHost(t)
		put(t, root, at, "base")
		require.NoError(t, h.InstallTemporaryPolicy(cfg))
		require.NoError(t, h.InstallTemporaryPolicy(cfg), "it can be repeated")
		assert.Equal(t, "strict", get(t, root, at))
		assert.Equal(t, "sigstore", get(t, root, signaturepolicy.RegistryPath))
		assert.NoFileExists(t, root+"/etc/other")
		return root, h
	}
	t.Run("the host gets back what it had", func(t *testing.T) {
		t.Parallel()
		root, h := install(t)
		require.NoError(t, h.RemoveTemporaryPolicy(false, nil))
		assert.Equal(t, "base", get(t, root, at))
		assert.NoFileExists(t, root+signaturepolicy.RegistryPath)
	})
	t.Run("a host that has booted the image gets the image's", func(t *testing.T) {
		t.Parallel()
		root, h := install(t)
		put(t, root, "/usr"+at, "the image's")
		require.NoError(t, h.RemoveTemporaryPolicy(true, nil))
		assert.Equal(t, "the image's", get(t, root, at))
		assert.NoFileExists(t, root+signaturepolicy.RegistryPath, "the image has none")
		require.NoError(t, os.Remove(root+at))
		require.NoError(t, h.RemoveTemporaryPolicy(true, nil), "it can be repeated")
		assert.NoFileExists(t, root+at, "the temporary policy is gone")
	})
	t.Run("it is no drift", func(t *testing.T) {
		t.Parallel()
		root, h := install(t)
		put(t, root, "/usr"+at, "the image's")
		drift, err := h.Drift(cfg, nil)
		require.NoError(t, err)
		assert.Empty(t, drift)
		require.NoError(t, h.RemoveTemporaryPolicy(false, nil))
		drift, err = h.Drift(cfg, nil)
		require.NoError(t, err)
		assert.Equal(t, []string{at + " has other content"}, drift)
	})
	t.Run("a policy that has to be fetched is refused", func(t *testing.T) {
		t.Parallel()
		_, h := newHost(t)
		remote := &machineconfigs.Config{Name: "rendered-1"}
		remote.Ignition.Storage.Files = []types.File{file(at, "")}
		remote.Ignition.Storage.Files[0].Contents.Source = new("https://example.com/policy.json")
		require.ErrorContains(t, h.InstallTemporaryPolicy(remote), `file /etc/containers/policy.json of MachineConfig "rendered-1" has to be in it as a whole`)
	})
}

func TestPullSecretIsGiven(t *testing.T) {
	t.Parallel()
	root, h := newHost(t)
	require.NoError(t, h.GivePullSecret(nil), "a host without one is left alone")
	assert.NoFileExists(t, root+authPath)
	for _, secret := range []string{`{"auths":{}}`, `{"auths":{"a":{}}}`} {
		put(t, root, kubeletAuthPath, secret)
		require.NoError(t, h.GivePullSecret(nil))
		assert.Equal(t, secret, get(t, root, authPath))
	}
	info, err := os.Stat(root + authPath)
	require.NoError(t, err)
	assert.Equal(t, fs.FileMode(0o600), info.Mode())

	put(t, root, "/etc/ostree/auth.json", `{"auths":{"own":{}}}`)
	put(t, root, kubeletAuthPath, `{"auths":{"b":{}}}`)
	require.NoError(t, h.GivePullSecret(nil))
	assert.NoFileExists(t, root+authPath, "it would cover the administrator's")
	require.NoError(t, os.Remove(root+"/etc/ostree/auth.json"))
	require.NoError(t, os.Symlink("../../usr/lib/container-auth.json", root+"/etc/ostree/auth.json"))
	require.NoError(t, h.GivePullSecret(nil))
	assert.NoFileExists(t, root+authPath)
	require.NoError(t, h.GivePullSecret([]byte(`{"auths":{"pool":{}}}`)))
	assert.JSONEq(t, `{"auths":{"pool":{}}}`, get(t, root, authPath))
}

func TestDrift(t *testing.T) {
	t.Parallel()
	root, h := newHost(t)
	cfg := &machineconfigs.Config{}
	for _, name := range []string{"same", "edited", "opened", "removed", "linked", "nodeonly"} {
		cfg.Ignition.Storage.Files = append(cfg.Ignition.Storage.Files, file("/etc/"+name, "whatever the image made of it"))
		put(t, root, "/etc/"+name, "1")
		if name != "nodeonly" {
			put(t, root, "/usr/etc/"+name, "1")
		}
	}
	cfg.Ignition.Storage.Files = append(cfg.Ignition.Storage.Files, file("/var/there", "x"))
	cfg.Ignition.Storage.Links = []types.Link{{Node: types.Node{Path: "/etc/localtime"}}}
	cfg.Ignition.Systemd.Units = []types.Unit{{Name: "a.service", Dropins: []types.Dropin{{Name: "b.conf"}}}}
	put(t, root, "/usr/etc/systemd/system/a.service.d/b.conf", "1")
	require.NoError(t, os.Symlink("UTC", root+"/usr/etc/localtime"))
	require.NoError(t, os.Symlink("CET", root+"/etc/localtime"))
	put(t, root, "/etc/edited", "2")
	require.NoError(t, os.Chmod(root+"/etc/opened", 0o666))
	require.NoError(t, os.Remove(root+"/etc/removed"))
	require.NoError(t, os.Remove(root+"/etc/linked"))
	require.NoError(t, os.Symlink("same", root+"/etc/linked"))

	got, err := h.Drift(cfg, nil)
	require.NoError(t, err)
	assert.Equal(t, []string{
		"/etc/edited has other content", "/etc/linked is a link and not a file", "/etc/localtime leads elsewhere",
		"/etc/opened has mode 0666 and not 0644", "/etc/removed was removed", "/etc/systemd/system/a.service.d/b.conf was removed",
	}, got)
}

// TestKeysOfAHomeThatIsALink has /root as ostree hosts have it.
func TestKeysOfAHomeThatIsALink(t *testing.T) {
	t.Parallel()
	root, h := newHost(t)
	require.NoError(t, os.Mkdir(filepath.Join(root, "var/roothome"), 0o700))
	require.NoError(t, os.Symlink("var/roothome", filepath.Join(root, "root")))
	put(t, root, "/etc/passwd", fmt.Sprintf("root:x:%d:%d::/root:/bin/bash\n", os.Getuid(), os.Getgid()))
	cfg := &machineconfigs.Config{}
	cfg.Ignition.Passwd.Users = []types.PasswdUser{{Name: "root", SSHAuthorizedKeys: []types.SSHAuthorizedKey{"ssh-ed25519 A"}}}
	require.NoError(t, apply(h, &machineconfigs.Config{}, cfg))
	require.Equal(t, "ssh-ed25519 A\n", get(t, root, "/var/roothome/.ssh/authorized_keys.d/ignition"))
}
