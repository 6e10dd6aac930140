package machine

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/layerwright/layerwright/test/host/deployments"
)

// Installation is what a machine gets before it boots for the first time.
type Installation struct {
	// Image is the operating system, and Name its pinned reference.
	Image v1.Image
	Name  string
	// Seed is a disk that has the image's layers already, or nil.
	Seed *deployments.Sysroot
	// Files are written by whoever installs it, in /etc and /var, by their paths. Root alone can
	// read them, but for what programs without rights pull images with.
	Files map[string][]byte
}

// Install installs the machine, unless it is.
func (m *Machine) Install(ctx context.Context, i *Installation) error {
	disk := &deployments.Sysroot{Path: m.Disk, Tool: deployments.Tool{"ostree"}}
	if err := m.Line.Make(); err != nil {
		return err
	}
	if _, err := disk.NextBoot(); err == nil {
		return nil
	}
	if err := disk.Init(ctx); err != nil {
		return err
	}
	if i.Seed != nil {
		if err := disk.Seed(ctx, i.Seed); err != nil {
			return err
		}
	}
	commit, err := Import(ctx, disk, i.Image)
	if err != nil {
		return err
	}
	request := deployments.Request{Commit: commit, Reference: Unverified + i.Name, Args: []string{"rw", "console=ttyS0"}}
	if err := disk.Deploy(ctx, request); err != nil {
		return err
	}
	return m.write(i.Files)
}

// write writes files into the only deployment there is.
func (m *Machine) write(files map[string][]byte) error {
	stateroot := filepath.Join(m.Disk, "ostree", "deploy", deployments.Stateroot)
	roots, err := filepath.Glob(filepath.Join(stateroot, "deploy", "*.0"))
	if err != nil || len(roots) == 0 {
		return errors.Join(err, fs.ErrNotExist)
	}
	for path, content := range files {
		target := filepath.Join(roots[0], path)
		if strings.HasPrefix(path, "/var/") {
			target = filepath.Join(stateroot, path)
		}
		if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
			return err
		}
		mode := os.FileMode(0o600)
		if strings.HasPrefix(path, "/etc/containers/") {
			mode = 0o644
		}
		if err := os.WriteFile(target, content, mode); err != nil {
			return err
		}
	}
	return nil
}

// Unverified begins the reference of an image that no policy was asked about, as that of whoever
// installs a machine.
const Unverified = "ostree-unverified-registry:"

// Import brings an image onto a disk without a signature, as whoever installs a machine does.
func Import(ctx context.Context, disk *deployments.Sysroot, image v1.Image) (commit string, err error) {
	digest, err := image.Digest()
	if err != nil {
		return "", err
	}
	config, err := image.ConfigFile()
	if err != nil {
		return "", err
	}
	layers, err := image.Layers()
	if err != nil {
		return "", err
	}
	out := &deployments.Image{
		Digest: digest.String(), Version: config.Config.Labels["org.opencontainers.image.version"],
	}
	var unpacked []string
	for _, d := range config.RootFS.DiffIDs {
		unpacked = append(unpacked, d.String())
	}
	if out.Base, err = deployments.FindBase(config.Config.Labels, unpacked); err != nil {
		return "", err
	}
	for _, l := range layers {
		sum, err := l.Digest()
		if err != nil {
			return "", err
		}
		out.Layers = append(out.Layers, deployments.Layer{Digest: sum.String(), Open: func(context.Context) (io.ReadCloser, error) { return l.Uncompressed() }})
	}
	return disk.Import(ctx, out)
}
