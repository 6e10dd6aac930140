package fault_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/layerwright/layerwright/internal/fault"
)

var errPlain = errors.New("plain")

func TestClassOf(t *testing.T) {
	t.Parallel()
	waiting := fault.NewWaiting("WaitingForSecret", time.Minute, errPlain)
	terminal := fault.NewTerminal("BadSpec", errPlain)
	tests := map[string]struct {
		err    error
		class  fault.Class
		reason string
		after  time.Duration
	}{
		"no error is no special class":    {err: nil, class: fault.Transient},
		"an unmarked error is transient":  {err: errPlain, class: fault.Transient},
		"the context's end is transient":  {err: context.DeadlineExceeded, class: fault.Transient},
		"waiting":                         {err: waiting, class: fault.Waiting, reason: "WaitingForSecret", after: time.Minute},
		"terminal":                        {err: terminal, class: fault.Terminal, reason: "BadSpec"},
		"waiting, wrapped once":           {err: fmt.Errorf("reading: %w", waiting), class: fault.Waiting, reason: "WaitingForSecret", after: time.Minute},
		"terminal, wrapped twice":         {err: fmt.Errorf("a: %w", fmt.Errorf("b: %w", terminal)), class: fault.Terminal, reason: "BadSpec"},
		"terminal beside a sentinel":      {err: fmt.Errorf("%w: %w", io.EOF, terminal), class: fault.Terminal, reason: "BadSpec"},
		"terminal in the standard join":   {err: errors.Join(io.EOF, terminal), class: fault.Terminal, reason: "BadSpec"},
		"waiting given up is terminal":    {err: fault.NewTerminal("GaveUp", fmt.Errorf("after 3 tries: %w", waiting)), class: fault.Terminal, reason: "GaveUp"},
		"terminal taken back is waiting":  {err: fault.NewWaiting("WaitingForMirror", 0, terminal), class: fault.Waiting, reason: "WaitingForMirror"},
		"a time before now is no time":    {err: fault.NewWaiting("Waiting", -time.Second, errPlain), class: fault.Waiting, reason: "Waiting"},
		"a mark without a reason":         {err: fault.NewTerminal("", errPlain), class: fault.Terminal},
		"a mark on nothing is still true": {err: fault.NewTerminal("BadSpec", nil), class: fault.Terminal, reason: "BadSpec"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			assert.Equal(t, tt.class, fault.ClassOf(tt.err))
			assert.Equal(t, tt.reason, fault.Reason(tt.err))
			assert.Equal(t, tt.after, fault.After(tt.err))
			assert.Equal(t, tt.err != nil && tt.class == fault.Transient, fault.IsTransient(tt.err))
			assert.Equal(t, tt.class == fault.Waiting, fault.IsWaiting(tt.err))
			assert.Equal(t, tt.class == fault.Terminal, fault.IsTerminal(tt.err))
		})
	}
}

func TestIsCancellation(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		err  error
		want bool
	}{
		"no error":           {},
		"another error":      {err: errPlain},
		"no one wants it":    {err: fmt.Errorf("reading: %w", context.Canceled), want: true},
		"out of time":        {err: fmt.Errorf("reading: %w", context.DeadlineExceeded), want: true},
		"a terminal end too": {err: fault.NewTerminal("TimedOut", context.DeadlineExceeded), want: true},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			assert.Equal(t, tt.want, fault.IsCancellation(tt.err))
		})
	}
}

func TestMarksChangeNeitherTextNorIdentity(t *testing.T) {
	t.Parallel()
	cause := fmt.Errorf("reading secret %q: %w", "push", io.ErrUnexpectedEOF)
	for _, err := range []error{fault.NewWaiting("W", 1, cause), fault.NewTerminal("T", cause), fault.Join(cause)} {
		require.EqualError(t, err, `reading secret "push": unexpected EOF`)
		require.ErrorIs(t, err, io.ErrUnexpectedEOF)
	}
}

func TestMarkWithoutErrorHasAText(t *testing.T) {
	t.Parallel()
	require.EqualError(t, fault.NewWaiting("WaitingForPool", time.Second, nil), "WaitingForPool")
	require.EqualError(t, fault.NewTerminal("", nil), "Terminal")
}

func TestJoin(t *testing.T) {
	t.Parallel()
	soon := fault.NewWaiting("Soon", time.Second, errors.New("soon"))
	late := fault.NewWaiting("Late", time.Hour, errors.New("late"))
	watched := fault.NewWaiting("Watched", 0, errors.New("watched"))
	terminal := fault.NewTerminal("BadSpec", errors.New("bad"))
	tests := map[string]struct {
		errs   []error
		class  fault.Class
		reason string
		after  time.Duration
		text   string
	}{
		"an unmarked part is tried again":         {errs: []error{terminal, soon, errPlain}, class: fault.Transient, text: "bad\nsoon\nplain"},
		"waiting comes back, terminal does not":   {errs: []error{terminal, late}, class: fault.Waiting, reason: "Late", after: time.Hour, text: "bad\nlate"},
		"the shortest of several waits counts":    {errs: []error{late, soon}, class: fault.Waiting, reason: "Late", after: time.Second, text: "late\nsoon"},
		"a wait that is watched shortens nothing": {errs: []error{watched, late}, class: fault.Waiting, reason: "Watched", after: time.Hour, text: "watched\nlate"},
		"all terminal": {errs: []error{nil, terminal, fault.NewTerminal("Other", errPlain)}, class: fault.Terminal, reason: "BadSpec", text: "bad\nplain"},
		"joined twice": {errs: []error{fault.Join(terminal, errPlain), terminal}, class: fault.Transient, text: "bad\nplain\nbad"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := fmt.Errorf("doing all: %w", fault.Join(tt.errs...))
			assert.Equal(t, tt.class, fault.ClassOf(err))
			assert.Equal(t, tt.reason, fault.Reason(err))
			assert.Equal(t, tt.after, fault.After(err))
			require.EqualError(t, err, "doing all: "+tt.text)
			for _, part := range tt.errs {
				if part != nil {
					require.ErrorIs(t, err, part)
				}
			}
		})
	}
	require.NoError(t, fault.Join())
	require.NoError(t, fault.Join(nil, nil))
}

func TestClassString(t *testing.T) {
	t.Parallel()
	assert.Equal(t, "Transient Waiting Terminal", fmt.Sprint(fault.Transient, " ", fault.Waiting, " ", fault.Terminal))
}

func TestClassInReports(t *testing.T) {
	t.Parallel()
	for class, word := range map[fault.Class]string{fault.Transient: "Infrastructure", fault.Waiting: "Waiting", fault.Terminal: "Admin"} {
		text, err := class.MarshalText()
		require.NoError(t, err)
		require.Equal(t, word, string(text))
		got := fault.Class(-1)
		require.NoError(t, got.UnmarshalText(text))
		require.Equal(t, class, got)
	}
	got := fault.Terminal
	require.NoError(t, got.UnmarshalText([]byte("forged")))
	require.Equal(t, fault.Transient, got, "a pod can write anything")
}
