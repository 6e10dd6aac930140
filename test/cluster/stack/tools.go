package stack

import (
	"context"
	"errors"
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

// ensureTools builds what is not built yet.
func (u *up) ensureTools(ctx context.Context) error {
	wanted := []struct {
		set toolchain.Set
		bin *string
	}{
		{toolchain.Kubernetes, &u.bin.kubernetes},
		{toolchain.Node, &u.bin.node},
		{toolchain.DNS, &u.bin.dns},
		{toolchain.Pause, &u.bin.pause},
		{toolchain.KMS, &u.bin.kms},
		{toolchain.Tekton, &u.bin.tekton},
	}
	if !u.state.Tekton {
		wanted = wanted[:len(wanted)-1]
	}
	if u.ControlPlaneOnly {
		wanted = wanted[:1]
	}
	for _, w := range wanted {
		var err error
		if *w.bin, err = EnsureSet(ctx, u.tools, w.set, u.Progress); err != nil {
			return err
		}
	}
	return nil
}

// EnsureSet builds a set of programs, with progress, unless it is built.
func EnsureSet(ctx context.Context, tools *toolchain.Toolchain, set toolchain.Set, p *progress.Printer) (bin string, err error) {
	bin, err = tools.Find(ctx, set)
	if missing := (*toolchain.NotBuiltError)(nil); !errors.As(err, &missing) {
		return bin, err
	}
	err = p.Do("building "+set.Name+" (once)", func(step *progress.Step) error {
		bin, err = tools.Ensure(ctx, set, step.Detail)
		return err
	})
	return bin, err
}
