package host

import (
	"fmt"
	"regexp"
	"strconv"
)

// version is the beginning of a program's version.
type version struct{ major, minor int }

func (v version) String() string { return fmt.Sprintf("%d.%d", v.major, v.minor) }

func (v version) isBefore(other version) bool {
	return v.major < other.major || v.major == other.major && v.minor < other.minor
}

var versionPattern = regexp.MustCompile(`\b([0-9]{1,5})\.([0-9]{1,5})\b`)

// findVersion reads the first version in what a program says: "bootc 1.1.2", "Version: '2024.6'".
func findVersion(text string) (version, bool) {
	match := versionPattern.FindStringSubmatch(text)
	if match == nil {
		return version{}, false
	}
	major, err := strconv.Atoi(match[1])
	minor, errMinor := strconv.Atoi(match[2])
	return version{major, minor}, err == nil && errMinor == nil
}
