package node

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Cgroups is the machine's control group file system, version 1 (a hierarchy
// for each controller) or version 2 (one for all).
type Cgroups struct {
	root string
	// hierarchies are the folders below root that have groups of their own;
	// only "." in version 2.
	hierarchies []string
	unified     bool
}

// required are the controllers that kubelet and runc can't do without.
var required = []string{"cpu", "cpuset", "memory", "pids"}

// cgroupRoot is where every distribution mounts it.
const cgroupRoot = "/sys/fs/cgroup"

// DetectCgroups looks at the machine.
func DetectCgroups() (*Cgroups, error) {
	var root unix.Statfs_t
	if err := unix.Statfs(cgroupRoot, &root); err != nil {
		return nil, fmt.Errorf("looking for control groups in %s: %w", cgroupRoot, err)
	}
	if root.Type == unix.CGROUP2_SUPER_MAGIC {
		return newUnified(cgroupRoot)
	}
	mounts, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	defer func() { _ = mounts.Close() }()
	var hierarchies []string
	scanner := bufio.NewScanner(mounts)
	for scanner.Scan() {
		before, after, _ := strings.Cut(scanner.Text(), " - ")
		fields := strings.Fields(before)
		// On such machines there often is a version 2 hierarchy without
		// controllers too, in which runc makes groups as well.
		kind, _, _ := strings.Cut(after, " ")
		if len(fields) > 4 && (kind == "cgroup" || kind == "cgroup2") && filepath.Dir(fields[4]) == cgroupRoot {
			hierarchies = append(hierarchies, filepath.Base(fields[4]))
		}
	}
	if err := scanner.Err(); err != nil {
		return nil, err
	}
	return newLegacy(cgroupRoot, hierarchies)
}

func newUnified(root string) (*Cgroups, error) {
	available, err := os.ReadFile(filepath.Join(root, "cgroup.controllers"))
	if err != nil {
		return nil, err
	}
	c := &Cgroups{root: root, hierarchies: []string{"."}, unified: true}
	return c, requireControllers(strings.Fields(string(available)))
}

func newLegacy(root string, hierarchies []string) (*Cgroups, error) {
	var controllers []string
	for _, h := range hierarchies {
		controllers = append(controllers, strings.Split(h, ",")...)
	}
	return &Cgroups{root: root, hierarchies: hierarchies}, requireControllers(controllers)
}

func requireControllers(available []string) error {
	for _, controller := range required {
		if !slices.Contains(available, controller) {
			return fmt.Errorf("control group controller %q is not available (there are: %s)", controller, strings.Join(available, ", "))
		}
	}
	return nil
}

// Exists reports whether any hierarchy has the group.
func (c *Cgroups) Exists(group string) bool {
	return slices.ContainsFunc(c.hierarchies, func(hierarchy string) bool {
		_, err := os.Stat(filepath.Join(c.root, hierarchy, group))
		return err == nil
	})
}

// Create makes a group, usable by the kubelet, in every hierarchy.
func (c *Cgroups) Create(group string) error {
	for _, hierarchy := range c.hierarchies {
		if err := c.create(filepath.Join(c.root, hierarchy), group); err != nil {
			return fmt.Errorf("creating control group %s: %w", group, err)
		}
	}
	return nil
}

func (c *Cgroups) create(dir, group string) error {
	for part := range strings.SplitSeq(group, "/") {
		if c.unified {
			if err := enableControllers(dir); err != nil {
				return err
			}
		}
		parent := dir
		dir = filepath.Join(dir, part)
		if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
		if err := errors.Join(inheritCPUSet(parent, dir), shareCPUs(dir)); err != nil {
			return err
		}
	}
	return nil
}

// shareCPUs gives a group of version 1 the share that kubelets give all pods of a node: one for
// each CPU. A new group has one in all, as much as a single busy process beside it.
func shareCPUs(dir string) error {
	file := filepath.Join(dir, "cpu.shares")
	if _, err := os.Stat(file); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return os.WriteFile(file, []byte(strconv.Itoa(1024*runtime.NumCPU())), 0o644)
}

// enableControllers lets the children of a version 2 group use what it has.
func enableControllers(dir string) error {
	available, err := os.ReadFile(filepath.Join(dir, "cgroup.controllers"))
	if err != nil {
		return err
	}
	enable := "+" + strings.Join(strings.Fields(string(available)), " +")
	err = os.WriteFile(filepath.Join(dir, "cgroup.subtree_control"), []byte(enable), 0o644)
	if errors.Is(err, unix.EBUSY) {
		return fmt.Errorf("%w: %s has processes of its own, as in a container; they must be moved to a child group first", err, dir)
	}
	return err
}

// inheritCPUSet fills a new cpuset group of version 1, which starts empty and
// admits no process.
func inheritCPUSet(parent, dir string) error {
	for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
		current, err := os.ReadFile(filepath.Join(dir, file))
		if errors.Is(err, fs.ErrNotExist) || len(strings.TrimSpace(string(current))) > 0 {
			continue
		}
		if err != nil {
			return err
		}
		inherited, err := os.ReadFile(filepath.Join(parent, file))
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, file), inherited, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// Enter moves this process, and with it what it starts later, into a group.
func (c *Cgroups) Enter(group string) error {
	for _, hierarchy := range c.hierarchies {
		file := filepath.Join(c.root, hierarchy, group, "cgroup.procs")
		if err := os.WriteFile(file, []byte(strconv.Itoa(os.Getpid())), 0o644); err != nil {
			return fmt.Errorf("entering control group %s: %w", group, err)
		}
	}
	return nil
}

// Kill ends every process of a group and of the groups below it, however they
// came to be, and waits until they are gone.
func (c *Cgroups) Kill(ctx context.Context, group string) error {
	for {
		pids, err := c.members(group)
		if err != nil || len(pids) == 0 {
			return err
		}
		for _, pid := range pids {
			if err := kill(ctx, pid); err != nil {
				return fmt.Errorf("killing process %d of control group %s: %w", pid, group, err)
			}
		}
	}
}

// members lists the processes of a group and those below, of all hierarchies.
func (c *Cgroups) members(group string) ([]int, error) {
	var pids []int
	for _, hierarchy := range c.hierarchies {
		err := filepath.WalkDir(filepath.Join(c.root, hierarchy, group), func(path string, entry fs.DirEntry, err error) error {
			if errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			if err != nil || entry.Name() != "cgroup.procs" {
				return err
			}
			text, err := os.ReadFile(path)
			for field := range strings.FieldsSeq(string(text)) {
				if pid, err := strconv.Atoi(field); err == nil && pid > 0 {
					pids = append(pids, pid)
				}
			}
			if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENODEV) {
				return nil
			}
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	slices.Sort(pids)
	return slices.Compact(pids), nil
}

// Remove deletes a group without processes, the groups below it, and parents
// that this leaves empty.
func (c *Cgroups) Remove(group string) error {
	for _, hierarchy := range c.hierarchies {
		top := filepath.Join(c.root, hierarchy)
		if err := removeTree(filepath.Join(top, group)); err != nil {
			return fmt.Errorf("removing control group %s: %w", group, err)
		}
		for parent := filepath.Dir(group); parent != "."; parent = filepath.Dir(parent) {
			if os.Remove(filepath.Join(top, parent)) != nil {
				break // it serves others
			}
		}
	}
	return nil
}

// removeTree removes folders only: the files of a control group go with it.
func removeTree(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if entry.IsDir() {
			if err := removeTree(filepath.Join(dir, entry.Name())); err != nil {
				return err
			}
		}
	}
	if err := unix.Rmdir(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
