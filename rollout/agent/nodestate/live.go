package nodestate

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// Live is what the files of /etc are while they are not those of the booted image.
type Live struct {
	// Image is the image, by digest, that they are of.
	Image string `json:"image"`
	// Entries are what the paths have that differ, or differed, from the booted image's.
	Entries map[string]Entry `json:"entries,omitempty"`
	// Pending are paths that have changed, and about which nothing has been done yet.
	Pending []string `json:"pending,omitempty"`
	// Writing reports whether not all paths may have what Entries say.
	Writing bool `json:"writing,omitempty"`
	// Reverted reports whether the booted image's files were restored for a reboot.
	Reverted bool `json:"broken,omitempty"`
	// Boot is the boot of the host in which the files were written.
	Boot string `json:"boot,omitempty"`
}

// IsWhole reports whether the host has all files of the image, and what reads them was told.
func (l *Live) IsWhole() bool { return len(l.Pending) == 0 && !l.Writing && !l.Reverted }

// Difference is how a host gets from the files of /etc that it has to those of a deployment.
type Difference struct {
	// Reboot is why the host has to boot the deployment, for people; empty where it need not.
	Reboot string
	// Edited are paths that are neither as they were given to the host nor as they should become.
	Edited []string
	// Changed are the files and links that change, sorted. With Reboot they are what differs
	// between the images, folders too.
	Changed []string

	wanted map[string]Entry
}

// liveHost is the host with a record of its own for files of images that are not booted.
func (h *Host) liveHost() *Host { return &Host{tree: h.tree, name: "live"} }

// basis is what a difference follows from: the folders of the booted and the other deployment, and
// what was written to /etc before.
type basis struct {
	from, to  string
	live      *Live
	temporary *Record
}

// lives are the records by the deployment that is booted: each has an /etc of its own.
func (h *Host) lives() (map[string]Live, error) {
	lives := map[string]Live{}
	err := h.liveHost().load(&lives)
	return lives, err
}

// Live is what the files of /etc are, while the booted deployment has others; nil where it has not.
func (h *Host) Live(booted string) (*Live, error) {
	lives, err := h.lives()
	if err != nil {
		return nil, err
	}
	l, has := lives[booted]
	if !has || booted == "" {
		return nil, nil //nolint:nilnil // no record, and no error
	}
	if l.Boot != h.boot && !l.Writing {
		l.Pending = nil // what reads the files was started since
	}
	return &l, nil
}

// In says which boot of the host this is, as Linux calls it.
func (h *Host) In(boot string) { h.boot = boot }

func (h *Host) keepLive(lives map[string]Live) error { return h.liveHost().save(lives) }

// deployment is the folder of a deployment's files.
func (h *Host) deployment(checkout string) (string, error) {
	found, err := filepath.Glob(h.tree.root + "/sysroot/ostree/deploy/*/deploy/" + checkout)
	if err != nil || checkout == "" || len(found) != 1 {
		return "", errors.Join(fmt.Errorf("looking for the files of deployment %q: %w", checkout, fs.ErrNotExist), err)
	}
	return strings.TrimPrefix(found[0], h.tree.root), nil
}

// Compare says how the host gets from what /etc has now to what a deployment has there. It changes
// nothing.
func (h *Host) Compare(booted, next string) (Difference, error) {
	var d Difference
	from, err := h.deployment(booted)
	if err != nil {
		return d, err
	}
	to, err := h.deployment(next)
	if err != nil {
		return d, err
	}
	c, err := h.compare(from, to)
	if err != nil {
		return d, fmt.Errorf("comparing deployments: %w", err)
	}
	if d.Reboot = c.reboot; d.Reboot != "" {
		d.Changed = c.etc
		return d, nil
	}
	live, err := h.Live(booted)
	if err != nil {
		return d, err
	}
	if live == nil {
		live = &Live{}
	}
	temporary, err := h.temporaryPolicy().record()
	if err != nil {
		return d, err
	}
	d.wanted = map[string]Entry{}
	by := basis{from: from, to: to, live: live, temporary: &temporary}
	for _, at := range slices.Compact(slices.Sorted(slices.Values(slices.Concat(c.etc, slices.Collect(maps.Keys(live.Entries)))))) {
		if err := h.difference(&d, at, &by); err != nil {
			return d, err
		}
	}
	return d, nil
}

// difference looks at one path of /etc.
func (h *Host) difference(d *Difference, at string, by *basis) error {
	wants, err := h.tree.look(by.to + imagePath(at))
	if err != nil {
		return err
	}
	had, isLive := by.live.Entries[at]
	if !isLive {
		if had, err = h.tree.look(by.from + imagePath(at)); err != nil {
			return err
		}
	}
	has, err := h.tree.look(at)
	if err != nil {
		return err
	}
	d.wanted[at] = wants
	isPending := slices.Contains(by.live.Pending, at)
	if _, isTemporary := by.temporary.Entries[at]; has != had && has != wants && !isPending && !isTemporary {
		d.Edited = append(d.Edited, at)
	}
	isFolder := (had.Kind == Directory || had.Kind == Missing) && (wants.Kind == Directory || wants.Kind == Missing) && had.Kind != wants.Kind
	if !isFolder && had != wants || isPending {
		d.Changed = append(d.Changed, at)
	}
	return nil
}

// ApplyLive makes the files of /etc those of a deployment that is not booted, or those of the
// booted one again. What has changed stays pending until FinishLive.
func (h *Host) ApplyLive(booted, next, image string) error {
	d, err := h.Compare(booted, next)
	if err != nil {
		return err
	}
	if d.Reboot != "" {
		return fmt.Errorf("the node has to reboot: %s", d.Reboot)
	}
	return h.writeLive(booted, next, Live{Image: image, Entries: d.wanted, Pending: d.Changed})
}

// RevertLive restores the booted image's files just before a reboot: ostree takes what differs from
// them for the administrator's, and keeps it from what boots next.
func (h *Host) RevertLive(booted string) error {
	live, err := h.Live(booted)
	if err != nil || live == nil || live.Reverted {
		return err
	}
	d, err := h.Compare(booted, booted)
	if err != nil {
		return err
	}
	return h.writeLive(booted, booted, Live{Image: live.Image, Entries: d.wanted, Pending: d.Changed, Reverted: true})
}

// writeLive writes down what the host is going to have, and then writes that: folders before what
// is in them, and the other way round when they go.
func (h *Host) writeLive(booted, next string, l Live) error {
	lives, err := h.lives()
	if err != nil {
		return err
	}
	from, err := h.deployment(next)
	if err != nil {
		return err
	}
	l.Boot, l.Writing = h.boot, true
	lives[booted] = l
	if err := h.keepLive(lives); err != nil {
		return err
	}
	paths := slices.Sorted(maps.Keys(l.Entries))
	for _, at := range slices.Backward(paths) {
		if l.Entries[at].Kind == Missing {
			if err := h.tree.remove(at); err != nil {
				return fmt.Errorf("applying %s: %w", at, err)
			}
		}
	}
	for _, at := range paths {
		if err := h.copyFrom(from, at, l.Entries[at]); err != nil {
			return fmt.Errorf("applying %s: %w", at, err)
		}
	}
	l.Writing = false
	lives[booted] = l
	return h.keepLive(lives)
}

// copyFrom gives a path what a deployment has there.
func (h *Host) copyFrom(deployment, at string, wants Entry) error {
	has, err := h.tree.look(at)
	if err != nil || has == wants {
		return err
	}
	i := Item{Path: at, Entry: wants}
	if wants.Kind == File {
		if i.Content, err = h.tree.read(deployment + imagePath(at)); err != nil {
			return err
		}
	}
	return h.tree.write(i)
}

// FinishLive says that nothing is pending any more. isBooted is that the files are the booted
// image's: then there is nothing left to know.
func (h *Host) FinishLive(booted string, isBooted bool) error {
	lives, err := h.lives()
	if err != nil {
		return err
	}
	l := lives[booted]
	l.Pending = nil
	lives[booted] = l
	if isBooted {
		delete(lives, booted)
	}
	return h.keepLive(lives)
}

// RevertCarriedFiles reverts files that were written live to another deployment: ostree took them
// for the administrator's and carried them along. They get the booted image's content. It reports
// whether anything was to do.
func (h *Host) RevertCarriedFiles(booted string) (bool, error) {
	lives, err := h.lives()
	if err != nil || booted == "" {
		return false, err
	}
	mended, before := false, len(lives)
	for deployment, l := range lives {
		if deployment == booted {
			continue
		}
		for at, entry := range l.Entries {
			if _, isOwn := lives[booted].Entries[at]; isOwn {
				continue
			}
			is, err := h.mend(at, entry)
			if err != nil {
				return mended, err
			}
			mended = mended || is
		}
		if _, err := h.deployment(deployment); errors.Is(err, fs.ErrNotExist) {
			delete(lives, deployment) // its /etc is gone with it
		}
	}
	if len(lives) == before {
		return mended, nil
	}
	return mended, h.keepLive(lives)
}

func (h *Host) mend(at string, brought Entry) (bool, error) {
	wants, err := h.tree.look(imagePath(at))
	if err != nil {
		return false, err
	}
	has, err := h.tree.look(at)
	if err != nil || has != brought || has == wants {
		return false, err
	}
	if wants.Kind == Missing {
		return true, h.tree.remove(at)
	}
	return true, h.copyFrom("", at, wants)
}

// comparison finds what differs between the files of two deployments.
type comparison struct {
	tree     tree
	from, to string
	// reboot is why a host has to boot the other deployment; empty where it need not.
	reboot string
	// etc are the paths of /etc that differ.
	etc []string
}

// compare compares the files of two deployments, unless it did so just before.
func (h *Host) compare(from, to string) (comparison, error) {
	if from == to {
		return comparison{}, nil
	}
	if h.compared.from != from || h.compared.to != to {
		c := comparison{tree: h.tree, from: from, to: to}
		if err := c.path(imageEtc); err != nil { // whole: policies are about it
			return comparison{}, err
		}
		if c.reboot == "" {
			if err := c.folder("/usr"); err != nil {
				return comparison{}, err
			}
		}
		h.compared = c
	}
	return h.compared, nil
}

// folder compares what is in a folder of both.
func (c *comparison) folder(at string) error {
	names := map[string]bool{}
	for _, root := range []string{c.from, c.to} {
		list, err := os.ReadDir(c.tree.root + root + at)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		for _, e := range list {
			names[e.Name()] = true
		}
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		child := path.Join(at, name)
		if child == imageEtc { // it was the first
			continue
		}
		if err := c.path(child); err != nil || c.reboot != "" && !isInEtc(child) {
			return err
		}
	}
	return nil
}

// imageEtc is what an image has for /etc.
const imageEtc = "/usr/etc"

func isInEtc(at string) bool { return strings.HasPrefix(at, imageEtc+"/") }

// path compares what is at a path of both. Deployments share the files that are the same.
func (c *comparison) path(at string) error {
	a, errA := os.Lstat(c.tree.root + c.from + at)
	b, errB := os.Lstat(c.tree.root + c.to + at)
	if err := errors.Join(errA, errB); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if errA == nil && errB == nil && os.SameFile(a, b) {
		return nil
	}
	if errA == nil && a.Size() > maxFile || errB == nil && b.Size() > maxFile {
		c.mustBoot(at + " differs, and is too large to be looked at")
		if isInEtc(at) {
			c.etc = append(c.etc, strings.TrimPrefix(at, "/usr"))
		}
		return nil
	}
	had, err := c.tree.look(c.from + at)
	if err != nil {
		return err
	}
	has, err := c.tree.look(c.to + at)
	if err != nil {
		return err
	}
	if had != has {
		switch {
		case !isInEtc(at):
			c.mustBoot(at + " differs, which is not below /etc")
			if at != imageEtc {
				return nil
			}
		case isReplaceable(had.Kind, has.Kind):
			c.etc = append(c.etc, strings.TrimPrefix(at, "/usr"))
		default:
			c.etc = append(c.etc, strings.TrimPrefix(at, "/usr"))
			c.mustBoot(fmt.Sprintf("%s is a %s in one image and a %s in the other", strings.TrimPrefix(at, "/usr"), had.Kind, has.Kind))
			return nil
		}
	}
	if had.Kind == Directory || has.Kind == Directory {
		return c.folder(at)
	}
	return nil
}

// mustBoot says why a host has to boot the other deployment. The first reason stays.
func (c *comparison) mustBoot(why string) { c.reboot = cmp.Or(c.reboot, why) }

// isReplaceable reports whether a running host gets from one kind of entry to another: a folder is
// neither emptied for something else nor takes its place, and devices are never made.
func isReplaceable(from, to Kind) bool {
	isGone := from == Missing || to == Missing
	return from != Special && to != Special && (isGone || (from == Directory) == (to == Directory))
}
