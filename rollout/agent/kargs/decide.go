package kargs

import (
	"slices"

	"github.com/layerwright/layerwright/machineconfigs/cmdline"
)

// decide is the command line that a host is to have instead of the one that it has, of which entry
// says what is ours, and what will be ours then. All of ours are at the end, in their order. A line
// that has what is wanted stays as it is, wherever a person has put something.
func decide(line []string, entry Entry, want cmdline.Arguments) ([]string, Entry) {
	own, isWhole := without(line, entry.Added)
	own, taken := split(own, func(word string) bool { return !slices.Contains(want.Unwanted, word) })
	taken, _ = without(taken, entry.Removed) // which a person has added again
	removed, back := split(slices.Concat(entry.Removed, taken), func(word string) bool { return slices.Contains(want.Unwanted, word) })
	back, _ = without(back, own)
	own = slices.Concat(own, back)

	var added []string
	for _, word := range want.Exist {
		if !slices.Contains(own, word) {
			added = append(added, word)
		}
	}
	if !hasRun(own, want.Run) {
		added = append(added, want.Run...)
	}
	next := Entry{Added: added, Removed: removed}
	hasUnwanted := slices.ContainsFunc(line, func(word string) bool { return slices.Contains(want.Unwanted, word) })
	if isWhole && !hasUnwanted && len(back) == 0 && slices.Equal(added, entry.Added) {
		next.Line = sum(line)
		return line, next
	}
	to := slices.Concat(own, added)
	next.Line = sum(to)
	return to, next
}

// without is a line without words that were added to it, of which it may have lost some. What a
// host had itself comes first, so that words are taken from the end.
func without(line, words []string) (rest []string, isWhole bool) {
	rest = slices.Clone(line)
	at := len(rest)
	for _, word := range slices.Backward(words) {
		before := lastIndex(rest[:at], word)
		if before < 0 {
			return withoutEach(line, words), false
		}
		rest, at = slices.Delete(rest, before, before+1), before
	}
	return rest, true
}

// withoutEach is a line without words, in whatever order they are there.
func withoutEach(line, words []string) []string {
	rest := slices.Clone(line)
	for _, word := range words {
		if at := lastIndex(rest, word); at >= 0 {
			rest = slices.Delete(rest, at, at+1)
		}
	}
	return rest
}

func lastIndex(words []string, word string) int {
	for i, has := range slices.Backward(words) {
		if has == word {
			return i
		}
	}
	return -1
}

// split tells words that are from those that are not.
func split(words []string, is func(string) bool) (those, others []string) {
	for _, word := range words {
		if is(word) {
			those = append(those, word)
		} else {
			others = append(others, word)
		}
	}
	return those, others
}

// hasRun reports whether a line says what it would if the run were added to it: it has the run, and
// nothing after it has a say in the same.
func hasRun(line, run []string) bool {
	names := map[string]bool{}
	for _, word := range run {
		names[cmdline.Name(word)] = true
	}
	for i := len(line) - len(run); i >= 0; i-- {
		if slices.Equal(line[i:i+len(run)], run) {
			return true
		}
		if names[cmdline.Name(line[i+len(run)-1])] {
			return false
		}
	}
	return false
}
