package host

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/layerwright/layerwright/machineconfigs/cmdline"
)

// kernelArguments reads what `rpm-ostree kargs` says. ostree's own word is another one in each
// deployment, and is written by ostree alone.
func kernelArguments(ctx context.Context, run Runner) ([]string, error) {
	out, err := run.Run(ctx, "rpm-ostree", "kargs")
	if err != nil {
		return nil, err
	}
	words := cmdline.Split(string(out))
	if len(words) == 0 {
		return nil, errors.New("rpm-ostree kargs says nothing")
	}
	line := withoutDeployment(words)
	return line, checkWords(line, "rpm-ostree kargs --editor")
}

// checkWords finds out whether each word of a command line is one to the kernel too. by is what
// changes them.
func checkWords(line []string, by string) error {
	for _, word := range line {
		if cmdline.Check(word) != nil {
			return unsuitable("kernel argument %q of the host can't be read as it is written: the kernel takes all that follows for a part of it; "+
				"correct it on the node with %s", cmdline.Name(word), by)
		}
	}
	return nil
}

// setKernelArguments changes the command line of what boots next in one step. ostree before 2024.5
// takes words apart at blanks between quotes too: it gets them as it knows them.
func setKernelArguments(ctx context.Context, run Runner, change ArgumentChange) error {
	remove, err := runEdits(ctx, run, change)
	if err != nil && slices.ContainsFunc(remove, func(word string) bool { return strings.Contains(word, " ") }) {
		if _, again := runEdits(ctx, run, ArgumentChange{From: piecesOf(change.From), To: piecesOf(change.To)}); again == nil {
			return nil
		}
	}
	return withoutValues(err, change)
}

func piecesOf(line []string) []string { return strings.Split(strings.Join(line, " "), " ") }

func runEdits(ctx context.Context, run Runner, change ArgumentChange) (remove []string, err error) {
	remove, add := edits(change)
	if len(remove)+len(add) == 0 {
		return nil, nil
	}
	args := []string{"kargs"}
	for _, word := range remove {
		args = append(args, "--delete="+word)
	}
	for _, word := range add {
		args = append(args, "--append="+word)
	}
	_, err = run.Run(ctx, "rpm-ostree", args...)
	return remove, err
}

// edits are what rpm-ostree is to remove and then to add. Of a word that is there more than once it
// removes the first, and it adds at the end: as much as possible of the beginning is left alone.
func edits(change ArgumentChange) (remove, add []string) {
	for kept := len(change.To); kept > 0; kept-- {
		if remove, can := reduction(change.From, change.To[:kept]); can {
			return remove, change.To[kept:]
		}
	}
	return change.From, change.To
}

// reduction is what has to be removed from a line so that another one is left; false where that
// can't be had by removing the first of equal words.
func reduction(from, to []string) (remove []string, can bool) {
	surplus := map[string]int{}
	for _, word := range from {
		surplus[word]++
	}
	for _, word := range to {
		surplus[word]--
	}
	var left []string
	for _, word := range from {
		if surplus[word] > 0 {
			surplus[word]--
			remove = append(remove, word)
		} else {
			left = append(left, word)
		}
	}
	return remove, slices.Equal(left, to)
}

// withoutValues is an error whose text has no value of an argument: it may be a password.
func withoutValues(err error, change ArgumentChange) error {
	if err == nil {
		return nil
	}
	text := err.Error()
	for _, word := range slices.Concat(change.From, change.To) {
		asSaid := strings.Join(strings.Fields(word), " ") // as in what programs say
		text = strings.ReplaceAll(strings.ReplaceAll(text, word, cmdline.Name(word)), asSaid, cmdline.Name(word))
	}
	return &redacted{err, text}
}

// redacted is an error with another text.
type redacted struct {
	error

	text string
}

func (r *redacted) Error() string { return r.text }

func (r *redacted) Unwrap() error { return r.error }
