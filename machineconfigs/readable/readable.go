package readable

import (
	"fmt"
	"strings"

	"github.com/coreos/ignition/v2/config/v3_5/types"
)

// pullingPaths are what skopeo reads on a host. Logins are not among them: they are handed to it.
var pullingPaths = []string{
	"/etc/containers/policy.json", "/etc/containers/registries.d", "/etc/containers/registries.conf", "/etc/containers/registries.conf.d", "/etc/containers/certs.d",
}

// Modes that a user without rights needs: to read a file, and to look into a directory.
const (
	toRead   = 0o4
	toSearch = 0o5
)

// Warnings are about what hosts can't pull with, of the MachineConfig with this name: rpm-ostree,
// and bootc as a service, run skopeo as a user without rights.
func Warnings(name string, storage *types.Storage) (warnings []string) {
	add := func(kind, path string, mode *int, isDirectory bool) {
		if mode == nil {
			return
		}
		if needed, is := Unreadable(path, isDirectory, *mode); is {
			warnings = append(warnings, fmt.Sprintf("MachineConfig %q: %s %q has mode %04o: hosts pull images as a user without rights, "+
				"who cannot read it; give it mode %04o", name, kind, path, *mode, needed))
		}
	}
	for i := range storage.Files {
		add("file", storage.Files[i].Path, storage.Files[i].Mode, false)
	}
	for i := range storage.Directories {
		add("directory", storage.Directories[i].Path, storage.Directories[i].Mode, true)
	}
	return warnings
}

// Unreadable reports whether a host reads a path when it pulls, and can't with its mode; needed is
// the mode with which it can.
func Unreadable(path string, isDirectory bool, mode int) (needed int, is bool) {
	need := toRead
	if isDirectory {
		need = toSearch
	}
	return mode | need<<6 | need<<3 | need, mode&need != need && isForPulling(path)
}

func isForPulling(path string) bool {
	if path == "/etc/containers" {
		return true
	}
	for _, known := range pullingPaths {
		if path == known || strings.HasPrefix(path, known+"/") {
			return true
		}
	}
	return false
}
