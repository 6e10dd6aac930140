package guest

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Entry is a boot loader entry: what to boot.
type Entry struct {
	// Version orders entries: the highest boots.
	Version int
	// Title says what it is.
	Title string
	// Kernel and Initrd are paths below /boot, Options the kernel's command line.
	Kernel, Initrd, Options string
}

// parseEntry reads a file of /boot/loader/entries.
func parseEntry(text []byte) (Entry, error) {
	var e Entry
	lines := bufio.NewScanner(bytes.NewReader(text))
	for lines.Scan() {
		key, value, _ := strings.Cut(lines.Text(), " ")
		value = strings.TrimSpace(value)
		switch key {
		case "version":
			version, err := strconv.Atoi(value)
			if err != nil {
				return e, fmt.Errorf("reading the version of a boot loader entry: %w", err)
			}
			e.Version = version
		case "title":
			e.Title = value
		case "linux":
			e.Kernel = value
		case "initrd":
			e.Initrd = value
		case "options":
			e.Options = value
		}
	}
	if err := lines.Err(); err != nil {
		return e, err
	}
	if e.Kernel == "" || e.Initrd == "" {
		return e, errors.New("reading a boot loader entry: it names no kernel, or no initrd")
	}
	return e, nil
}

// newest is the entry that a boot loader starts.
func newest(entries []Entry) (Entry, error) {
	if len(entries) == 0 {
		return Entry{}, errors.New("the disk has no boot loader entry")
	}
	return slices.MaxFunc(entries, func(a, b Entry) int { return cmp.Compare(a.Version, b.Version) }), nil
}

const entriesDir = "/boot/loader/entries"

// bootFiles copies kernel and initrd of the newest entry out of a disk into a folder. A disk that
// was not unmounted is mended first.
func bootFiles(ctx context.Context, disk, dir string) (Entry, error) {
	if err := replayJournal(ctx, disk); err != nil {
		return Entry{}, err
	}
	list, err := debugfs(ctx, disk, "ls -p "+entriesDir)
	if err != nil {
		return Entry{}, err
	}
	var entries []Entry
	for _, name := range listed(list) {
		if path.Ext(name) != ".conf" {
			continue
		}
		text, err := debugfs(ctx, disk, "cat "+path.Join(entriesDir, name))
		if err != nil {
			return Entry{}, err
		}
		entry, err := parseEntry(text)
		if err != nil {
			return Entry{}, fmt.Errorf("%s: %w", name, err)
		}
		entries = append(entries, entry)
	}
	entry, err := newest(entries)
	if err != nil {
		return entry, err
	}
	for name, from := range map[string]string{"kernel": entry.Kernel, "initrd": entry.Initrd} {
		to := filepath.Join(dir, name)
		if _, err := debugfs(ctx, disk, fmt.Sprintf("dump %q %q", path.Join("/boot", from), to)); err != nil {
			return entry, err
		}
		if info, err := os.Stat(to); err != nil || info.Size() == 0 {
			return entry, errors.Join(fmt.Errorf("the disk has no %s, which its boot loader entry names", path.Join("/boot", from)), err)
		}
	}
	return entry, nil
}

// listed are the names in what debugfs's "ls -p" says: /inode/mode/uid/gid/name/size/.
func listed(list []byte) []string {
	var names []string
	for line := range strings.Lines(string(list)) {
		const name = 5
		if fields := strings.Split(line, "/"); len(fields) > name {
			names = append(names, fields[name])
		}
	}
	return names
}

// debugfs reads an ext4 file system without mounting it.
func debugfs(ctx context.Context, disk, request string) ([]byte, error) {
	return run(ctx, "debugfs", "-R", request, disk)
}

// replayJournal brings a file system whose machine ended at once to where its journal is.
func replayJournal(ctx context.Context, disk string) error {
	_, err := run(ctx, "e2fsck", "-p", disk)
	exit := (*exec.ExitError)(nil)
	if errors.As(err, &exit) && exit.ExitCode() == 1 { // it mended something
		return nil
	}
	return err
}

// run runs a program and returns what it prints.
func run(ctx context.Context, name string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = append(os.Environ(), "LC_ALL=C", "DEBUGFS_PAGER=__none__", "PATH="+os.Getenv("PATH")+":/usr/sbin:/sbin")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("running %s %s: %w: %s", name, strings.Join(args, " "), err, bytes.TrimSpace(stderr.Bytes()))
	}
	return out, err
}
