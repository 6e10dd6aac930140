package deploy

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/layerwright/layerwright/hack/release/binimage"
	releases "github.com/layerwright/layerwright/hack/release/images"
	"github.com/layerwright/layerwright/test/cluster/files"
	"github.com/layerwright/layerwright/test/cluster/node"
	"github.com/layerwright/layerwright/test/cluster/toolchain"
)

// What the images that Build makes are called, so that no one takes them for the released ones and
// no node tries to pull them.
const (
	localImage        = "layerwright.test/layerwright"
	localAgentImage   = "layerwright.test/layerwright-agent"
	localBuilderImage = "layerwright.test/layerwright-builder"
)

// Image is an image in an archive, by the tag that it has there.
type Image struct {
	Tag, Archive string
}

// Images are those of the controller, of build pods and of node agents. The last one is empty where
// nodes have no agent.
type Images struct {
	Controller, Builder, Agent Image
}

// EnsurePause makes the archive that every node loads, and returns its path. It lies beside the
// folder of the program that it is made of, so it goes when that does.
func EnsurePause(bin string) (archive string, err error) {
	archive = bin + ".tar"
	if _, err := os.Stat(archive); !errors.Is(err, fs.ErrNotExist) {
		return archive, err
	}
	_, err = writeImage(archive, node.PauseImage, binimage.Options{Binary: filepath.Join(bin, "pause")})
	return archive, err
}

// Build compiles the light binaries and the builder into the checkout's bin folder, and makes their
// images beside them, so that clusters of the same sources share them. kms is the folder of the
// program that signs with keys of services; agents says that nodes have agents.
func Build(ctx context.Context, repository, kms string, agents bool) (images Images, err error) {
	dir := filepath.Join(repository, "bin")
	unlock, err := files.Lock(ctx, filepath.Join(dir, ".images.lock"))
	if err != nil {
		return images, err
	}
	defer unlock()
	programs := releases.Programs{Folder: dir, KMS: kms, CABundle: machineBundle()}
	binary := filepath.Join(dir, "layerwright")
	if err := compile(ctx, repository, "./cmd/layerwright", binary); err != nil {
		return images, err
	}
	if images.Controller, err = ensureImage(binary+".tar", localImage, programs.Controller()); err != nil {
		return images, err
	}
	if agents {
		binary := filepath.Join(dir, "layerwright-agent")
		if err := compile(ctx, repository, "./cmd/layerwright-agent", binary); err != nil {
			return images, err
		}
		if images.Agent, err = ensureImage(binary+".tar", localAgentImage, programs.Agent()); err != nil {
			return images, err
		}
	}
	binary = filepath.Join(dir, "layerwright-builder")
	if err := Make(ctx, repository, "builder-binary", "OUT="+binary); err != nil {
		return images, err
	}
	images.Builder, err = ensureImage(binary+".tar", localBuilderImage, programs.Builder())
	return images, err
}

// Load brings the images onto a node.
func (i *Images) Load(ctx context.Context, n *node.Node) error {
	err := errors.Join(i.Controller.load(ctx, n), i.Builder.load(ctx, n))
	if i.Agent.Tag != "" {
		err = errors.Join(err, i.Agent.load(ctx, n))
	}
	return err
}

// Push pushes the image to a registry.
func (i Image) Push(ctx context.Context, to string, options ...remote.Option) (err error) {
	ref, err := name.NewTag(to)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "image-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if out, err := exec.CommandContext(ctx, "tar", "-xf", i.Archive, "-C", dir).CombinedOutput(); err != nil {
		return fmt.Errorf("unpacking %s: %w: %s", i.Archive, err, out)
	}
	index, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		return err
	}
	list, err := index.IndexManifest()
	if err != nil {
		return err
	}
	image, err := index.Image(list.Manifests[0].Digest)
	if err != nil {
		return err
	}
	return remote.Write(ref, image, options...)
}

func (i Image) load(ctx context.Context, n *node.Node) error {
	return n.EnsureImage(ctx, i.Tag, i.Archive)
}

// machineCertificates is where Debian has the certificate authorities that it trusts.
const machineCertificates = "/etc/ssl/certs/ca-certificates.crt"

// machineBundle is the path of that file; empty where there is none.
func machineBundle() string {
	if _, err := os.Stat(machineCertificates); err != nil {
		return ""
	}
	return machineCertificates
}

// LoadTekton makes an image of each program in the folder of Tekton's, brings them onto the nodes,
// and returns their tags by program.
func LoadTekton(ctx context.Context, bin string, nodes []*node.Node) (tags map[string]string, err error) {
	tags = map[string]string{}
	for _, program := range toolchain.Tekton.Programs() {
		archive := bin + "-" + program + ".tar" // beside the programs, like the one of pause
		options := binimage.Options{Binary: filepath.Join(bin, program), Path: "/ko-app/" + program}
		image, err := ensureImage(archive, "layerwright.test/tekton-"+program, options)
		for _, n := range nodes {
			if err == nil {
				err = image.load(ctx, n)
			}
		}
		if err != nil {
			return nil, err
		}
		tags[program] = image.Tag
	}
	return tags, nil
}
