package containerfiles_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/layerwright/layerwright/containerfiles"
	"github.com/layerwright/layerwright/containerfiles/lint"
)

func TestErrorTexts(t *testing.T) {
	t.Parallel()
	cause := errors.New("no stage is named \"tools\"")
	tests := map[string]struct {
		err  error
		want string
	}{
		"a place": {
			&containerfiles.Error{File: "spec.containerFile[NoArch].content", Line: 7, EndLine: 9, Instruction: "COPY", Err: cause},
			`spec.containerFile[NoArch].content line 7: COPY: no stage is named "tools"`,
		},
		"a file":           {&containerfiles.Error{Err: cause}, `Containerfile: no stage is named "tools"`},
		"a missing map":    {&containerfiles.MissingError{Field: "spec.containerFile[AMD64]", ConfigMap: "x"}, `spec.containerFile[AMD64]: ConfigMap "x" does not exist`},
		"a missing key":    {&containerfiles.MissingError{Field: "f", ConfigMap: "x", Key: "y"}, `f: ConfigMap "x" has no key "y"`},
		"one finding":      {&lint.Error{Findings: []lint.Finding{{Line: 3, Message: "m"}}}, "Containerfile line 3: m"},
		"a file's finding": {&lint.Error{File: "x", Findings: []lint.Finding{{Message: "m"}}}, "x: m"},
		"several findings": {&lint.Error{File: "x", Findings: []lint.Finding{{Line: 1, Message: "m"}, {}, {}}}, "x line 1: m (and 2 more errors)"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.EqualError(t, test.err, test.want)
		})
	}
	require.ErrorIs(t, &containerfiles.Error{Err: cause}, cause)
}

func TestParseErrorsHaveNoControlCharacters(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"FROM a\nRUN <<\"\x1b\"\n", "FROM a\nHEALTHCHECK [1\x07]\n", "FROM a\nONBUILD RUN [1]\n", "FROM a\nCMD [\x1b1]\n", "FROM a\nRUN [{}]\n"} {
		_, findings := lint.Check("", []byte(text), lint.Options{})
		for _, f := range findings {
			require.NotRegexp(t, `[\x00-\x1f\x7f]`, f.Message, "%q", text)
		}
	}
}
