package osindex

import (
	"fmt"
	"slices"
	"strings"
)

// Resolved is where a path leads.
type Resolved struct {
	// Path is absolute and clean, with no symbolic link among its parents as far as they exist.
	Path string
	// Entry is what is there; its Kind is 0 if nothing is.
	Entry Entry
}

// Exists reports whether the image has the path.
func (r Resolved) Exists() bool { return r.Entry.Kind != 0 }

// LoopError says that more than [MaxLinks] symbolic links had to be followed, mostly because they
// lead to each other.
type LoopError struct {
	// Path is what was to be resolved.
	Path string
	// Link is the path of the first symbolic link that was not followed any more.
	Link string
}

// Error names both paths.
func (e *LoopError) Error() string {
	return fmt.Sprintf("resolving %q: too many symbolic links, the last is %q", e.Path, e.Link)
}

// NotDirectoryError says that a path goes on below something that is no directory.
type NotDirectoryError struct {
	// Path is what was to be resolved.
	Path string
	// Parent is the path of what is no directory.
	Parent string
}

// Error names both paths.
func (e *NotDirectoryError) Error() string {
	return fmt.Sprintf("resolving %q: %q is not a directory", e.Path, e.Parent)
}

// Resolve follows the symbolic links among the parents of an absolute path, as the kernel would
// with the image as root, and not that of its last part. Where a parent does not exist, the rest is
// taken as it is written. Errors: [LoopError] for a cycle of links, [NotDirectoryError] for a
// parent that is no directory.
func (x *Index) Resolve(path string) (Resolved, error) { return x.resolved(path, false) }

// Follow is Resolve that also follows the last part.
func (x *Index) Follow(path string) (Resolved, error) { return x.resolved(path, true) }

func (x *Index) resolved(path string, follow bool) (Resolved, error) {
	end, err := x.walk(path, follow)
	if err != nil {
		return Resolved{}, err
	}
	r := Resolved{Path: end.path()}
	if n := end.node(); n != nil {
		r.Entry = n.entry()
	}
	return r, nil
}

// walk goes to where a path leads.
func (x *Index) walk(path string, follow bool) (trail, error) {
	here := trail{{node: x.top()}}
	rest, links := split(path), 0
	for len(rest) > 0 {
		name := rest[0]
		rest = rest[1:]
		n := here.node()
		if n != nil && n.kind() != Directory {
			return nil, &NotDirectoryError{Path: path, Parent: here.path()}
		}
		if name == ".." {
			here = here.up()
			continue
		}
		var child *node
		if n != nil {
			child = n.child(name)
		}
		if child == nil || child.kind() != Symlink || (len(rest) == 0 && !follow) {
			here = append(here, step{name: name, node: child})
			continue
		}
		if links++; links > MaxLinks {
			return nil, &LoopError{Path: path, Link: append(here, step{name: name}).path()}
		}
		here, rest = here.through(child.more.target, rest)
	}
	return here, nil
}

// trail is the way from the root to a place.
type trail []step

// step is one part of a way, without node where there is nothing.
type step struct {
	name string
	node *node
}

func (t trail) node() *node { return t[len(t)-1].node }

// up is the way to the parent; the root is its own.
func (t trail) up() trail { return t[:max(len(t)-1, 1)] }

// through is where a symbolic link that stands at the end of the way leads, and what has to be gone
// from there.
func (t trail) through(target string, rest []string) (trail, []string) {
	if strings.HasPrefix(target, "/") {
		t = t[:1]
	}
	return t, slices.Concat(split(target), rest)
}

// path is the way as text, absolute.
func (t trail) path() string {
	if len(t) == 1 {
		return "/"
	}
	var text strings.Builder
	for _, s := range t[1:] {
		text.WriteString("/" + s.name)
	}
	return text.String()
}
