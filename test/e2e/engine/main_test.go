//go:build e2e

package engine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/layerwright/layerwright/test/cluster/toolchain"
	"github.com/layerwright/layerwright/test/fixtures"
)

// program is the binary under test, tiny the image that builds start from, and packages what
// extensions are installed from.
var (
	program        string
	tiny, packages v1.Image
)

func TestMain(m *testing.M) {
	if text := os.Getenv(containerVariable); text != "" {
		fmt.Fprintln(os.Stderr, "entering a container:", enter(text))
		os.Exit(1)
	}
	if err := prepare(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, "e2e/engine:", err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

func prepare(ctx context.Context) error {
	if os.Geteuid() != 0 {
		return errors.New("these tests need root")
	}
	repository, err := toolchain.RepositoryRoot(".")
	if err != nil {
		return err
	}
	program = filepath.Join(repository, "bin", "layerwright-builder")
	if _, err := os.Stat(program); err != nil {
		return fmt.Errorf("build it with make bin/layerwright-builder: %w", err)
	}
	cache, err := toolchain.CacheDir()
	if err != nil {
		return err
	}
	maker, err := fixtures.New(fixtures.Options{CacheDir: cache, Streams: []fixtures.Stream{fixtures.RHEL9}})
	if err != nil {
		return err
	}
	set, err := maker.Build(ctx, fixtures.Tiny)
	if err != nil {
		return err
	}
	tiny, packages = set.OS[fixtures.RHEL9]["amd64"], set.Extensions[fixtures.RHEL9]["amd64"]
	return nil
}
