package streams

import (
	"slices"
	"strconv"
	"strings"
)

// isDowngrade reports whether a stream is of an older major version than another one of the same
// family, as far as names say: letters up to the first other character are the family, the first
// number is the version, so that "rhel-9" and "rhel9-coreos" are rhel 9. It is the rule of the
// admission policy layerwright-pool-stream-downgrade. Names of different families, or without a
// number, say nothing.
func isDowngrade(from, to string) bool {
	fromFamily, fromMajor, ok := parse(from)
	toFamily, toMajor, okTo := parse(to)
	return ok && okTo && fromFamily == toFamily && toMajor < fromMajor
}

// EnterpriseMajor is the major version of a stream of enterprise Linux, as its name says; 0 for
// others, and where the name says nothing.
func EnterpriseMajor(stream string) int {
	family, major, ok := parse(stream)
	if !ok || !slices.Contains([]string{"rhel", "centos"}, family) {
		return 0
	}
	return major
}

// Variant is what a stream's name says beside family and version: "nvidia" of "rhel-10-nvidia",
// nothing of "rhel-10", "rhel10-coreos" and "rhel-10.2".
func Variant(stream string) string {
	words := strings.FieldsFunc(stream[span(stream, isLetter):], func(r rune) bool { return r == '-' || r == '.' })
	return strings.Join(slices.DeleteFunc(words, func(word string) bool {
		return word == "coreos" || span(word, isDigit) == len(word)
	}), "-")
}

// maxMajorDigits is how much of a number is read as a version, as in the policy.
const maxMajorDigits = 4

// parse takes family and major version from a name.
func parse(name string) (family string, major int, ok bool) {
	family = name[:span(name, isLetter)]
	at := strings.IndexFunc(name, isDigit)
	if family == "" || at < 0 {
		return "", 0, false
	}
	digits := name[at:]
	major, err := strconv.Atoi(digits[:min(span(digits, isDigit), maxMajorDigits)])
	return family, major, err == nil
}

// span is the length of the part of text from its beginning that is made of characters of a kind.
func span(text string, is func(rune) bool) int {
	if end := strings.IndexFunc(text, func(r rune) bool { return !is(r) }); end >= 0 {
		return end
	}
	return len(text)
}

func isLetter(r rune) bool { return 'a' <= r && r <= 'z' }

func isDigit(r rune) bool { return '0' <= r && r <= '9' }
