package nodestate

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/layerwright/layerwright/machineconfigs"
)

// Folder is where, on the host, everything is that was there before.
const Folder = "/var/lib/layerwright/agent"

const (
	shadowPath = "/etc/shadow"
	// shadowLock is what programs lock that change /etc/shadow (lckpwdf(3)).
	shadowLock = "/etc/.pwd.lock"
)

// Host is one host's node state. It is for one caller at a time.
type Host struct {
	tree tree
	// name tells what was written for one purpose from what was written for another.
	name string
	// compared are the last two deployments that were compared, whose files never change.
	compared comparison
	// boot is what Linux calls this boot of the host.
	boot string
}

// Open gives access to the host whose root is mounted in a folder.
func Open(root string) *Host { return &Host{tree: tree{root: path.Clean(root)}, name: "nodestate"} }

// HasFIPS reports whether the host's kernel runs in FIPS mode.
func (h *Host) HasFIPS() (bool, error) {
	content, err := h.tree.read("/proc/sys/crypto/fips_enabled")
	if err != nil {
		return false, fmt.Errorf("reading whether the host is in FIPS mode: %w", err)
	}
	return strings.TrimSpace(string(content)) == "1", nil
}

// Of says what a configuration wants of this host.
func (h *Host) Of(cfg *machineconfigs.Config) (State, error) {
	var passwd, group [][]byte
	for file, list := range map[string]*[][]byte{"passwd": &passwd, "group": &group} {
		for _, dir := range []string{"/etc", "/usr/lib"} { // the latter has those of images (nss-altfiles)
			content, err := h.tree.read(path.Join(dir, file))
			if err != nil {
				return State{}, fmt.Errorf("reading the accounts of the host: %w", err)
			}
			*list = append(*list, content)
		}
	}
	return Of(cfg, ParseAccounts(passwd, group), h.tree.resolve), nil
}

// Plan says how the host gets from the current state, which may be empty, to the desired one. It
// changes nothing.
func (h *Host) Plan(current, desired State) ([]Change, error) {
	record, err := h.record()
	if err != nil {
		return nil, err
	}
	has := Facts{Entries: map[string]Entry{}, Passwords: map[string]string{}}
	for _, list := range [][]Item{current.Items, desired.Items} {
		for _, i := range list {
			if has.Entries[i.Path], err = h.tree.look(i.Path); err != nil {
				return nil, fmt.Errorf("looking at the host: %w", err)
			}
		}
	}
	if len(desired.Passwords) > 0 {
		shadow, err := h.tree.read(shadowPath)
		if err != nil {
			return nil, fmt.Errorf("looking at the host: %w", err)
		}
		for _, p := range desired.Passwords {
			has.Passwords[p.User], _ = hashOf(shadow, p.User)
		}
	}
	return Plan(current, desired, record, has), nil
}

// Apply makes changes, in their order. It may be ended between any two steps of it, and repeated.
func (h *Host) Apply(changes []Change) error {
	record, err := h.record()
	if err != nil {
		return err
	}
	for _, c := range changes {
		if err := h.apply(&record, c); err != nil {
			return fmt.Errorf("node state: %s: %w", c, explained(err))
		}
	}
	return nil
}

// explained says what an error of the kernel means to root, which may do all else.
func explained(err error) error {
	switch {
	case errors.Is(err, unix.EPERM):
		return fmt.Errorf("the file or its folder is immutable (lsattr -d shows it): remove the attribute with chattr -i: %w", err)
	case errors.Is(err, unix.EROFS):
		return fmt.Errorf("its file system is mounted read-only: %w", err)
	default:
		return err
	}
}

// Revert brings back everything that was there before the first Apply.
func (h *Host) Revert() error {
	record, err := h.record()
	if err != nil {
		return err
	}
	return h.Apply(Plan(State{}, State{}, record, Facts{}))
}

func (h *Host) apply(record *Record, c Change) error {
	switch c.Action {
	case Write:
		if err := h.remember(record, c.Item); err != nil {
			return err
		}
		return h.tree.write(c.Item)
	case Remove:
		return h.tree.remove(c.Item.Path)
	case Restore:
		return h.restore(record, c.Item.Path)
	case Leave:
		return h.forget(record, c.Item.Path)
	case SetPassword:
		return h.setPassword(record, c.Password)
	case RestorePassword:
		return h.restorePassword(record, c.Password.User)
	default:
		return fmt.Errorf("%q is no action", c.Action)
	}
}

// remember keeps what is in the place of an item, unless it was kept before: then what is there is
// ours. What has to be removed by a person does not come back.
func (h *Host) remember(record *Record, i Item) error {
	at := i.Path
	if _, known := record.Entries[at]; known {
		return nil
	}
	was, err := h.tree.look(at)
	if err == nil {
		err = replaceable(was, i)
	}
	if err != nil {
		return err
	}
	if was.Kind == File {
		content, err := h.tree.read(at)
		if err != nil {
			return err
		}
		if err := h.keep(h.kept(at), content); err != nil {
			return err
		}
	}
	if record.Entries == nil {
		record.Entries = map[string]Entry{}
	}
	record.Entries[at] = was
	return h.store(record)
}

// restore brings back what was at a path, and forgets it.
func (h *Host) restore(record *Record, at string) error {
	was := Item{Path: at, Entry: record.Entries[at]}
	if was.Kind == Missing {
		if err := h.tree.remove(at); err != nil {
			return err
		}
		return h.forget(record, at)
	}
	if was.Kind == File {
		var err error
		if was.Content, err = h.tree.read(h.kept(at)); err != nil {
			return err
		}
		if sum(was.Content) != was.Sum {
			return fmt.Errorf("what was there before is not in %s any more", h.kept(at))
		}
	}
	has, err := h.tree.look(at)
	if err == nil && has.Kind == Directory && was.Kind != Directory {
		err = h.tree.remove(at) // unless there is something in it
	}
	if err != nil {
		return err
	}
	if err := h.tree.write(was); err != nil {
		return err
	}
	return h.forget(record, at)
}

func (h *Host) forget(record *Record, at string) error {
	delete(record.Entries, at)
	return errors.Join(h.store(record), h.tree.remove(h.kept(at)))
}

func (h *Host) setPassword(record *Record, p Password) error {
	return h.changeShadow(func(shadow []byte) ([]byte, error) {
		if _, known := record.Passwords[p.User]; !known {
			if record.Passwords == nil {
				record.Passwords = map[string]string{}
			}
			was, has := hashOf(shadow, p.User)
			if !has {
				was = "*" // as good as no line: no one can log in by it
			}
			record.Passwords[p.User] = was
			if err := h.store(record); err != nil {
				return nil, err
			}
		}
		return withHash(shadow, p.User, p.Hash)
	})
}

func (h *Host) restorePassword(record *Record, user string) error {
	err := h.changeShadow(func(shadow []byte) ([]byte, error) {
		return withHash(shadow, user, record.Passwords[user])
	})
	if err != nil {
		return err
	}
	delete(record.Passwords, user)
	return h.store(record)
}

// changeShadow replaces /etc/shadow, while no other program changes it.
func (h *Host) changeShadow(change func([]byte) ([]byte, error)) error {
	dir, err := h.tree.folder(shadowLock)
	if err != nil {
		return err
	}
	defer func() { _ = dir.Close() }()
	lock, err := dir.OpenFile(path.Base(shadowLock), os.O_WRONLY|os.O_CREATE, privateFile)
	if err != nil {
		return err
	}
	defer func() { _ = lock.Close() }() // which unlocks it
	if err := unix.FcntlFlock(lock.Fd(), unix.F_SETLK, &unix.Flock_t{Type: unix.F_WRLCK}); err != nil {
		return fmt.Errorf("another program changes accounts of the host: locking %s: %w", shadowLock, err)
	}
	was, err := h.tree.look(shadowPath)
	if err != nil {
		return err
	}
	if was.Kind != File {
		return fmt.Errorf("the host has no file %s", shadowPath)
	}
	content, err := h.tree.read(shadowPath)
	if err != nil {
		return err
	}
	if content, err = change(content); err != nil {
		return err
	}
	return h.tree.write(Item{Path: shadowPath, Entry: was, Content: content})
}

func (h *Host) recordPath() string { return path.Join(Folder, h.name+".json") }

// kept is where the content of a file is that was replaced.
func (h *Host) kept(at string) string { return path.Join(Folder, h.name, sum([]byte(at))) }

func (h *Host) record() (Record, error) {
	var record Record
	err := h.load(&record)
	return record, err
}

// load reads the record, if there is one.
func (h *Host) load(record any) error {
	content, err := h.tree.read(h.recordPath())
	if err != nil {
		return fmt.Errorf("reading what was on the host before: %w", err)
	}
	if content == nil {
		return nil
	}
	if err := json.Unmarshal(content, record); err != nil {
		return fmt.Errorf("reading what was on the host before: %s: %w", h.recordPath(), err)
	}
	return nil
}

func (h *Host) store(record *Record) error { return h.save(record) }

// save replaces the record.
func (h *Host) save(record any) error {
	content, err := json.Marshal(record)
	if err != nil {
		return err
	}
	return h.keep(h.recordPath(), content)
}

// keep writes a file below Folder, which root alone may read.
func (h *Host) keep(at string, content []byte) error {
	for _, dir := range []string{path.Dir(Folder), Folder, path.Dir(at)} {
		was, err := h.tree.look(dir)
		if err != nil {
			return err
		}
		if was.Kind == Missing {
			if err := h.tree.write(mine(Item{Path: dir, Entry: Entry{Kind: Directory, Mode: privateDirectory}})); err != nil {
				return err
			}
		}
	}
	i := newFile(at, content)
	i.Mode = privateFile
	return h.tree.write(mine(i))
}

// mine makes an item this process's own: root's.
func mine(i Item) Item {
	i.UID, i.GID = os.Geteuid(), os.Getegid()
	return i
}
