package kargs

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"

	"github.com/layerwright/layerwright/machineconfigs/cmdline"
)

// maxEntries is how many command lines are remembered: each deployment of a host has one.
const maxEntries = 16

// Record is what is known of command lines of a host, the newest last. It outlives the
// MachineConfigs that it came from.
type Record struct {
	Entries []Entry `json:"entries,omitempty"`
}

// Entry is what of one command line is not the host's own. It may have passwords in it.
type Entry struct {
	// Line is the sha256 of the whole command line.
	Line string `json:"line"`
	// Added are words that were added to what the host had, in their order.
	Added []string `json:"added,omitempty"`
	// Removed are words that the host had, and that it gets back.
	Removed []string `json:"removed,omitempty"`
}

func sum(line []string) string {
	s := sha256.Sum256([]byte(strings.Join(line, "\n")))
	return hex.EncodeToString(s[:])
}

// IsNeeded reports whether a command line has to be looked at, on the way from one configuration to
// another.
func (r *Record) IsNeeded(current, want cmdline.Arguments) bool {
	return len(r.Entries) > 0 || !current.IsEmpty() || !want.IsEmpty()
}

// Plan is the command line that a host is to have instead of the one that it has. The record then
// knows both. What the current configuration wants is taken for ours on a host of which there is no
// record: an agent has brought it there that wrote none.
func (r *Record) Plan(line []string, current, want cmdline.Arguments) []string {
	has, isKnown := r.find(line)
	if !isKnown {
		has = adopt(line, current)
	}
	to, next := decide(line, has, want)
	r.put(Entry{Line: sum(line), Added: has.Added, Removed: has.Removed})
	r.put(next)
	return to
}

// find is the entry of a command line; false where there is no record at all. Of a line that others
// have changed it is the newest one whose words the line has.
func (r *Record) find(line []string) (Entry, bool) {
	id := sum(line)
	for _, e := range slices.Backward(r.Entries) {
		if e.Line == id {
			return e, true
		}
	}
	for _, e := range slices.Backward(r.Entries) {
		if _, isWhole := without(line, e.Added); isWhole {
			return e, true
		}
	}
	if n := len(r.Entries); n > 0 {
		return r.Entries[n-1], true
	}
	return Entry{}, false
}

// adopt takes for ours what a configuration wants and a line has, each as often as it is wanted.
func adopt(line []string, current cmdline.Arguments) Entry {
	var e Entry
	wanted := current.Wanted()
	for _, word := range slices.Backward(line) {
		if at := slices.Index(wanted, word); at >= 0 {
			wanted = slices.Delete(wanted, at, at+1)
			e.Added = append(e.Added, word)
		}
	}
	slices.Reverse(e.Added)
	return e
}

func (r *Record) put(e Entry) {
	r.Entries = slices.DeleteFunc(r.Entries, func(other Entry) bool { return other.Line == e.Line })
	r.Entries = append(r.Entries, e)
	if over := len(r.Entries) - maxEntries; over > 0 {
		r.Entries = slices.Delete(r.Entries, 0, over)
	}
}
