package cmdline

import (
	"errors"
	"slices"
	"strings"
)

// Split takes a command line apart as the kernel does (next_arg in lib/cmdline.c): at blanks that
// are not between double quotes. Quotes stay where they are.
func Split(line string) []string {
	var words []string
	start, isQuoted := -1, false
	for i := range len(line) {
		switch {
		case isBlank(line[i]) && !isQuoted:
			if start >= 0 {
				words = append(words, line[start:i])
			}
			start = -1
			continue
		case line[i] == '"':
			isQuoted = !isQuoted
		}
		if start < 0 {
			start = i
		}
	}
	if start >= 0 {
		words = append(words, line[start:])
	}
	return words
}

// nbsp is a blank for the kernel, which reads Latin-1, and a part of some letters in UTF-8.
const nbsp = 0xa0

func isBlank(b byte) bool { return b == ' ' || b >= '\t' && b <= '\r' || b == nbsp }

// SplitAll takes entries apart of which each may have several words.
func SplitAll[T ~string](entries []T) []string {
	var words []string
	for _, entry := range entries {
		words = append(words, Split(string(entry))...)
	}
	return words
}

// Name is a word without its value, which may be a password.
func Name(word string) string {
	name, _, _ := strings.Cut(word, "=")
	return name
}

// Check finds out whether the kernel reads an entry as it is written, whatever comes after it.
func Check(entry string) error {
	switch {
	case strings.Count(entry, `"`)%2 != 0:
		return errors.New("has a double quote that is not closed, so that it would take in all that follows: close or remove it")
	case strings.IndexByte(entry, nbsp) >= 0:
		return errors.New("has a character that the kernel takes for a blank: use plain ASCII")
	}
	return nil
}

// Arguments are what a configuration wants of a command line, one word each.
type Arguments struct {
	// Exist are to be there, wherever. None of them is in Run or Unwanted.
	Exist []string
	// Run are to be there in this order, as often as they are listed.
	Run []string
	// Unwanted are not to be there.
	Unwanted []string
}

// Join joins the places where a configuration says arguments: the two lists of Ignition, and
// spec.kernelArguments. Their entries may have several words.
func Join[T ~string](shouldExist, shouldNotExist []T, spec []string) Arguments {
	a := Arguments{Run: SplitAll(spec), Unwanted: SplitAll(shouldNotExist)}
	for _, word := range SplitAll(shouldExist) {
		if !slices.Contains(slices.Concat(a.Run, a.Exist, a.Unwanted), word) {
			a.Exist = append(a.Exist, word)
		}
	}
	return a
}

// Wanted are those that are to be there, in the order in which they are added.
func (a Arguments) Wanted() []string { return slices.Concat(a.Exist, a.Run) }

// Equal reports whether two configurations want the same.
func (a Arguments) Equal(b Arguments) bool {
	return slices.Equal(a.Exist, b.Exist) && slices.Equal(a.Run, b.Run) && slices.Equal(a.Unwanted, b.Unwanted)
}

// IsEmpty reports whether a configuration wants nothing.
func (a Arguments) IsEmpty() bool { return len(a.Exist)+len(a.Run)+len(a.Unwanted) == 0 }
