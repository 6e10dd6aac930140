package containerfiles_test

import (
	"errors"
	"slices"
	"strings"
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
		"what to do":       {&lint.Error{Findings: []lint.Finding{{Line: 3, Message: "m", Fix: "Do it."}}}, "Containerfile line 3: m. Do it"},
		"several findings": {
			&lint.Error{File: "x", Findings: []lint.Finding{
				{Line: 1, Reason: "A", Message: "m", Fix: "Do it."},
				{Line: 2, Reason: "A", Message: "n", Fix: "Do it."},
				{Line: 9, Reason: "B", Message: "o", Fix: "Leave it."},
			}},
			"x line 1: m. Do it; line 2: n; line 9: o. Leave it",
		},
		"more findings than anyone reads": {
			&lint.Error{File: "x", Findings: slices.Repeat([]lint.Finding{{Line: 1, Reason: "A", Message: strings.Repeat("m", 300)}}, 5)},
			"x line 1: " + strings.Repeat("m", 300) + "; line 1: " + strings.Repeat("m", 300) + "; and 3 more errors",
		},
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
