package processes_test

import (
	"io"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/utils/clock"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/builder/backend"
	"github.com/layerwright/layerwright/builder/processes"
	"github.com/layerwright/layerwright/internal/fault"
)

func build(t *testing.T, architecture string) error {
	t.Helper()
	known, is := mcfgv1.ArchitectureFromOCI(architecture)
	require.True(t, is)
	b := processes.New(processes.Options{
		Program: "/nowhere/layerwright-builder", Keychain: authn.DefaultKeychain, Out: io.Discard, Clock: clock.RealClock{},
	})
	_, err := b.Build(t.Context(), &backend.Spec{Architectures: []backend.ArchitectureSpec{{Architecture: known}}})
	return err
}

func TestOtherArchitecturesAreRefused(t *testing.T) {
	t.Parallel()
	err := build(t, "s390x")
	require.ErrorContains(t, err, "the content for s390x can't be built on this machine, which is "+runtime.GOARCH+": name the architectures")
	assert.Equal(t, mcfgv1.ReasonBuilderNotAvailable, fault.Reason(err))
}

func TestTheFolderIsNotHiddenFromTheSteps(t *testing.T) {
	t.Setenv("TMPDIR", "/var/tmp/builds")
	require.ErrorContains(t, build(t, runtime.GOARCH), "TMPDIR is below /var/tmp, which the steps of a build have of their own; name another folder")
}

func TestNothingIsLeftOfABuildThatCannotBegin(t *testing.T) {
	folder := t.TempDir()
	t.Setenv("TMPDIR", folder)
	require.ErrorContains(t, build(t, runtime.GOARCH), "preparing the build in")
	left, err := filepath.Glob(folder + "/build-*")
	require.NoError(t, err)
	assert.Empty(t, left)
}

func TestKeysOfConfigMapsNameNoOtherFiles(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	known, is := mcfgv1.ArchitectureFromOCI(runtime.GOARCH)
	require.True(t, is)
	b := processes.New(processes.Options{Program: "/nowhere/layerwright-builder", Keychain: authn.DefaultKeychain, Out: io.Discard, Clock: clock.RealClock{}})
	_, err := b.Build(t.Context(), &backend.Spec{Architectures: []backend.ArchitectureSpec{{Architecture: known, Context: map[string][]byte{"../../.bashrc": []byte("evil")}}}})
	require.ErrorContains(t, err, `key "../../.bashrc" of the Containerfile's ConfigMap`)
	assert.Equal(t, mcfgv1.ReasonInvalidContainerfile, fault.Reason(err))
}
