package report

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	testingclock "k8s.io/utils/clock/testing"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/builder/backend"
	"github.com/layerwright/layerwright/internal/fault"
)

func TestFailureOf(t *testing.T) {
	t.Parallel()
	plain := errors.New("it broke")
	tests := map[string]struct {
		err  error
		want backend.StepFailure
		code int
	}{
		"of no one knows what": {
			err:  plain,
			want: backend.StepFailure{Class: fault.Transient, Reason: mcfgv1.ReasonRetryingBuild, Message: "it broke"},
			code: 43,
		},
		"of the administrator": {
			err:  fmt.Errorf("around: %w", NewAdmin(mcfgv1.ReasonBuildFailed, plain)),
			want: backend.StepFailure{Class: fault.Terminal, Reason: mcfgv1.ReasonBuildFailed, Message: "around: it broke"},
			code: 42,
		},
		"of the machine": {
			err:  NewInfrastructure(plain),
			want: backend.StepFailure{Class: fault.Transient, Reason: mcfgv1.ReasonRetryingBuild, Message: "it broke"},
			code: 43,
		},
		"of several, the first that is known": {
			err:  errors.Join(plain, NewAdmin(mcfgv1.ReasonImageNotFound, plain), NewInfrastructure(plain)),
			want: backend.StepFailure{Class: fault.Terminal, Reason: mcfgv1.ReasonImageNotFound, Message: "it broke it broke it broke"},
			code: 42,
		},
		"of an end": {
			err:  fmt.Errorf("pulling: %w", context.Canceled),
			want: backend.StepFailure{Class: fault.Transient, Reason: mcfgv1.ReasonInterrupted, Message: "pulling: context canceled"},
			code: 43,
		},
		"terminal elsewhere": {
			err:  fault.NewTerminal(mcfgv1.ReasonInvalid, plain),
			want: backend.StepFailure{Class: fault.Terminal, Reason: mcfgv1.ReasonInvalid, Message: "it broke"},
			code: 42,
		},
		"waiting elsewhere": {
			err:  fault.NewWaiting(mcfgv1.ReasonWaitingForSecret, time.Minute, plain),
			want: backend.StepFailure{Class: fault.Waiting, Reason: mcfgv1.ReasonWaitingForSecret, Message: "it broke"},
			code: 43,
		},
		"a panic": {
			err: Panicked("index out of range"),
			want: backend.StepFailure{
				Class: fault.Transient, Reason: mcfgv1.ReasonRetryingBuild, Message: "the builder has a mistake that ended it: index out of range",
			},
			code: 43,
		},
		"with a password in a URL": {
			err: errors.New("GET https://me:secret@registry.example/v2/: 500"),
			want: backend.StepFailure{
				Class: fault.Transient, Reason: mcfgv1.ReasonRetryingBuild, Message: fault.Clean("GET https://me:secret@registry.example/v2/: 500"),
			},
			code: 43,
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := FailureOf(tt.err)
			assert.Equal(t, tt.want, *got)
			assert.NotContains(t, got.Message, "secret")
			assert.Equal(t, tt.code, ExitCode(got))
		})
	}
	assert.Zero(t, ExitCode(nil))
	assert.LessOrEqual(t, len([]rune(FailureOf(errors.New(strings.Repeat("long ", 9999))).Message)), maxMessage)
}

func TestPrintable(t *testing.T) {
	t.Parallel()
	tests := map[string]struct{ text, want string }{
		"plain":                {"hello world", "hello world"},
		"colours":              {"\x1b[1;31mred\x1b[0m text", "red text"},
		"a title":              {"\x1b]0;mine\x07text", "text"},
		"progress over itself": {"  1%\r 50%\r100%", "100%"},
		"an end with CR":       {"text\r\n", "text"},
		"bells and zeroes":     {"a\x07b\x00c", "abc"},
		"new lines":            {"a\nb\tc", "a b c"},
		"no UTF-8":             {"a\xffb", "a\uFFFDb"},
		"text turned around":   {"a\u202eb", "ab"},
		"nothing":              {"\x1b[0m\r\n", ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			assert.Equal(t, tt.want, Printable(tt.text))
		})
	}
}

func FuzzPrintable(f *testing.F) {
	f.Add("\x1b[31mred\x1b[0m\r\n")
	f.Fuzz(func(t *testing.T, text string) {
		got := Printable(text)
		assert.NotContains(t, got, "\x1b")
		assert.NotContains(t, got, "\n")
		assert.Equal(t, got, Printable(got), "what is printable stays as it is")
	})
}

func TestTail(t *testing.T) {
	t.Parallel()
	numbers := func(from, to int) (lines []string) {
		for i := from; i <= to; i++ {
			lines = append(lines, fmt.Sprintf("line %d", i))
		}
		return lines
	}
	tests := map[string]struct {
		writes []string
		want   []string
	}{
		"nothing":             {nil, nil},
		"lines in pieces":     {[]string{"li", "ne 1\nline", " 2\n"}, numbers(1, 2)},
		"one without end":     {[]string{"line 1\nline 2"}, numbers(1, 2)},
		"empty ones":          {[]string{"\n\nline 1\n \n"}, numbers(1, 1)},
		"more than are kept":  {[]string{strings.Join(numbers(1, 50), "\n")}, numbers(31, 50)},
		"progress":            {[]string{"1%\r", "2%\r", "3%\ndone\n"}, []string{"3%", "done"}},
		"CRLF in two writes":  {[]string{"line 1\r", "\nline 2\r\n"}, numbers(1, 2)},
		"a long one":          {[]string{strings.Repeat("x", 10000) + "\nend\n"}, []string{strings.Repeat("x", maxLine-1) + "…", "end"}},
		"a long one in parts": {[]string{strings.Repeat("x", 2000), strings.Repeat("y", 2000), "\n"}, []string{strings.Repeat("x", maxLine-1) + "…"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tail := &Tail{}
			for _, text := range tt.writes {
				n, err := tail.Write([]byte(text))
				require.NoError(t, err)
				assert.Equal(t, len(text), n)
			}
			assert.Equal(t, tt.want, tail.Lines())
			tail.Reset()
			assert.Empty(t, tail.Lines())
		})
	}
}

func TestOrigins(t *testing.T) {
	t.Parallel()
	origins := Origins{{First: 1, Last: 2, What: "the offered stages"}, {First: 3, Last: 3}, {First: 4, Last: 9, Admin: 11}}
	for line, want := range map[int]string{
		1: "the offered stages", 2: "the offered stages", 3: "rendered Containerfile line 3",
		4: "Containerfile line 11", 9: "Containerfile line 16", 10: "rendered Containerfile line 10",
	} {
		assert.Equal(t, want, origins.Place(line))
		assert.Equal(t, line <= 2, origins.IsAdded(line), line)
	}
}

func TestRepeatedProgressIsNotWritten(t *testing.T) {
	t.Parallel()
	clk := testingclock.NewFakePassiveClock(time.Unix(0, 0))
	var w bytes.Buffer
	o := NewOutput(&w, backend.Fetch, clk)
	o.Progress(0, 10, "pulling a")
	o.Progress(1, 10, "pulling a") // too soon
	clk.SetTime(time.Unix(2, 0))
	o.Progress(2, 10, "pulling a")
	o.Progress(3, 10, "pulling b")
	o.Progress(10, 10, "pulling b")
	o.Progress(10, 10, "pulling b") // as before
	var got []string
	for line := range strings.Lines(w.String()) {
		text, ok := strings.CutPrefix(line, backend.ProgressPrefix)
		require.True(t, ok, line)
		var p backend.Progress
		require.NoError(t, json.Unmarshal([]byte(text), &p))
		assert.Equal(t, backend.Fetch, p.Step)
		got = append(got, fmt.Sprintf("%d/%d %s", p.Done, p.Total, p.Now))
	}
	assert.Equal(t, []string{"0/10 pulling a", "2/10 pulling a", "3/10 pulling b", "10/10 pulling b"}, got)
}

func TestForeignProgressLinesAreEscaped(t *testing.T) {
	t.Parallel()
	tests := map[string][]string{
		"in one write":       {"##layerwright {}\n"},
		"in pieces":          {"##layer", "wright {}", "\n"},
		"behind a line":      {"hello\n##layerwright {}\n"},
		"without an end":     {"##layerwright {}"},
		"without a space":    {"##layerwright\t{}\n"},
		"behind a very long": {strings.Repeat("x", longest), "##layerwright {}\n"},
	}
	for name, writes := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var w bytes.Buffer
			lines := NewOutput(&w, backend.Build, testingclock.NewFakePassiveClock(time.Unix(0, 0))).Lines()
			for _, text := range writes {
				_, err := lines.Write([]byte(text))
				require.NoError(t, err)
			}
			require.NoError(t, lines.Close())
			assert.Contains(t, w.String(), " ##layerwright", "it is there for people")
			for line := range strings.Lines(w.String()) {
				assert.False(t, strings.HasPrefix(line, "##layerwright"), line)
			}
		})
	}
}

func TestReportsInFiles(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "termination-log")
	assert.Nil(t, Read(file, backend.Push), "there is none")
	want := &backend.Report{Step: backend.Push, Image: "a/b@sha256:1", Failure: &backend.StepFailure{
		Class: fault.Terminal, Message: "m", Output: []string{strings.Repeat("x", 10000), "last"},
	}}
	require.NoError(t, Write(file, want))
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	assert.LessOrEqual(t, len(text), backend.MaxReport)
	got := Read(file, backend.Push)
	require.NotNil(t, got)
	assert.Equal(t, []string{"last"}, got.Failure.Output)
	assert.Nil(t, Read(file, backend.Fetch), "it is another step's")
	require.Error(t, Write(filepath.Join(file, "below"), want))
}
