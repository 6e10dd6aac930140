package plan

import (
	"cmp"
	"regexp"
	"strconv"
)

// MajorMinor is the part of a version that boot images are compared by. The zero value is unknown.
type MajorMinor struct{ Major, Minor int }

// IsZero reports whether the version is unknown.
func (v MajorMinor) IsZero() bool { return v == MajorMinor{} }

// Compare is -1, 0 or 1, as v is before, the same as, or after w.
func (v MajorMinor) Compare(w MajorMinor) int {
	return cmp.Or(cmp.Compare(v.Major, w.Major), cmp.Compare(v.Minor, w.Minor))
}

// String is as in "9.2".
func (v MajorMinor) String() string { return strconv.Itoa(v.Major) + "." + strconv.Itoa(v.Minor) }

// Version is what the version of a boot image says.
type Version struct {
	// OCP is the release of OpenShift that it was made for; only older versions say it.
	OCP MajorMinor
	// RHEL is the version of enterprise Linux.
	RHEL MajorMinor
}

// rhcosVersion is a version of RHEL CoreOS: "415.92.202311241643-0" is OpenShift 4.15 on RHEL 9.2,
// "48.84.202109241901-0" OpenShift 4.8 on RHEL 8.4, and "9.6.20250826-1" RHEL 9.6.
var rhcosVersion = regexp.MustCompile(`^(\d{1,3})\.(\d{1,3})\.(\d{8}|\d{12})-\d+$`)

const (
	tens     = 10
	hundreds = 100
	// ofRelease is the first digit of versions that begin with a release of OpenShift 4.
	ofRelease = 4
)

// ParseVersion reads the version of a boot image. What it does not know stays unknown.
func ParseVersion(version string) Version {
	m := rhcosVersion.FindStringSubmatch(version)
	if m == nil {
		return Version{}
	}
	first, _ := strconv.Atoi(m[1])
	second, _ := strconv.Atoi(m[2])
	var v Version
	switch ofRelease {
	case first / tens: // "48"
		v.OCP = MajorMinor{ofRelease, first % tens}
	case first / hundreds: // "415"
		v.OCP = MajorMinor{ofRelease, first % hundreds}
	default:
		return Version{RHEL: MajorMinor{first, second}}
	}
	if second >= tens { // "92" is RHEL 9.2, "100" is RHEL 10.0
		v.RHEL = MajorMinor{second / tens, second % tens}
	}
	return v
}

// maxRHCOS is how long the API lets a version of RHEL CoreOS be.
const maxRHCOS = 21

// IsRHCOS reports whether a version has the form that the API takes for one of RHEL CoreOS.
func IsRHCOS(version string) bool {
	return len(version) <= maxRHCOS && rhcosVersion.MatchString(version)
}
