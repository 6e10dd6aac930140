package containerfiles_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/containerfiles"
	"github.com/layerwright/layerwright/containerfiles/lint"
	"github.com/layerwright/layerwright/containerfiles/render"
)

// bigFiles have the greatest length that is allowed.
func bigFiles() map[string]string {
	fill := func(head, format string) string {
		b := &strings.Builder{}
		b.WriteString(head)
		for i := 0; b.Len() < containerfiles.MaxLength-200; i++ {
			fmt.Fprintf(b, format, i)
		}
		return b.String()
	}
	return map[string]string{
		"run":    fill("FROM os-base-image\n", "RUN dnf install -y package%d && \\\n    dnf clean all\n"),
		"env":    fill("FROM os-base-image\n", "ENV A%[1]d=\"${A0}x%[1]d\"\n"),
		"stages": fill("FROM os-base-image AS s\n", "FROM s AS s%d\n"),
		"script": fill("FROM os-base-image\nRUN <<EOF\nset -e\n", "mkdir -p /usr/lib/a%d; echo \"x\" | tee /etc/a\n") + "EOF\n",
	}
}

func BenchmarkParseLintRender(b *testing.B) {
	for name, text := range bigFiles() {
		b.Run(name, func(b *testing.B) {
			in := render.Input{
				BaseImage: baseImage, ExtensionsImage: extensionsImage, Extensions: []string{"usbguard"},
				Architecture: mcfgv1.Amd64, PackageManager: render.RPMOSTree,
			}
			b.ReportAllocs()
			b.SetBytes(int64(len(text)))
			for b.Loop() {
				c, findings := lint.Check("x", []byte(text), lint.Options{Architecture: mcfgv1.Amd64})
				in.Containerfile = c
				r, err := render.Render(in)
				require.NoError(b, err)
				require.NotEmpty(b, r.Text)
				require.False(b, lint.HasErrors(findings))
			}
		})
	}
}

// TestBigFilesRender has the shapes that are quadratic where code is careless.
func TestBigFilesRender(t *testing.T) {
	t.Parallel()
	for name, text := range bigFiles() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in := input(t, text)
			r, err := render.Render(in)
			require.NoError(t, err)
			requireSound(t, in, r)
		})
	}
}
