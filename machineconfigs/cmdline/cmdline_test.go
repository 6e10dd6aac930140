package cmdline_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/layerwright/layerwright/machineconfigs/cmdline"
)

func TestSplit(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		line string
		want []string
	}{
		"nothing":                          {"  \t\n", nil},
		"blanks of every kind":             {" a\tb=1\n\vc\f\rd  e ", []string{"a", "b=1", "c", "d", "e"}},
		"blanks between quotes":            {`dyndbg="file drivers/usb/* +p" quiet`, []string{`dyndbg="file drivers/usb/* +p"`, "quiet"}},
		"quotes around the name too":       {`"a b=c d" e`, []string{`"a b=c d"`, "e"}},
		"quotes in the middle":             {`a=b" "c"d e"f g`, []string{`a=b" "c"d e"f`, "g"}},
		"a quote that is not closed":       {`a b="c d e`, []string{"a", `b="c d e`}},
		"a backslash quotes nothing":       {`a=\" b\"`, []string{`a=\" b\"`}},
		"single quotes mean nothing":       {"a='b c'", []string{"a='b", "c'"}},
		"what is there twice":              {"z=4 y=1 z=4", []string{"z=4", "y=1", "z=4"}},
		"a blank of Latin-1":               {"a\xa0b", []string{"a", "b"}},
		"what comes after two dashes":      {"quiet -- single", []string{"quiet", "--", "single"}},
		"an empty value between two words": {`a="" b= =c`, []string{`a=""`, "b=", "=c"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, tt.want, cmdline.Split(tt.line))
		})
	}
}

// FuzzSplit compares with the kernel's own loop, written down as it is in C.
func FuzzSplit(f *testing.F) {
	for _, line := range []string{"", " a b", `a="b c" d`, `"a b" c`, `a"b`, "a\xa0b", `x=" y=" z`} {
		f.Add(line)
	}
	f.Fuzz(func(t *testing.T, line string) {
		words := cmdline.Split(line)
		require.Equal(t, kernel(line), words)
		require.Equal(t, words, cmdline.Split(strings.Join(words, " ")), "words stay whole")
		require.Equal(t, words, cmdline.SplitAll([]string{strings.Join(words, "\t")}))
		for _, word := range words {
			require.NotEmpty(t, word)
			require.NotContains(t, cmdline.Name(word), "=")
		}
	})
}

// kernel is next_arg, called until the line ends.
func kernel(line string) (words []string) {
	isSpace := func(b byte) bool { return strings.IndexByte(" \t\n\v\f\r\xa0", b) >= 0 }
	for args := line; ; {
		for args != "" && isSpace(args[0]) {
			args = args[1:]
		}
		if args == "" {
			return words
		}
		i, inQuote := 0, args[0] == '"'
		if inQuote {
			i++
		}
		for ; i < len(args); i++ {
			if isSpace(args[i]) && !inQuote {
				break
			}
			if args[i] == '"' {
				inQuote = !inQuote
			}
		}
		words = append(words, args[:i])
		args = args[i:]
	}
}

func TestCheck(t *testing.T) {
	t.Parallel()
	for _, entry := range []string{"quiet", "a b=c", `a="b c"`, `""`} {
		require.NoError(t, cmdline.Check(entry))
	}
	require.ErrorContains(t, cmdline.Check(`a="b`), "is not closed")
	require.ErrorContains(t, cmdline.Check("a=à"), "takes for a blank")
}

func TestName(t *testing.T) {
	t.Parallel()
	for word, want := range map[string]string{"quiet": "quiet", "a=b=c": "a", `dyndbg="file x"`: "dyndbg", "=secret": ""} {
		require.Equal(t, want, cmdline.Name(word))
	}
}

func TestJoin(t *testing.T) {
	t.Parallel()
	got := cmdline.Join([]string{"a", "both", "x y", "a splash"}, []string{"quiet splash"}, []string{"b both", "y", "b"})
	require.Equal(t, cmdline.Arguments{Exist: []string{"a", "x"}, Run: []string{"b", "both", "y", "b"}, Unwanted: []string{"quiet", "splash"}}, got)
	require.Equal(t, []string{"a", "x", "b", "both", "y", "b"}, got.Wanted())
	require.False(t, got.IsEmpty())
	require.True(t, got.Equal(cmdline.Arguments{Exist: got.Exist, Run: got.Run, Unwanted: got.Unwanted}))
	require.False(t, got.Equal(cmdline.Arguments{Run: got.Wanted(), Unwanted: got.Unwanted}))
	require.True(t, cmdline.Join[string](nil, nil, nil).IsEmpty())
}
