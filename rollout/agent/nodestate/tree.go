package nodestate

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// maxLinks is how many links a path may lead through, as Linux allows.
const maxLinks = 40

// maxFile is the size of files that are compared: configurations have none that are larger.
const maxFile = 64 << 20

// tree is the files of a host, whose root is mounted in a folder. Users of the host may change what
// is below their homes at any moment: nothing follows a link that they made.
type tree struct {
	root string
	// before is asked before each change, if it is there: a test ends there what a kill would end.
	before func(at string) error
	// labels may be nil.
	labels Labels
}

func (t tree) beforeChange(at string) error {
	if t.before == nil {
		return nil
	}
	return t.before(at)
}

// resolve is the path without links that a path leads to. Only links of the root's owner are
// followed, such as /home on hosts where that is /var/home; the last part may be missing, and so
// may its parents.
func (t tree) resolve(written string) (string, error) {
	if !path.IsAbs(written) {
		return "", fmt.Errorf("the path %q is not absolute", written)
	}
	owner, err := ownerOf(t.root)
	if err != nil {
		return "", err
	}
	at, rest := "/", strings.Split(path.Clean(written), "/")
	for links := 0; len(rest) > 0; {
		name := rest[0]
		rest = rest[1:]
		switch name {
		case "", ".":
			continue
		case "..":
			at = path.Dir(at)
			continue
		}
		next := path.Join(at, name)
		if len(rest) == 0 {
			return next, nil // what is there is replaced, and not followed
		}
		target, err := os.Readlink(t.root + next)
		if err != nil {
			at = next // a folder, or nothing yet
			continue
		}
		if links++; links > maxLinks {
			return "", fmt.Errorf("%s leads through too many links", written)
		}
		if by, err := ownerOf(t.root + next); err != nil || by != owner {
			return "", fmt.Errorf("%s leads through the link %s, which is not root's", written, next)
		}
		if path.IsAbs(target) {
			at = "/"
		}
		rest = append(strings.Split(target, "/"), rest...)
	}
	return at, nil
}

func ownerOf(name string) (uint32, error) {
	info, err := os.Lstat(name)
	if err != nil {
		return 0, err
	}
	return info.Sys().(*syscall.Stat_t).Uid, nil
}

// folder opens the folder of a path that leads through no link. Whatever is done in it afterwards
// is done in this folder, though others may rename it.
func (t tree) folder(at string) (*os.Root, error) {
	root, err := os.Open(t.root)
	if err != nil {
		return nil, err
	}
	defer func() { _ = root.Close() }()
	dir := strings.TrimPrefix(path.Dir(at), "/")
	if dir == "" {
		dir = "."
	}
	how := unix.OpenHow{
		Flags:   unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS,
	}
	fd, err := unix.Openat2(int(root.Fd()), dir, &how)
	if err != nil {
		return nil, t.inTheWay(path.Dir(at), err)
	}
	defer func() { _ = unix.Close(fd) }()
	return os.OpenRoot(fmt.Sprintf("/proc/self/fd/%d", fd))
}

// inTheWay is the error of a folder that can't be opened. It names the first part of the path that
// is no folder.
func (t tree) inTheWay(dir string, err error) error {
	at := ""
	for part := range strings.SplitSeq(strings.Trim(dir, "/"), "/") {
		at += "/" + part
		info, errLook := os.Lstat(t.root + at)
		if errLook != nil || info.IsDir() {
			continue
		}
		kind := File
		if info.Mode()&fs.ModeSymlink != 0 {
			kind = Link
		}
		return fmt.Errorf("%s is a %s, and no directory: remove it: %w", at, kind, err)
	}
	return &fs.PathError{Op: "open", Path: dir, Err: err}
}

// isNothing reports whether an error means that there is nothing at a path: no folder, or something
// else in its place.
func isNothing(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP)
}

// look is what a path has. It leads through no link: behind one, or below a file, there is nothing.
func (t tree) look(at string) (Entry, error) {
	dir, err := t.folder(at)
	if isNothing(err) {
		return Entry{}, nil
	}
	if err != nil {
		return Entry{}, err
	}
	defer func() { _ = dir.Close() }()
	return look(dir, path.Base(at))
}

func look(dir *os.Root, name string) (Entry, error) {
	info, err := dir.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return Entry{}, nil
	}
	if err != nil {
		return Entry{}, err
	}
	s := info.Sys().(*syscall.Stat_t)
	e := Entry{Mode: s.Mode & 0o7777, UID: int(s.Uid), GID: int(s.Gid)}
	switch {
	case info.Mode().IsRegular():
		e.Kind = File
		e.Sum, err = sumOf(dir, name)
	case info.IsDir():
		e.Kind = Directory
	case info.Mode()&fs.ModeSymlink != 0:
		e.Kind, e.Mode = Link, 0
		e.Target, err = dir.Readlink(name)
	default:
		e.Kind = Special
	}
	return e, err
}

// open opens what is in a folder itself, never what a link leads to, and waits for no one.
func open(dir *os.Root, name string) (*os.File, error) {
	there, err := dir.Lstat(name)
	if err != nil {
		return nil, err
	}
	if !there.Mode().IsRegular() && !there.IsDir() {
		return nil, fmt.Errorf("%s is neither a file nor a folder", name)
	}
	f, err := dir.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	if info, err := f.Stat(); err != nil || !os.SameFile(there, info) {
		return nil, errors.Join(fmt.Errorf("%s was replaced meanwhile", name), err, f.Close())
	}
	return f, nil
}

func sumOf(dir *os.Root, name string) (string, error) {
	f, err := open(dir, name)
	if err != nil {
		return "", err
	}
	defer func() { _ = f.Close() }()
	s := sha256.New()
	if _, err := io.Copy(s, io.LimitReader(f, maxFile+1)); err != nil {
		return "", err
	}
	return hex.EncodeToString(s.Sum(nil)), nil
}

// read is the content of a file; nil where there is none.
func (t tree) read(at string) ([]byte, error) {
	dir, err := t.folder(at)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer func() { _ = dir.Close() }()
	f, err := open(dir, path.Base(at))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	content, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err == nil && len(content) > maxFile {
		err = fmt.Errorf("%s is larger than %d MiB", at, maxFile>>20)
	}
	return content, err
}
