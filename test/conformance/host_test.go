//go:build e2e

package conformance

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/layerwright/layerwright/test/host/deployments"
	"github.com/layerwright/layerwright/test/host/machine"
	"github.com/layerwright/layerwright/test/host/pull"
)

// host is a disk of ostree's, and what brings images onto it.
type host interface {
	// deploy pulls an image, verifies it, and makes it what boots next.
	deploy(ctx context.Context, image string) error
	// collect removes what no deployment is made of, as bootc does after it has deployed.
	collect(ctx context.Context) error
	disk() *deployments.Sysroot
}

// newDisk is a disk without a deployment.
func newDisk(t *testing.T, dir string) *deployments.Sysroot {
	t.Helper()
	disk := &deployments.Sysroot{Path: dir, Tool: deployments.Tool{"ostree"}}
	require.NoError(t, disk.Init(t.Context()))
	t.Cleanup(func() { require.NoError(t, machine.Erase(dir)) })
	return disk
}

// upstream imports with ostree-ext, which skopeo serves as a user without rights.
type upstream struct{ *deployments.Sysroot }

func (h upstream) disk() *deployments.Sysroot { return h.Sysroot }

func (h upstream) command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, importer, args...)
	// The variable is systemd's: services serve themselves as another user.
	cmd.Env = append(os.Environ(), "PATH="+skopeo+":"+os.Getenv("PATH"), "INVOCATION_ID=conformance", "LC_ALL=C.UTF-8")
	return cmd
}

func (h upstream) call(ctx context.Context, args ...string) (string, error) {
	out, err := h.command(ctx, args...).CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%w: %s", err, out)
	}
	return string(out), err
}

// deployment are the arguments that deploy an image.
func (h upstream) deployment(image string) []string {
	return []string{
		"container", "image", "deploy", "--sysroot", h.Path, "--stateroot", deployments.Stateroot, "--imgref", "ostree-image-signed:registry:" + image, "--karg", "rw",
	}
}

func (h upstream) deploy(ctx context.Context, image string) error {
	_, err := h.call(ctx, h.deployment(image)...)
	return err
}

func (h upstream) collect(ctx context.Context) error {
	_, err := h.call(ctx, "container", "image", "prune-images", "--sysroot", h.Path, "--full")
	return err
}

// standIn imports with what hosts of the playground have.
type standIn struct{ *deployments.Sysroot }

func (h standIn) disk() *deployments.Sysroot { return h.Sysroot }

func (h standIn) deploy(ctx context.Context, image string) (err error) {
	puller, err := pull.Open(ctx, image)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, puller.Close()) }()
	if err := puller.RequireSignatures(); err != nil {
		return err
	}
	content, err := puller.Image(ctx)
	if err != nil {
		return err
	}
	commit, err := h.Import(ctx, content)
	if err != nil {
		return err
	}
	return h.Deploy(ctx, deployments.Request{Commit: commit, Reference: "ostree-image-signed:docker://" + image, Args: []string{"rw"}})
}

func (h standIn) collect(ctx context.Context) error { return h.Prune(ctx) }

// root is the folder of what boots next.
func root(t *testing.T, h host) string {
	t.Helper()
	list, err := h.disk().List(t.Context())
	require.NoError(t, err)
	return filepath.Join(h.disk().Path, "ostree", "deploy", deployments.Stateroot, "deploy", fmt.Sprintf("%s.%d", list[0].Checksum, list[0].Serial))
}

// deployed is what a host makes of an image.
func deployed(t *testing.T, h host, image string) tree {
	t.Helper()
	require.NoError(t, h.deploy(t.Context(), image))
	require.NoError(t, h.collect(t.Context()))
	require.Equal(t, digestOf(image), digests(t, h)[0])
	return readTree(t, root(t, h))
}

// objects are the files that a host has on disk, by their checksums.
func objects(t *testing.T, h host) tree {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(h.disk().Path, "ostree", "repo", "objects", "*", "*.file"))
	require.NoError(t, err)
	out := tree{}
	for _, file := range found {
		out[filepath.Base(filepath.Dir(file))+filepath.Base(file)] = node{}
	}
	return out
}

// digests are those of the images that a host can boot, what boots next first.
func digests(t *testing.T, h host) (all []string) {
	t.Helper()
	list, err := h.disk().List(t.Context())
	require.NoError(t, err)
	for _, d := range list {
		all = append(all, d.Digest)
	}
	return all
}

func digestOf(image string) string {
	_, digest, _ := strings.Cut(image, "@")
	return digest
}
