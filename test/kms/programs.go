package kms

import (
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/layerwright/layerwright/test/cluster/toolchain"
)

// Programs are the programs that sign with keys of services.
type Programs struct{ folder string }

// FindPrograms finds them. A test before `make tools` fails.
func FindPrograms(tb testing.TB) Programs {
	tb.Helper()
	return Programs{find(tb, toolchain.KMS)}
}

// LookPath finds one by its name.
func (p Programs) LookPath(program string) (string, error) {
	return exec.LookPath(filepath.Join(p.folder, program))
}

func find(tb testing.TB, set toolchain.Set) string {
	tb.Helper()
	bin, err := toolchain.FindHere(tb.Context(), set)
	if err != nil {
		tb.Fatal(err)
	}
	return bin
}
