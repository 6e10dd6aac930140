package guests

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/layerwright/layerwright/test/cluster/stack/deploy"
	"github.com/layerwright/layerwright/test/cluster/toolchain"
)

// Programs are what makes a bootable system a node that images can be deployed on. What stands
// in for bootc and rpm-ostree is compiled into a folder.
func Programs(ctx context.Context, tools *toolchain.Toolchain, repository, dir string) ([]string, error) {
	kubernetes, err := tools.Find(ctx, toolchain.Kubernetes)
	if err != nil {
		return nil, err
	}
	runtime, err := tools.Find(ctx, toolchain.Node)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	const standIn = "layerwright-host"
	if err := deploy.Make(ctx, repository, "host-binary", "OUT="+filepath.Join(dir, standIn)); err != nil {
		return nil, err
	}
	programs := []string{filepath.Join(dir, standIn)}
	for _, name := range []string{"bootc", "rpm-ostree"} {
		link := filepath.Join(dir, name)
		if err := os.Symlink(standIn, link); err != nil && !errors.Is(err, fs.ErrExist) {
			return nil, err
		}
		programs = append(programs, link)
	}
	for _, name := range []string{"kubernetes", "kubelet"} {
		programs = append(programs, filepath.Join(kubernetes, name))
	}
	for _, name := range []string{"containerd", "containerd-shim-runc-v2", "ctr", "runc", "bridge", "host-local", "loopback"} {
		programs = append(programs, filepath.Join(runtime, name))
	}
	return programs, nil
}
