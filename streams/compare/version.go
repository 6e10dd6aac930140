package compare

import (
	"cmp"
	"strings"
)

// compareVersions orders two versions of a package as its package manager does: negative where the
// first is older.
func compareVersions(kind, a, b string) int {
	parts := compareRPM
	if kind == "deb" {
		parts = compareDeb
	}
	epochA, restA := cutEpoch(a)
	epochB, restB := cutEpoch(b)
	if order := compareDigits(epochA, epochB); order != 0 {
		return order
	}
	versionA, releaseA := cutRelease(restA)
	versionB, releaseB := cutRelease(restB)
	return cmp.Or(parts(versionA, versionB), parts(releaseA, releaseB))
}

func cutEpoch(version string) (epoch, rest string) {
	if epoch, rest, has := strings.Cut(version, ":"); has {
		return epoch, rest
	}
	return "0", version
}

// cutRelease cuts at the last hyphen, as both package managers do.
func cutRelease(version string) (upstream, release string) {
	if at := strings.LastIndexByte(version, '-'); at >= 0 {
		return version[:at], version[at+1:]
	}
	return version, ""
}

// compareRPM is rpm's order: runs of digits and of letters are compared in turn, separators only
// separate, "~" comes before everything, also before the end, and "^" after the end and before
// everything else.
func compareRPM(a, b string) int {
	for a != "" || b != "" {
		a, b = trimSeparators(a), trimSeparators(b)
		if tildeA, tildeB := strings.HasPrefix(a, "~"), strings.HasPrefix(b, "~"); tildeA || tildeB {
			if tildeA != tildeB {
				return before(tildeA)
			}
			a, b = a[1:], b[1:]
			continue
		}
		if caretA, caretB := strings.HasPrefix(a, "^"), strings.HasPrefix(b, "^"); caretA || caretB {
			switch {
			case a == "" || b == "":
				return before(a == "")
			case caretA != caretB:
				return before(caretA)
			}
			a, b = a[1:], b[1:]
			continue
		}
		if a == "" || b == "" {
			break
		}
		if isDigit(a[0]) != isDigit(b[0]) {
			return before(!isDigit(a[0])) // numbers are newer than letters
		}
		kind, compare := isLetter, strings.Compare
		if isDigit(a[0]) {
			kind, compare = isDigit, compareDigits
		}
		var runA, runB string
		runA, a = cutRun(a, kind)
		runB, b = cutRun(b, kind)
		if order := compare(runA, runB); order != 0 {
			return order
		}
	}
	return cmp.Compare(len(a), len(b)) // one is at its end
}

func before(is bool) int {
	if is {
		return -1
	}
	return 1
}

func trimSeparators(text string) string {
	_, rest := cutRun(text, func(c byte) bool { return c != '~' && c != '^' && !isDigit(c) && !isLetter(c) })
	return rest
}

// compareDeb is dpkg's order: runs of anything but digits, and runs of digits, are compared in
// turn. Letters come before other characters, the end before both, and "~" before the end.
func compareDeb(a, b string) int {
	for a != "" || b != "" {
		var runA, runB string
		runA, a = cutRun(a, func(c byte) bool { return !isDigit(c) })
		runB, b = cutRun(b, func(c byte) bool { return !isDigit(c) })
		for i := range max(len(runA), len(runB)) {
			if order := cmp.Compare(weight(runA, i), weight(runB, i)); order != 0 {
				return order
			}
		}
		runA, a = cutRun(a, isDigit)
		runB, b = cutRun(b, isDigit)
		if order := compareDigits(runA, runB); order != 0 {
			return order
		}
	}
	return 0
}

// weight of a character in dpkg's order.
func weight(text string, at int) int {
	const others = 256
	switch {
	case at >= len(text):
		return 0
	case text[at] == '~':
		return -1
	case isLetter(text[at]):
		return int(text[at])
	default:
		return int(text[at]) + others
	}
}

// cutRun cuts after the characters of a kind that a text begins with.
func cutRun(text string, is func(byte) bool) (run, rest string) {
	end := 0
	for end < len(text) && is(text[end]) {
		end++
	}
	return text[:end], text[end:]
}

// compareDigits compares numbers of any length.
func compareDigits(a, b string) int {
	a, b = strings.TrimLeft(a, "0"), strings.TrimLeft(b, "0")
	return cmp.Or(cmp.Compare(len(a), len(b)), strings.Compare(a, b))
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

func isLetter(c byte) bool { return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' }
