package systemd

// ConfigDir is where an administrator's units are, and where every link is made.
const ConfigDir = "/etc/systemd/system"

// UnitDirs are where units are looked for in an image, the first that has one wins
// (systemd.unit(5), "Unit File Load Path", without the folders below /run, which an image doesn't
// have).
func UnitDirs() []string {
	return []string{ConfigDir, "/usr/local/lib/systemd/system", "/usr/lib/systemd/system"}
}

// PresetDirs are where preset files are looked for (systemd.preset(5)).
func PresetDirs() []string {
	return []string{"/etc/systemd/system-preset", "/usr/local/lib/systemd/system-preset", "/usr/lib/systemd/system-preset"}
}

// Kind is what a path of a tree is.
type Kind uint8

const (
	// Nothing is there.
	Nothing Kind = iota
	// File is a regular file.
	File
	// Directory is a directory.
	Directory
	// Link is a symbolic link.
	Link
	// Other is a device, a pipe or a socket.
	Other
)

// Tree is the file tree that units are in. Paths are absolute and clean. Links among the parents of
// a path are followed.
type Tree interface {
	// Lookup tells what is at the path, without following its last part, and the target of a link
	// as it is written.
	Lookup(path string) (kind Kind, target string)
	// List gives the names in a directory, sorted; none where there is no directory. A link in the
	// last part is followed.
	List(dir string) []string
	// Read gives the content of a file. A link in the last part is followed.
	Read(path string) ([]byte, error)
	// Put makes a symbolic link, in the place of one that is there. A tree may refuse, and leave
	// what is there.
	Put(path, target string)
	// Remove removes a symbolic link. A tree may refuse.
	Remove(path string)
}
