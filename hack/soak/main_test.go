package main

import (
	"context"
	"errors"
	"io"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const events = `{"Action":"start","Package":"p"}
{"Action":"output","Package":"p","Output":"-test.shuffle 42\n"}
{"Action":"fail","Package":"p","Test":"TestA"}
{"Action":"pass","Package":"p","Test":"TestB"}
{"Action":"fail","Package":"p"}
{"Action":"fail","Package":"q"}
`

func TestSoak(t *testing.T) {
	t.Parallel()
	runs := 0
	var out strings.Builder
	err := soak(t.Context(), 3, []string{"./..."}, func(_ context.Context, arguments []string, to io.Writer) error {
		assert.Equal(t, []string{"test", "-json", "-count=1", "-shuffle=on", "./..."}, arguments)
		if runs++; runs == 2 {
			return nil
		}
		_, err := io.WriteString(to, events)
		require.NoError(t, err)
		return &exec.ExitError{}
	}, &out)
	require.EqualError(t, err, "2 tests failed")
	assert.Equal(t, `run 1 of 3: 2 failures
  p TestA (-test.shuffle=42)
  q ()
run 2 of 3: 0 failures
run 3 of 3: 2 failures
  p TestA (-test.shuffle=42)
  q ()
FAILED in 2 of 3 runs: p TestA (-test.shuffle=42)
FAILED in 2 of 3 runs: q ()
`, out.String())
}

func TestSoakThatCannotRun(t *testing.T) {
	t.Parallel()
	broken := errors.New("no such program")
	err := soak(t.Context(), 2, nil, func(context.Context, []string, io.Writer) error { return broken }, io.Discard)
	require.ErrorIs(t, err, broken)
}
