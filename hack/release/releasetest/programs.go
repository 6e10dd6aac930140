package releasetest

import (
	"debug/elf"
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
)

// source is a program that prints its arguments.
const source = "package main\n\nimport \"os\"\n\nfunc main() {\n\tfor _, a := range os.Args[1:] {\n\t\tos.Stdout.WriteString(a + \"\\n\")\n\t}\n}\n"

// compiled is a static Go program, compiled once for all tests of a package.
var compiled = sync.OnceValues(func() ([]byte, error) {
	dir, err := os.MkdirTemp("", "program-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	for name, text := range map[string]string{"main.go": source, "go.mod": "module github.com/layerwright/layerwright\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			return nil, err
		}
	}
	cmd := exec.Command("go", "build", "-trimpath", "-ldflags=-s -w", "-o", "program", ".")
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=", "GOWORK=off")
	if _, err := cmd.Output(); err != nil {
		return nil, err
	}
	return os.ReadFile(filepath.Join(dir, "program"))
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
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		tb.Fatal(err)
	}
	if err := os.WriteFile(path, content, 0o755); err != nil {
		tb.Fatal(err)
	}
}

// WritePrograms writes those that a release is made of, for Linux on two architectures, into a folder
// as `make release-programs` does.
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
