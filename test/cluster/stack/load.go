package stack

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"

	"github.com/layerwright/layerwright/test/cluster/progress"
)

// Load imports an image archive (docker or OCI, a tar file) into every node
// and returns the references that the nodes have not had before.
func (s *Stack) Load(ctx context.Context, archive string, p *progress.Printer) (added []string, err error) {
	info, err := os.Stat(archive)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("there is no image archive %q: give the path of a tar file, as `docker save`, `podman save` or `skopeo copy ... oci-archive:` writes it; an image in a registry needs no loading", archive)
	}
	if err != nil {
		return nil, err
	}
	if info.IsDir() {
		return nil, fmt.Errorf("%q is a folder: give a tar file (of an OCI layout: `tar -C %s -cf image.tar .`)", archive, archive)
	}
	u := &up{Stack: s, UpOptions: UpOptions{Progress: p}}
	if u.state, err = s.load(); err != nil {
		return nil, err
	}
	if u.state.ControlPlaneOnly {
		return nil, fmt.Errorf("cluster %q has no nodes to load an image into: it was made with --control-plane-only", s.name)
	}
	if err := u.prepareDeploy(ctx); err != nil {
		return nil, err
	}
	for _, n := range u.nodes {
		before, err := n.Images(ctx)
		if err != nil {
			return nil, err
		}
		if err := u.step("loading into "+n.Name(), func(ctx context.Context) error { return n.Load(ctx, archive) })(ctx); err != nil {
			return nil, err
		}
		after, err := n.Images(ctx)
		if err != nil {
			return nil, err
		}
		for _, image := range after {
			if !slices.Contains(before, image) && !slices.Contains(added, image) {
				added = append(added, image)
			}
		}
	}
	return added, nil
}
