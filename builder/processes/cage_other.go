//go:build !linux

package processes

import (
	"context"
	"errors"
	"os"
	"os/exec"
)

func cacheDir() (string, error) { return os.UserCacheDir() }

// cage does not exist here.
type cage struct{}

func newCage(string, string) (cage, error) {
	return cage{}, errors.New("content is built on Linux alone: build on a cluster, or on a machine with Linux")
}

func (cage) own(string) error { return nil }

func (cage) command(ctx context.Context, args ...string) *exec.Cmd {
	return exec.CommandContext(ctx, args[0], args[1:]...) //nolint:gosec // it is never called
}

func (cage) explain(err error) error { return err }

func (cage) remove(_ context.Context, dir string) error { return os.RemoveAll(dir) }
