package sbom_test

import (
	"bytes"
	"debug/elf"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/spdx/tools-golang/json"
	"github.com/spdx/tools-golang/spdxlib"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/layerwright/layerwright/hack/release/releasetest"
	"github.com/layerwright/layerwright/hack/release/sbom"
)

func TestMake(t *testing.T) {
	t.Parallel()
	amd64, arm64 := filepath.Join(t.TempDir(), "layerwright"), filepath.Join(t.TempDir(), "layerwright")
	releasetest.WriteProgram(t, amd64, elf.EM_X86_64)
	releasetest.WriteProgram(t, arm64, elf.EM_AARCH64)
	subject := sbom.Subject{
		Name: "ghcr.io/layerwright/layerwright", Version: "v0.1.0", Digest: "sha256:" + string(bytes.Repeat([]byte("a"), 64)),
		PackageURL: "pkg:oci/layerwright@sha256:aa", Created: time.Unix(1_700_000_000, 0),
		Programs: []sbom.Program{{Path: amd64, Platform: "linux-amd64"}, {Path: arm64, Platform: "linux-arm64"}},
		Others:   []sbom.Other{{Name: "ca-certificates", Version: "20230311+deb12u1", Comment: "The certificate authorities."}},
	}
	text, err := sbom.Make(subject)
	require.NoError(t, err)
	again, err := sbom.Make(subject)
	require.NoError(t, err)
	assert.True(t, bytes.Equal(text, again), "the same programs give the same bytes")

	document, err := json.Read(bytes.NewReader(text))
	require.NoError(t, err)
	require.NoError(t, spdxlib.ValidateDocument(document))
	var urls []string
	for _, p := range document.Packages {
		urls = append(urls, p.PackageExternalReferences[0].Locator)
	}
	const program = "pkg:golang/github.com/layerwright/layerwright/hack/release/releasetest/program@v0.1.0"
	assert.Equal(t, []string{
		"pkg:oci/layerwright@sha256:aa", program, "pkg:golang/golang.org/x/mod@" + modVersion(t),
		"pkg:golang/stdlib@" + strings.TrimPrefix(runtime.Version(), "go"), program, "pkg:deb/debian/ca-certificates@20230311%2Bdeb12u1",
	}, urls, "what both link is there once")

	subject.Programs = []sbom.Program{{Path: "/etc/passwd"}}
	_, err = sbom.Make(subject)
	require.ErrorContains(t, err, `program "/etc/passwd"`)
}

// modVersion is the version of a module that the program links, which is this module's.
func modVersion(t *testing.T) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f={{.Version}}", "golang.org/x/mod").Output()
	require.NoError(t, err)
	return strings.TrimSpace(string(out))
}
