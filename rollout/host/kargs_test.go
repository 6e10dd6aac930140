package host

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/layerwright/layerwright/internal/fault"
)

// kargsRunner is rpm-ostree with a command line. That of before ostree 2024.5 takes words apart at
// all blanks.
type kargsRunner struct {
	line  string
	isOld bool
	calls int
}

func (r *kargsRunner) split(line string) []string {
	if r.isOld {
		return strings.Split(line, " ")
	}
	quoted := false
	return strings.FieldsFunc(line, func(c rune) bool {
		quoted = quoted != (c == '"')
		return c == ' ' && !quoted
	})
}

func (r *kargsRunner) Run(_ context.Context, name string, args ...string) ([]byte, error) {
	if name != "rpm-ostree" || args[0] != "kargs" {
		return nil, ErrNoProgram
	}
	if len(args) == 1 {
		return []byte(r.line + "\n"), nil
	}
	r.calls++
	words := r.split(r.line)
	var added []string
	for _, arg := range args[1:] {
		if word, is := strings.CutPrefix(arg, "--append="); is {
			added = append(added, word)
			continue
		}
		word := strings.TrimPrefix(arg, "--delete=")
		at := slices.Index(words, word)
		if at < 0 {
			return nil, failed(name, args, fmt.Sprintf("error: No karg '%s' found\n", word), errors.New("exit status 1"))
		}
		words = slices.Delete(words, at, at+1)
	}
	r.line = strings.Join(slices.Concat(words, added), " ")
	return nil, nil
}

// TestEditsOfAnyLine gets from any command line to any other, and leaves alone what can stay.
func TestEditsOfAnyLine(t *testing.T) {
	t.Parallel()
	for seed := range uint64(500) {
		r := rand.New(rand.NewPCG(seed, 1)) //nolint:gosec // a seed makes it repeatable
		words := func() []string {
			out := []string{"root=x"}
			for range r.IntN(7) {
				out = append(out, []string{"quiet", "a=1", "a=2", `b="c d"`, `e="f d"`, `"` + "g h=1" + `"`}[r.IntN(6)])
			}
			return out
		}
		change := ArgumentChange{From: words(), To: words()}
		for _, isOld := range []bool{false, true} {
			run := &kargsRunner{line: strings.Join(change.From, " "), isOld: isOld}
			require.NoError(t, setKernelArguments(t.Context(), run, change), "seed %d: %v", seed, change)
			require.Equal(t, strings.Join(change.To, " "), run.line, "seed %d", seed)
		}
		remove, _ := edits(change)
		require.NotContains(t, remove, "root=x", "seed %d", seed)
	}
}

func TestKernelArgumentsOfAHost(t *testing.T) {
	t.Parallel()
	got, err := kernelArguments(t.Context(), &kargsRunner{line: `rw ostree=/ostree/boot.1/x a="b c" z z`})
	require.NoError(t, err)
	require.Equal(t, []string{"rw", `a="b c"`, "z", "z"}, got)

	_, err = kernelArguments(t.Context(), &kargsRunner{})
	require.ErrorContains(t, err, "says nothing")

	_, err = kernelArguments(t.Context(), &kargsRunner{line: `rw a="secret z`})
	require.ErrorContains(t, err, `kernel argument "a" of the host can't be read`)
	require.NotContains(t, err.Error(), "secret")
	assert.True(t, fault.IsTerminal(err))
}

func TestErrorsHaveNoValues(t *testing.T) {
	t.Parallel()
	err := setKernelArguments(t.Context(), &kargsRunner{line: "rw"}, ArgumentChange{From: []string{"rw", `pass="my  secret"`}, To: []string{"rw", "other=secret"}})
	require.ErrorContains(t, err, "exit status 1: error: No karg 'pass' found")
	require.NotContains(t, err.Error(), "secret")
}
