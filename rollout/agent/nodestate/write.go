package nodestate

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"syscall"

	"golang.org/x/sys/unix"
)

// write makes a path what it should be, in one step that lasts. It leads through no link.
func (t tree) write(i Item) error {
	if err := t.beforeChange(i.Path); err != nil {
		return err
	}
	dir, err := t.folder(i.Path)
	if err != nil {
		return err
	}
	defer func() { _ = dir.Close() }()
	name := path.Base(i.Path)
	has, err := look(dir, name)
	if err != nil {
		return err
	}
	if err := replaceable(has, i); err != nil {
		return err
	}
	switch {
	case i.Kind == File:
		err = replace(dir, name, func(next string) error { return t.writeFile(dir, next, i, has) })
	case i.Kind == Link:
		err = replace(dir, name, func(next string) error {
			return errors.Join(dir.Symlink(i.Target, next), ownLink(dir, next, i.Entry))
		})
	case i.Kind == Directory && has.Kind == Missing:
		err = replace(dir, name, func(next string) error { return t.makeDirectory(dir, next, i) })
	case i.Kind == Directory:
		err = change(dir, name, func(f *os.File) error { return own(f, i.Entry) })
	default:
		return fmt.Errorf("%s can't become a %q", i.Path, i.Kind)
	}
	if err != nil {
		return err
	}
	return syncFolder(dir)
}

// replaceable refuses what an item can't take the place of.
func replaceable(has Entry, i Item) error {
	switch {
	case has.Kind == Special, has.Kind == Directory && i.Kind != Directory:
		return fmt.Errorf("%s is a %s: remove it", i.Path, has.Kind)
	case isOtherKind(has, i):
		return fmt.Errorf("%s is a %s, and no directory: remove it", i.Path, has.Kind)
	}
	return nil
}

// replace puts what is made under another name in the place of what is there.
func replace(dir *os.Root, name string, write func(next string) error) error {
	next := ".layerwright-" + sum([]byte(name))[:16]
	if err := dir.Remove(next); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err // what a process that was killed has left
	}
	err := write(next)
	if err == nil {
		err = dir.Rename(next, name)
	}
	if err != nil {
		_ = dir.Remove(next)
	}
	return err
}

// writeFile writes a new file. It gets the label of the file that it takes the place of, or that of
// the policy: that of its folder, which new files get, may be another.
func (t tree) writeFile(dir *os.Root, next string, i Item, was Entry) error {
	f, err := dir.OpenFile(next, os.O_WRONLY|os.O_CREATE|os.O_EXCL, privateFile)
	if err != nil {
		return err
	}
	_, err = f.Write(i.Content)
	if was.Kind == File {
		err = errors.Join(err, copyLabel(dir, path.Base(i.Path), f))
	} else {
		err = errors.Join(err, t.label(f, i.Path, File))
	}
	return errors.Join(err, own(f, i.Entry), f.Sync(), f.Close())
}

// own sets owner and mode. The owner comes first, because the kernel then drops setuid.
func own(f *os.File, e Entry) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if !isOwned(info, e) {
		if err := f.Chown(e.UID, e.GID); err != nil {
			return err
		}
	}
	return unix.Fchmod(int(f.Fd()), e.Mode)
}

func ownLink(dir *os.Root, name string, e Entry) error {
	info, err := dir.Lstat(name)
	if err != nil || isOwned(info, e) {
		return err
	}
	return dir.Lchown(name, e.UID, e.GID)
}

func isOwned(info fs.FileInfo, e Entry) bool {
	s := info.Sys().(*syscall.Stat_t)
	return int(s.Uid) == e.UID && int(s.Gid) == e.GID
}

// makeDirectory makes a folder, which is not there before it is whole.
func (t tree) makeDirectory(dir *os.Root, next string, i Item) error {
	if err := dir.Mkdir(next, privateDirectory); err != nil {
		return err
	}
	return change(dir, next, func(f *os.File) error {
		return errors.Join(t.label(f, i.Path, Directory), own(f, i.Entry))
	})
}

// change changes what is in a folder, and makes that last.
func change(dir *os.Root, name string, how func(*os.File) error) error {
	f, err := open(dir, name)
	if err != nil {
		return err
	}
	return errors.Join(how(f), f.Sync(), f.Close())
}

// remove removes what is at a path. A folder stays while others have something in it.
func (t tree) remove(at string) error {
	if err := t.beforeChange(at); err != nil {
		return err
	}
	dir, err := t.folder(at)
	if isNothing(err) {
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { _ = dir.Close() }()
	err = dir.Remove(path.Base(at))
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.ENOTEMPTY):
		return nil
	case err != nil:
		return err
	}
	return syncFolder(dir)
}

// syncFolder makes the names in a folder last.
func syncFolder(dir *os.Root) error {
	d, err := dir.Open(".")
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
