package containerfiles_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/containerfiles"
	"github.com/layerwright/layerwright/containerfiles/lint"
	"github.com/layerwright/layerwright/containerfiles/render"
)

func seed(f *testing.F) {
	f.Helper()
	for _, test := range mistakes {
		f.Add([]byte(file(test.text...)))
	}
	for _, test := range shapes {
		f.Add([]byte(test.text))
	}
	for _, test := range broken {
		if len(test.text) < 1000 {
			f.Add([]byte(test.text))
		}
	}
}

// FuzzParse checks that every text is either a Containerfile whose stages are in order and inside
// of it, or an *Error with a line that the text has.
func FuzzParse(f *testing.F) {
	seed(f)
	f.Fuzz(func(t *testing.T, text []byte) {
		lines := strings.Count(string(text), "\n") + 1
		c, err := containerfiles.Parse("x", text)
		if err != nil {
			bad := &containerfiles.Error{}
			require.ErrorAs(t, err, &bad)
			require.LessOrEqual(t, bad.Line, lines)
			require.NotContains(t, err.Error(), "\n")
			return
		}
		last := 0
		for _, stage := range c.Stages() {
			require.Greater(t, stage.Line, last)
			require.GreaterOrEqual(t, stage.EndLine, stage.Line)
			require.LessOrEqual(t, stage.EndLine, lines)
			last = stage.EndLine
		}
		images, err := containerfiles.Images(c, containerfiles.PlatformArgs(mcfgv1.Amd64))
		for _, image := range images {
			require.NotEmpty(t, image.Places)
			require.NotEmpty(t, image.Normalized)
		}
		if err != nil {
			bad := &containerfiles.Error{}
			require.ErrorAs(t, err, &bad)
		}
	})
}

// FuzzLint checks that findings are sorted, inside of the text, of a known rule, and the same each
// time.
func FuzzLint(f *testing.F) {
	seed(f)
	f.Fuzz(func(t *testing.T, text []byte) {
		opts := lint.Options{Architecture: mcfgv1.Amd64, Context: map[string][]byte{"a": nil}}
		c, findings := lint.Check("x", text, opts)
		lines := strings.Count(string(text), "\n") + 1
		last := 0
		for _, finding := range findings {
			require.GreaterOrEqual(t, finding.Line, last)
			require.LessOrEqual(t, finding.EndLine, lines)
			require.NotEmpty(t, finding.Fix)
			require.NotContains(t, finding.Message, "\n")
			last = finding.Line
		}
		if c != nil {
			require.Equal(t, findings, lint.Lint(c, opts))
		}
	})
}

// FuzzRender checks what is true of every rendering, for texts that the linter accepts.
func FuzzRender(f *testing.F) {
	seed(f)
	f.Fuzz(func(t *testing.T, text []byte) {
		c, err := containerfiles.Parse("x", text)
		if err != nil {
			return
		}
		in := render.Input{
			Containerfile: c, BaseImage: baseImage, ConfigImage: configImage, ExtensionsImage: extensionsImage,
			Extensions: []string{"usbguard"}, Architecture: mcfgv1.Amd64, PackageManager: render.RPMOSTree,
			Context: map[string][]byte{"a": nil}, Labels: map[string]string{"a": `it's "b" $c`},
		}
		r, err := render.Render(in)
		if err != nil {
			bad, findings := &containerfiles.Error{}, &lint.Error{}
			require.True(t, errors.As(err, &bad) || errors.As(err, &findings), err)
			return
		}
		requireSound(t, in, r)
	})
}
