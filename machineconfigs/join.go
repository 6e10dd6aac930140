package machineconfigs

import (
	"slices"

	"github.com/coreos/ignition/v2/config/v3_5"
	"github.com/coreos/ignition/v2/config/v3_5/types"
)

// joiner merges configurations one after the other, as Ignition's Merge does. Merge walks through
// all of the parent for each child, so the time for many children would grow with the square of
// their files. The joiner hands it only those entries of the parent that the child has too; the
// others it would not change.
type joiner struct {
	started bool
	// rest is the configuration without the lists below.
	rest types.Config
	// Files, directories and links share their keys: one takes another's place.
	files       keyedList[types.File]
	directories keyedList[types.Directory]
	links       keyedList[types.Link]
	units       keyedList[types.Unit]
}

func newJoiner() *joiner {
	return &joiner{
		rest:        empty(),
		files:       newKeyedList(func(f *types.File) string { return f.Path }),
		directories: newKeyedList(func(d *types.Directory) string { return d.Path }),
		links:       newKeyedList(func(l *types.Link) string { return l.Path }),
		units:       newKeyedList(func(u *types.Unit) string { return u.Name }),
	}
}

// add merges the next configuration in.
func (j *joiner) add(child types.Config) {
	if !j.started {
		j.started = true
		j.put(child)
		return
	}
	parent := j.rest
	nodes := make([]string, 0, len(child.Storage.Files)+len(child.Storage.Directories)+len(child.Storage.Links))
	for i := range child.Storage.Files {
		nodes = append(nodes, child.Storage.Files[i].Path)
	}
	for i := range child.Storage.Directories {
		nodes = append(nodes, child.Storage.Directories[i].Path)
	}
	for i := range child.Storage.Links {
		nodes = append(nodes, child.Storage.Links[i].Path)
	}
	units := make([]string, 0, len(child.Systemd.Units))
	for i := range child.Systemd.Units {
		units = append(units, child.Systemd.Units[i].Name)
	}
	parent.Storage.Files = j.files.take(nodes)
	parent.Storage.Directories = j.directories.take(nodes)
	parent.Storage.Links = j.links.take(nodes)
	parent.Systemd.Units = j.units.take(units)
	j.put(v3_5.Merge(parent, child))
}

// put takes a merged configuration apart again.
func (j *joiner) put(merged types.Config) {
	j.files.put(merged.Storage.Files)
	j.directories.put(merged.Storage.Directories)
	j.links.put(merged.Storage.Links)
	j.units.put(merged.Systemd.Units)
	merged.Storage.Files, merged.Storage.Directories, merged.Storage.Links, merged.Systemd.Units = nil, nil, nil, nil
	j.rest = merged
}

// result is the whole configuration.
func (j *joiner) result() types.Config {
	cfg := j.rest
	cfg.Storage.Files = j.files.all()
	cfg.Storage.Directories = j.directories.all()
	cfg.Storage.Links = j.links.all()
	cfg.Systemd.Units = j.units.all()
	return cfg
}

// keyedList is a list without two entries of the same key.
type keyedList[T any] struct {
	key     func(*T) string
	entries []entry[T]
	index   map[string]int
	// taken are the keys of what was taken and not yet put back.
	taken []string
}

// entry is one of a keyedList; gone where a merge has removed it.
type entry[T any] struct {
	value T
	gone  bool
}

func newKeyedList[T any](key func(*T) string) keyedList[T] {
	return keyedList[T]{key: key, index: map[string]int{}}
}

// take removes the entries with the given keys and returns them, in the order of the list. Their
// places are kept for put.
func (l *keyedList[T]) take(keys []string) []T {
	var places []int
	for _, key := range keys {
		if i, ok := l.index[key]; ok && !l.entries[i].gone {
			places = append(places, i)
			l.entries[i].gone = true
			l.taken = append(l.taken, key)
		}
	}
	slices.Sort(places)
	var taken []T
	for _, i := range places {
		taken = append(taken, l.entries[i].value)
	}
	return taken
}

// put puts entries back where they were taken, and new ones at the end. What was taken and is not
// put back has gone.
func (l *keyedList[T]) put(values []T) {
	for i := range values {
		l.putOne(values[i])
	}
	for _, key := range l.taken {
		if l.entries[l.index[key]].gone {
			delete(l.index, key)
		}
	}
	l.taken = nil
}

func (l *keyedList[T]) putOne(value T) {
	key := l.key(&value)
	i, ok := l.index[key]
	if !ok {
		i = len(l.entries)
		l.index[key] = i
		l.entries = append(l.entries, entry[T]{})
	}
	l.entries[i] = entry[T]{value: value}
}

func (l *keyedList[T]) all() []T {
	var values []T
	for i := range l.entries {
		if !l.entries[i].gone {
			values = append(values, l.entries[i].value)
		}
	}
	return values
}
