package releasetest

import (
	"debug/elf"
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
)

// compiled is a static Go program, compiled once for all tests of a package.
var compiled = sync.OnceValues(func() ([]byte, error) {
	dir, err := os.MkdirTemp("", "program-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	out := filepath.Join(dir, "program")
	cmd := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-ldflags=-s -w", "-o", out, "github.com/layerwright/layerwright/hack/release/releasetest/program") //nolint:gosec // its own
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if text, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("compiling: %w: %s", err, text)
	}
	return os.ReadFile(out) //nolint:gosec // its own
})

// WriteProgram writes a Go program of Linux, and its folder. For another architecture than this
// machine's its header says so, which is all that a release reads of it.
func WriteProgram(tb testing.TB, path string, architecture elf.Machine) {
	tb.Helper()
	content, err := compiled()
	if err != nil {
		tb.Fatal(err)
	}
	content = append([]byte{}, content...)
	const machine = 18 // e_machine in the header of ELF
	binary.LittleEndian.PutUint16(content[machine:], uint16(architecture))
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		tb.Fatal(err)
	}
	if err := os.WriteFile(path, content, 0o700); err != nil { //nolint:gosec // it is run
		tb.Fatal(err)
	}
}

// WritePrograms writes those that a release is made of, for Linux on two architectures, into a
// folder as `make release-programs` does.
func WritePrograms(tb testing.TB, dir string, others ...string) {
	tb.Helper()
	for platform, architecture := range map[string]elf.Machine{"linux-amd64": elf.EM_X86_64, "linux-arm64": elf.EM_AARCH64} {
		for _, name := range []string{"layerwright", "layerwright-agent", "layerwright-builder", "layerwright-kms", "load"} {
			WriteProgram(tb, filepath.Join(dir, platform, name), architecture)
		}
	}
	for _, name := range others {
		WriteProgram(tb, filepath.Join(dir, name), elf.EM_X86_64)
	}
}
