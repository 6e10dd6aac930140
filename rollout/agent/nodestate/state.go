package nodestate

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/coreos/ignition/v2/config/v3_5/types"

	"github.com/layerwright/layerwright/machineconfigs"
)

// Kind is what is at a path.
type Kind string

// The kinds.
const (
	Missing   Kind = ""
	File      Kind = "file"
	Directory Kind = "directory"
	Link      Kind = "link"
	// Special is a device, a pipe or a socket, which is never replaced.
	Special Kind = "special"
)

// Modes of what a configuration gives none, as Ignition has them.
const (
	defaultFileMode      = 0o644
	defaultDirectoryMode = 0o755
)

// Entry is what a path has.
type Entry struct {
	Kind Kind `json:"kind,omitempty"`
	// Mode are the permissions with setuid, setgid and sticky, as chmod(2) has them; 0 of a link.
	Mode uint32 `json:"mode,omitempty"`
	UID  int    `json:"uid,omitempty"`
	GID  int    `json:"gid,omitempty"`
	// Target is where a link leads.
	Target string `json:"target,omitempty"`
	// Sum is the sha256 of a file's content in hexadecimal.
	Sum string `json:"sum,omitempty"`
}

// Item is what a path should have.
type Item struct {
	// Path is absolute, and leads through no link.
	Path string

	Entry

	// Content is that of a file.
	Content []byte
	// Loose reports whether what is there will do if it is of the same kind.
	Loose bool
}

// Password is the hash of a user's password.
type Password struct{ User, Hash string }

// State is what a configuration wants of a host beside its image. It holds secrets.
type State struct {
	// Items are sorted by path, so that folders come before what is in them.
	Items []Item
	// Passwords are sorted by user.
	Passwords []Password
	// Left is what the configuration wants and this package does not do, in words without secrets.
	Left []string
}

// Differing are the paths of files and links that two states want otherwise, sorted.
func Differing(a, b State) []string {
	wanted := map[string]Entry{}
	for _, i := range a.Items {
		wanted[i.Path] = i.Entry
	}
	var paths []string
	for _, i := range b.Items {
		if was := wanted[i.Path]; was != i.Entry && (i.Kind != Directory || was.Kind != Missing) {
			paths = append(paths, i.Path)
		}
		delete(wanted, i.Path)
	}
	for path, was := range wanted {
		if was.Kind != Directory {
			paths = append(paths, path)
		}
	}
	slices.Sort(paths)
	return paths
}

// sum is the sha256 of content in hexadecimal.
func sum(content []byte) string {
	s := sha256.Sum256(content)
	return hex.EncodeToString(s[:])
}

// fits reports whether a path has what it should.
func (i *Item) fits(has Entry) bool {
	return i.Entry == has || i.Loose && i.Kind == has.Kind
}

// Of says what a configuration wants of a host beside its image. resolve gives the path without
// links that a path leads to on the host.
func Of(cfg *machineconfigs.Config, accounts Accounts, resolve func(string) (string, error)) State {
	r := reader{cfg: cfg, accounts: accounts, resolve: resolve, items: map[string]Item{}}
	storage := cfg.Ignition.Storage
	for i := range storage.Directories {
		r.directory(&storage.Directories[i])
	}
	for i := range storage.Files {
		r.file(&storage.Files[i])
	}
	for i := range storage.Links {
		r.link(&storage.Links[i])
	}
	for i := range cfg.Ignition.Systemd.Units {
		if u := &cfg.Ignition.Systemd.Units[i]; slices.Contains(cfg.NodeOnly.Units, u.Name) {
			r.unit(u)
		}
	}
	r.enable()
	for i := range cfg.Ignition.Passwd.Users {
		r.user(&cfg.Ignition.Passwd.Users[i])
	}
	for _, g := range cfg.Ignition.Passwd.Groups {
		if _, known := accounts.Groups[g.Name]; !known {
			r.leave("group %s: the host does not have it; make it in the Containerfile", g.Name)
		}
	}
	return r.finish()
}

// reader collects a State.
type reader struct {
	cfg      *machineconfigs.Config
	accounts Accounts
	resolve  func(string) (string, error)
	items    map[string]Item
	state    State
}

func (r *reader) finish() State {
	for _, i := range r.items {
		r.state.Items = append(r.state.Items, i)
	}
	slices.SortFunc(r.state.Items, func(a, b Item) int { return strings.Compare(a.Path, b.Path) })
	slices.SortFunc(r.state.Passwords, func(a, b Password) int { return strings.Compare(a.User, b.User) })
	return r.state
}

func (r *reader) leave(format string, args ...any) {
	r.state.Left = append(r.state.Left, fmt.Sprintf(format, args...))
}

// topOf is the name of the folder below the root that a path is in.
func topOf(at string) string {
	top, _, _ := strings.Cut(strings.TrimPrefix(at, "/"), "/")
	return top
}

// isFixed reports whether no one can write below a folder of the root.
func isFixed(top string) bool {
	return slices.Contains([]string{"usr", "sysroot", "proc", "sys", "dev"}, top)
}

// place says where an item goes; false where it is the image's, or no one can write there.
func (r *reader) place(kind, written string, nodeOnly []string) (string, bool) {
	at, err := r.resolve(written)
	if err != nil {
		r.leave("%s %s: %v", kind, written, err)
		return "", false
	}
	isNodeOnly := slices.Contains(nodeOnly, written)
	switch top := topOf(at); {
	case slices.Contains([]string{"var", "run", "tmp", "boot"}, top):
		return at, true
	case isFixed(top):
		if isNodeOnly {
			r.leave("%s %s: nothing can be written below /%s of a host", kind, written, top)
		}
		return "", false
	default:
		return at, isNodeOnly
	}
}

// own gives an item the mode and owner that the configuration names.
func (r *reader) own(i *Item, mode *int, node types.Node) error {
	if mode != nil {
		// Ignition leaves out setuid, setgid and sticky up to specification 3.5.
		i.Mode = uint32(*mode) & 0o777 //nolint:gosec // it was checked when the MachineConfig was rendered
	}
	var err error
	if i.UID, err = number(node.User.ID, node.User.Name, "user", r.accounts.uid); err != nil {
		return err
	}
	i.GID, err = number(node.Group.ID, node.Group.Name, "group", r.accounts.gid)
	return err
}

func number(id *int, name *string, kind string, find func(string) (int, bool)) (int, error) {
	switch {
	case id != nil:
		return *id, nil
	case name == nil || *name == "":
		return 0, nil
	}
	found, ok := find(*name)
	if !ok {
		return 0, fmt.Errorf("the host has no %s %s", kind, *name)
	}
	return found, nil
}

func (r *reader) directory(d *types.Directory) {
	at, ok := r.place("directory", d.Path, r.cfg.NodeOnly.Directories)
	if !ok {
		return
	}
	i := Item{Path: at, Entry: Entry{Kind: Directory, Mode: defaultDirectoryMode}}
	if err := r.own(&i, d.Mode, d.Node); err != nil {
		r.leave("directory %s: %v", d.Path, err)
		return
	}
	i.Loose = d.Mode == nil && d.User == (types.NodeUser{}) && d.Group == (types.NodeGroup{})
	r.put(i)
}

func (r *reader) file(f *types.File) {
	at, ok := r.place("file", f.Path, r.cfg.NodeOnly.Files)
	if !ok {
		return
	}
	if len(f.Append) > 0 {
		r.leave("file %s: it is appended to, which can't be repeated; give it whole", f.Path)
		return
	}
	content, isRemote, err := machineconfigs.DecodeContents(f.Contents)
	switch {
	case err != nil:
		r.leave("file %s: %v", f.Path, err)
		return
	case isRemote:
		r.leave("file %s: its content has to be fetched; give it as a data URL", f.Path)
		return
	}
	i := newFile(at, content)
	i.Loose = f.Contents.Source == nil
	if err := r.own(&i, f.Mode, f.Node); err != nil {
		r.leave("file %s: %v", f.Path, err)
		return
	}
	r.put(i)
}

func newFile(at string, content []byte) Item {
	return Item{Path: at, Entry: Entry{Kind: File, Mode: defaultFileMode, Sum: sum(content)}, Content: content}
}

func (r *reader) link(l *types.Link) {
	at, ok := r.place("link", l.Path, r.cfg.NodeOnly.Links)
	switch {
	case !ok:
		return
	case l.Hard != nil && *l.Hard:
		r.leave("link %s: it is a hard link; use a symbolic one", l.Path)
		return
	case l.Target == nil:
		r.leave("link %s: it has no target", l.Path)
		return
	}
	i := Item{Path: at, Entry: Entry{Kind: Link, Target: *l.Target}}
	if err := r.own(&i, nil, l.Node); err != nil {
		r.leave("link %s: %v", l.Path, err)
		return
	}
	r.put(i)
}

// put adds an item, and the folders that it needs.
func (r *reader) put(i Item) {
	r.items[i.Path] = i
	for at := path.Dir(i.Path); at != "/"; at = path.Dir(at) {
		if _, has := r.items[at]; !has {
			r.items[at] = Item{Path: at, Entry: Entry{Kind: Directory, Mode: defaultDirectoryMode}, Loose: true}
		}
	}
}
