package osindex

import (
	"strings"
)

const (
	// maxSystemFile bounds accounts, presets and units.
	maxSystemFile = 64 << 10
	// maxConfigFile bounds other files of /etc.
	maxConfigFile = 16 << 10
	// othersRead is the mode bit of what everyone may read.
	othersRead = 0o004
)

// keeps reports whether a file's content is worth keeping, and harmless. The path is without a
// leading "/".
func keeps(path string, a *attrs, size int64) bool {
	switch {
	case a.kind != File || isSecret(path):
		return false
	case isAccounts(path) || isSystemd(path):
		return size <= maxSystemFile
	default:
		return size <= maxConfigFile && a.mode&othersRead != 0 && isConfig(path)
	}
}

// isSecret reports whether a path is a file with password hashes, or a backup of one.
func isSecret(path string) bool {
	name, ok := strings.CutPrefix(path, "etc/")
	return ok && (strings.HasPrefix(name, "shadow") || strings.HasPrefix(name, "gshadow"))
}

func isAccounts(path string) bool {
	switch path {
	case "etc/passwd", "etc/group", "usr/lib/passwd", "usr/lib/group":
		return true
	}
	return false
}

// isSystemd reports whether a path is a unit, a drop-in or a preset that systemd reads at boot
// (systemd.unit(5), systemd.preset(5)).
func isSystemd(path string) bool {
	for _, dir := range []string{"etc/", "usr/lib/", "lib/", "usr/local/lib/", "run/"} {
		rest, ok := strings.CutPrefix(path, dir+"systemd/")
		if !ok {
			continue
		}
		if strings.HasPrefix(rest, "system/") {
			return true
		}
		return strings.HasPrefix(rest, "system-preset/") && strings.HasSuffix(rest, ".preset")
	}
	return false
}

// isConfig reports whether a path is a file of /etc that configuration may append to. Large
// databases and keys are not.
func isConfig(path string) bool {
	rest, ok := strings.CutPrefix(path, "etc/")
	if !ok {
		return false
	}
	for _, dir := range []string{"pki/", "selinux/", "udev/", "ssl/"} {
		if strings.HasPrefix(rest, dir) {
			return false
		}
	}
	return !strings.HasPrefix(rest, "ssh/") || !strings.HasSuffix(rest, "key")
}
