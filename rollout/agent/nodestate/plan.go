package nodestate

import (
	"maps"
	"slices"
	"strings"
)

// Action is what is done to a path or a user.
type Action string

// The actions.
const (
	// Write makes the path what it should be.
	Write Action = "write"
	// Restore brings back what was there before the first Write.
	Restore Action = "restore"
	// Remove removes what was never written here, such as what Ignition wrote when the host was
	// installed.
	Remove Action = "remove"
	// Leave forgets that there was nothing before: someone has put a file in the place of a folder,
	// or a folder in that of a file.
	Leave Action = "leave"
	// SetPassword sets the hash of a user's password.
	SetPassword Action = "set the password of"
	// RestorePassword brings back the hash before the first SetPassword.
	RestorePassword Action = "restore the password of"
)

// Change is one thing to do.
type Change struct {
	Action Action
	// Item is what a path should have; of Restore, Remove and Leave it has the path alone.
	Item Item
	// Password is the user, and of SetPassword the hash.
	Password Password
}

// String says what is done, without secrets.
func (c Change) String() string { return string(c.Action) + " " + c.Item.Path + c.Password.User }

// Record is what was there before: at paths, and of users their hashes.
type Record struct {
	Entries   map[string]Entry  `json:"entries,omitempty"`
	Passwords map[string]string `json:"passwords,omitempty"`
}

// Facts is what the host has at the paths, and of the users, that a plan is about.
type Facts struct {
	Entries   map[string]Entry
	Passwords map[string]string
}

// Plan says how a host gets to the desired state, in the order in which it is done: folders before
// what is in them, and the other way round when they go. What the current state has and the desired
// one does not becomes what it was before; what no one has written down is removed, unless it was
// changed since. What is ours and of another kind makes way for what comes there.
func Plan(current, desired State, record Record, has Facts) []Change {
	wanted, users := map[string]bool{}, map[string]bool{}
	var changes, last []Change
	var cleared []string // folders that become something else
	for _, i := range desired.Items {
		wanted[i.Path] = true
		there := has.Entries[i.Path]
		if i.fits(there) {
			continue
		}
		if isOtherKind(there, i) && isOurs(i.Path, there, current, record) {
			changes = append(changes, Change{Action: Remove, Item: Item{Path: i.Path}})
			cleared = append(cleared, i.Path+"/")
		}
		changes = append(changes, Change{Action: Write, Item: i})
	}
	for _, p := range desired.Passwords {
		users[p.User] = true
		if has.Passwords[p.User] != p.Hash {
			changes = append(changes, Change{Action: SetPassword, Password: p})
		}
	}
	for _, user := range slices.Sorted(maps.Keys(record.Passwords)) {
		if !users[user] {
			changes = append(changes, Change{Action: RestorePassword, Password: Password{User: user}})
		}
	}
	for _, i := range current.Items {
		_, isRecorded := record.Entries[i.Path]
		if !wanted[i.Path] && !isRecorded && i.Kind != Directory && !i.Loose && i.Entry == has.Entries[i.Path] {
			last = append(last, Change{Action: Remove, Item: Item{Path: i.Path}})
		}
	}
	for path := range record.Entries {
		if !wanted[path] {
			last = append(last, Change{Action: wayBack(path, current, record, has), Item: Item{Path: path}})
		}
	}
	slices.SortFunc(last, func(a, b Change) int { return strings.Compare(b.Item.Path, a.Item.Path) })
	first := slices.Clone(last)
	isInTheWay := func(c Change) bool {
		return slices.ContainsFunc(cleared, func(folder string) bool { return strings.HasPrefix(c.Item.Path, folder) })
	}
	first = slices.DeleteFunc(first, func(c Change) bool { return !isInTheWay(c) })
	return slices.Concat(first, changes, slices.DeleteFunc(last, isInTheWay))
}

// wayBack is what is done to a path that nothing wants any more.
func wayBack(at string, current State, record Record, has Facts) Action {
	isForeign := slices.ContainsFunc(current.Items, func(i Item) bool { return i.Path == at && isOtherKind(has.Entries[at], i) })
	if isForeign && record.Entries[at].Kind == Missing {
		return Leave
	}
	return Restore
}

// isOtherKind reports whether what is there can't be replaced by an item in one step: one of them
// alone is a folder.
func isOtherKind(there Entry, i Item) bool {
	return there.Kind != Missing && there.Kind != Special && (there.Kind == Directory) != (i.Kind == Directory)
}

// isOurs reports whether what is there was put there for the current configuration. A folder that
// the host had is not, whatever became of its mode.
func isOurs(at string, there Entry, current State, record Record) bool {
	was, isRecorded := record.Entries[at]
	return slices.ContainsFunc(current.Items, func(i Item) bool {
		isWritten := isRecorded && was.Kind != Directory || !isRecorded && there.Kind != Directory && !i.Loose && i.Entry == there
		return i.Path == at && i.Kind == there.Kind && isWritten
	})
}
