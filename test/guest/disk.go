package guest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/layerwright/layerwright/test/cluster/files"
	"github.com/layerwright/layerwright/test/host/deployments"
	"github.com/layerwright/layerwright/test/host/machine"
)

const (
	// diskVersion is part of the name of cached disks. It grows when the same image makes another
	// disk.
	diskVersion = 2
	// diskSize is what the machine has; the file is sparse.
	diskSize = 8 << 30

	stateroot = "/ostree/deploy/" + deployments.Stateroot
)

// Arguments are those that a machine's kernel is started with.
func Arguments() []string {
	return []string{"root=/dev/vda", "rw", "console=ttyS0", "quiet", "systemd.show_status=1"}
}

// Disks is a cache of disks.
type Disks struct {
	// Dir is its folder.
	Dir string
}

// Ensure returns the disk that has an image deployed, and makes it unless the cache has it. A disk
// is for [Copy]: nothing may write to it.
func (d Disks) Ensure(ctx context.Context, image v1.Image) (disk string, err error) {
	digest, err := image.Digest()
	if err != nil {
		return "", err
	}
	disk = filepath.Join(d.Dir, fmt.Sprintf("%s-%d.img", digest.Hex[:16], diskVersion))
	unlock, err := files.Lock(ctx, disk+".lock")
	if err != nil {
		return "", err
	}
	defer unlock()
	if _, err := os.Stat(disk); !errors.Is(err, fs.ErrNotExist) {
		return disk, err
	}
	if err := Check(); err != nil {
		return "", err
	}
	work := disk + ".tmp"
	if err := errors.Join(erase(work), os.MkdirAll(work, 0o755)); err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, erase(work)) }()
	root := filepath.Join(work, "root")
	if err := install(ctx, root, image); err != nil {
		return "", fmt.Errorf("installing the image %s on a disk: %w", digest, err)
	}
	made := filepath.Join(work, "disk")
	if err := format(ctx, made, root); err != nil {
		return "", err
	}
	if err := os.Rename(made, disk); err != nil {
		return "", err
	}
	return disk, d.prune()
}

// keptDisks are those of both streams, with and without a change that is being worked on.
const keptDisks = 4

// prune removes all disks but those that were made last, and what runs that were killed have left.
// What another process works on stays.
func (d Disks) prune() error {
	disks, err := filepath.Glob(filepath.Join(d.Dir, "*.img.lock"))
	if err != nil {
		return err
	}
	made := map[string]time.Time{}
	for i, lock := range disks {
		disks[i] = strings.TrimSuffix(lock, ".lock")
		if info, err := os.Stat(disks[i]); err == nil {
			made[disks[i]] = info.ModTime()
		}
	}
	slices.SortFunc(disks, func(a, b string) int { return made[b].Compare(made[a]) })
	for i, disk := range disks {
		unlock, err := files.TryLock(disk + ".lock")
		if errors.Is(err, files.ErrLocked) {
			continue
		}
		if err != nil {
			return err
		}
		err = erase(disk + ".tmp")
		if i >= keptDisks {
			err = errors.Join(err, os.RemoveAll(disk))
		}
		unlock()
		if err != nil {
			return err
		}
	}
	return nil
}

// install deploys an image below a folder, as an installer does on a disk. Where the image is from
// is for [Put] to say: many disks come of one.
func install(ctx context.Context, root string, image v1.Image) error {
	sysroot := &deployments.Sysroot{Path: root, Tool: deployments.Tool{"ostree"}}
	if err := sysroot.Init(ctx); err != nil {
		return err
	}
	commit, err := machine.Import(ctx, sysroot, image)
	if err != nil {
		return err
	}
	return sysroot.Deploy(ctx, deployments.Request{Commit: commit, Args: Arguments()})
}

// format makes a file system with the content of a folder.
func format(ctx context.Context, disk, root string) error {
	f, err := os.Create(disk)
	if err != nil {
		return err
	}
	if err := errors.Join(f.Truncate(diskSize), f.Close()); err != nil {
		return err
	}
	_, err = run(ctx, "mke2fs", "-q", "-t", "ext4", "-L", "root", "-E", "root_owner=0:0,lazy_itable_init=1", "-d", root, disk)
	return err
}

// erase removes a folder in which deployments are immutable, as ostree makes them.
func erase(dir string) error {
	roots, err := filepath.Glob(filepath.Join(dir, "root", stateroot, "deploy", "*.0"))
	if err != nil {
		return err
	}
	for _, root := range roots {
		if out, err := exec.Command("chattr", "-i", root).CombinedOutput(); err != nil {
			return fmt.Errorf("making %s mutable: %w: %s", root, err, bytes.TrimSpace(out))
		}
	}
	return os.RemoveAll(dir)
}

// Copy makes a machine's disk of a cached one.
func Copy(ctx context.Context, from, to string) error {
	_, err := run(ctx, "cp", "--sparse=always", "--reflink=auto", from, to)
	return err
}

// File is one to put on a disk, by the folder of the machine that it is to be in.
type File struct {
	Content []byte
	// From is a file of this machine, instead of Content.
	From string
	Mode fs.FileMode
}

// Put makes a disk that no machine uses one machine's: it says where the image is from, and writes
// files of /var, and of the /etc of what boots first. They are root's.
func Put(ctx context.Context, disk, image string, content map[string]File) (err error) {
	deployed, err := debugfs(ctx, disk, "ls -p "+stateroot+"/deploy")
	if err != nil {
		return err
	}
	names := slices.DeleteFunc(listed(deployed), func(n string) bool { return path.Ext(n) != ".0" })
	if len(names) != 1 {
		return fmt.Errorf("looking for the deployment of %s: found %q", disk, names)
	}
	scratch, err := os.MkdirTemp("", "guest-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(scratch)) }()
	deployment := path.Join(stateroot, "deploy", names[0])
	w := writer{scratch: scratch, etc: path.Join(deployment, "etc"), made: map[string]bool{}}
	origin := File{Content: deployments.Origin(machine.Unverified + image), Mode: 0o644}
	if err := w.put(deployment+".origin", origin); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(content)) {
		if err := w.add(name, content[name]); err != nil {
			return err
		}
	}
	return w.write(ctx, disk)
}

// writer collects debugfs's commands.
type writer struct {
	scratch, etc string
	made         map[string]bool
	commands     strings.Builder
	written      []string
}

// add writes a file by its path in the machine.
func (w *writer) add(name string, f File) error {
	switch {
	case strings.HasPrefix(name, "/var/"):
		return w.put(path.Join(stateroot, name), f)
	case strings.HasPrefix(name, "/etc/"):
		return w.put(path.Join(w.etc, strings.TrimPrefix(name, "/etc")), f)
	default:
		return fmt.Errorf("putting %s on a disk: only /etc and /var are a machine's own", name)
	}
}

// put writes a file by its path on the disk.
func (w *writer) put(target string, f File) error {
	source := f.From
	if source == "" {
		source = filepath.Join(w.scratch, fmt.Sprint(len(w.written)))
		if err := os.WriteFile(source, f.Content, f.Mode); err != nil {
			return err
		}
	}
	w.mkdir(path.Dir(target))
	fmt.Fprintf(&w.commands, "rm %q\nwrite %q %q\n", target, source, target)
	w.written = append(w.written, target)
	return nil
}

// mkdir makes a folder and those above it; that some are there is no error to debugfs.
func (w *writer) mkdir(dir string) {
	if dir == "/" || w.made[dir] {
		return
	}
	w.mkdir(path.Dir(dir))
	w.made[dir] = true
	fmt.Fprintf(&w.commands, "mkdir %q\n", dir)
}

// write runs the commands, and looks at what came of them: debugfs's exit code tells nothing.
func (w *writer) write(ctx context.Context, disk string) error {
	commands := filepath.Join(w.scratch, "commands")
	if err := os.WriteFile(commands, []byte(w.commands.String()), 0o600); err != nil {
		return err
	}
	if _, err := run(ctx, "debugfs", "-w", "-f", commands, disk); err != nil {
		return err
	}
	for _, name := range w.written {
		stat, err := debugfs(ctx, disk, fmt.Sprintf("stat %q", name))
		if err != nil {
			return err
		}
		if !bytes.Contains(stat, []byte("Type: regular")) {
			return fmt.Errorf("putting %s on %s: debugfs did not write it", name, disk)
		}
	}
	return nil
}
