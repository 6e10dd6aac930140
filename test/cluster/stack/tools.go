package stack

import (
	"context"
	"path/filepath"

	"github.com/layerwright/layerwright/test/cluster/progress"
	"github.com/layerwright/layerwright/test/cluster/toolchain"
)

// AuthorityVariable has the path of Authority in what Environment gives a shell.
const AuthorityVariable = "LAYERWRIGHT_REGISTRY_CA"

// Authority is the path of the certificate that the registry's is signed by.
func (s *Stack) Authority() string { return filepath.Join(s.dir, "pki", "ca.crt") }

// FindTools returns the folder with a set of programs, or a *toolchain.NotBuiltError.
func (s *Stack) FindTools(ctx context.Context, set toolchain.Set) (bin string, err error) {
	return s.tools.Find(ctx, set)
}

// EnsureTools is FindTools that builds the programs if they are not built, with progress.
func (s *Stack) EnsureTools(ctx context.Context, set toolchain.Set, p *progress.Printer) (bin string, err error) {
	return EnsureSet(ctx, s.tools, set, p)
}
