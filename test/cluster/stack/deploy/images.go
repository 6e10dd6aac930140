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

	"github.com/layerwright/layerwright/test/cluster/binimage"
	"github.com/layerwright/layerwright/test/cluster/files"
	"github.com/layerwright/layerwright/test/cluster/node"
	"github.com/layerwright/layerwright/test/cluster/toolchain"
)

// ControllerImage is the name that deploy/ uses for the controller's image.
const ControllerImage = "ghcr.io/layerwright/layerwright"

// localBuilderImage is what the one that buildBuilder makes is called.
const localBuilderImage = "layerwright.test/layerwright-builder"

// localImage is what the image that Build makes is called, so that no one takes
// it for the released one and no node tries to pull it.
const localImage = "layerwright.test/layerwright"

// AgentImage is the name that deploy/ uses for the image of node agents, and localAgentImage what
// the one that Build makes is called.
const (
	AgentImage      = "ghcr.io/layerwright/layerwright-agent"
	localAgentImage = "layerwright.test/layerwright-agent"
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
	binary := filepath.Join(dir, "layerwright")
	if err := compile(ctx, repository, "./cmd/layerwright", binary); err != nil {
		return images, err
	}
	// The program that signs with keys of services, and whom it trusts to be one.
	options := binimage.Options{
		Binary: binary, Cmd: []string{"controller"}, CABundle: machineBundle(),
		Others: map[string][]string{filepath.Join(kms, toolchain.KMS.Name): toolchain.KMS.Links},
	}
	if images.Controller, err = ensureImage(binary+".tar", localImage, options); err != nil {
		return images, err
	}
	if agents {
		if images.Agent, err = buildAgent(ctx, repository, dir); err != nil {
			return images, err
		}
	}
	images.Builder, err = buildBuilder(ctx, repository, dir)
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

// buildAgent compiles the node agent and makes its image, in which it is root as on the host.
func buildAgent(ctx context.Context, repository, dir string) (Image, error) {
	binary := filepath.Join(dir, "layerwright-agent")
	if err := compile(ctx, repository, "./cmd/layerwright-agent", binary); err != nil {
		return Image{}, err
	}
	return ensureImage(binary+".tar", localAgentImage, binimage.Options{Binary: binary, Root: true})
}

// buildBuilder compiles the program of build pods from a checkout into a folder, and makes its
// image in an archive beside it. The image is for root: user namespaces and overlay mounts are made
// by the program itself. The certificates are those of this machine.
func buildBuilder(ctx context.Context, repository, dir string) (Image, error) {
	binary := filepath.Join(dir, "layerwright-builder")
	if err := Make(ctx, repository, "builder-binary", "OUT="+binary); err != nil {
		return Image{}, err
	}
	options := binimage.Options{Binary: binary, Root: true, Folders: []string{"/var/tmp"}, CABundle: machineBundle()}
	return ensureImage(binary+".tar", localBuilderImage, options)
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
