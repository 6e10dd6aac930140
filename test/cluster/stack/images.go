package stack

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"

	"github.com/layerwright/layerwright/test/cluster/await"
	"github.com/layerwright/layerwright/test/cluster/binimage"
	"github.com/layerwright/layerwright/test/cluster/files"
	"github.com/layerwright/layerwright/test/cluster/node"
	"github.com/layerwright/layerwright/test/cluster/toolchain"
)

// ControllerImage is the name that deploy/ uses for the controller's image.
const ControllerImage = "ghcr.io/layerwright/layerwright"

// localBuilderImage is what the one that buildBuilder makes is called.
const localBuilderImage = "layerwright.test/layerwright-builder"

// localImage is what the image that up builds is called, so that no one takes
// it for the released one and no node tries to pull it.
const localImage = "layerwright.test/layerwright"

// AgentImage is the name that deploy/ uses for the image of node agents, and localAgentImage what
// the one that up builds is called.
const (
	AgentImage      = "ghcr.io/layerwright/layerwright-agent"
	localAgentImage = "layerwright.test/layerwright-agent"
)

// controllerImage is an image in an archive, and so are those of build pods and of node agents.
type controllerImage struct {
	tag, archive               string
	builderTag, builderArchive string
	agentTag, agentArchive     string
}

// ensurePauseArchive makes the archive that every node loads. It lies beside
// the program that it is made of, so it goes when that does.
func (u *up) ensurePauseArchive() (string, error) {
	archive := u.bin.pause + ".tar"
	if _, err := os.Stat(archive); !errors.Is(err, fs.ErrNotExist) {
		return archive, err
	}
	_, err := writeImage(archive, node.PauseImage, binimage.Options{Binary: filepath.Join(u.bin.pause, "pause")})
	return archive, err
}

// buildController compiles the light binaries and the builder into the checkout's bin folder, and
// makes their images beside them, so that clusters of the same sources share them.
func (u *up) buildController(image *controllerImage) func(context.Context) error {
	return func(ctx context.Context) error {
		dir := filepath.Join(u.repository, "bin")
		unlock, err := files.Lock(ctx, filepath.Join(dir, ".images.lock"))
		if err != nil {
			return err
		}
		defer unlock()
		binary := filepath.Join(dir, "layerwright")
		if err := u.compile(ctx, "./cmd/layerwright", binary); err != nil {
			return err
		}
		image.archive = binary + ".tar"
		// The program that signs with keys of services, and whom it trusts to be one.
		options := binimage.Options{
			Binary: binary, Cmd: []string{"controller"}, CABundle: machineBundle(),
			Others: map[string][]string{filepath.Join(u.bin.kms, toolchain.KMS.Name): toolchain.KMS.Links},
		}
		if image.tag, err = ensureImage(image.archive, localImage, options); err != nil {
			return err
		}
		if u.state.Hosts {
			if image.agentTag, image.agentArchive, err = u.buildAgent(ctx, dir); err != nil {
				return err
			}
		}
		image.builderTag, image.builderArchive, err = buildBuilder(ctx, u.repository, dir)
		return err
	}
}

// load brings the images onto a node.
func (i *controllerImage) load(ctx context.Context, n *node.Node) error {
	err := errors.Join(n.EnsureImage(ctx, i.tag, i.archive), n.EnsureImage(ctx, i.builderTag, i.builderArchive))
	if i.agentTag != "" {
		err = errors.Join(err, n.EnsureImage(ctx, i.agentTag, i.agentArchive))
	}
	return err
}

// buildAgent compiles the node agent and makes its image, in which it is root as on the host.
func (u *up) buildAgent(ctx context.Context, dir string) (tag, archive string, err error) {
	binary := filepath.Join(dir, "layerwright-agent")
	if err := u.compile(ctx, "./cmd/layerwright-agent", binary); err != nil {
		return "", "", err
	}
	archive = binary + ".tar"
	tag, err = ensureImage(archive, localAgentImage, binimage.Options{Binary: binary, Root: true})
	return tag, archive, err
}

// compileController compiles the light binary into the cluster's folder.
func (u *up) compileController(ctx context.Context) (program string, err error) {
	program = filepath.Join(u.dir, "layerwright")
	return program, u.compile(ctx, "./cmd/layerwright", program)
}

// buildBuilder compiles the program of build pods from a checkout into a folder, and makes its
// image in an archive beside it. The image is for root: user namespaces and overlay mounts are made
// by the program itself. The certificates are those of this machine.
func buildBuilder(ctx context.Context, repository, dir string) (tag, archive string, err error) {
	binary := filepath.Join(dir, "layerwright-builder")
	if err := makeTarget(ctx, repository, "builder-binary", "OUT="+binary); err != nil {
		return "", "", err
	}
	options := binimage.Options{Binary: binary, Root: true, Folders: []string{"/var/tmp"}, CABundle: machineBundle()}
	archive = binary + ".tar"
	tag, err = ensureImage(archive, localBuilderImage, options)
	return tag, archive, err
}

// machineCertificates is where Debian has the certificate authorities that it trusts.
const machineCertificates = "/etc/ssl/certs/ca-certificates.crt"

// machineBundle is that file, and empty where there is none.
func machineBundle() string {
	if _, err := os.Stat(machineCertificates); err != nil {
		return ""
	}
	return machineCertificates
}

// compile builds a program of the checkout as a release is built.
func (u *up) compile(ctx context.Context, pkg, out string) error {
	return makeTarget(ctx, u.repository, "binary", "PKG="+pkg, "OUT="+out)
}

// makeTarget runs make in a checkout. Compiling can wait; the components that start beside it
// should not.
func makeTarget(ctx context.Context, repository, target string, variables ...string) error {
	cmd := exec.CommandContext(ctx, "nice", append([]string{"make", "--no-print-directory", target}, variables...)...)
	cmd.Dir = repository
	if text, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("compiling with make %s %s: %w\n%s", target, strings.Join(variables, " "), err, strings.TrimSpace(string(text)))
	}
	return nil
}

// ensureImage is writeImage, unless the archive was made of the same files already.
func ensureImage(archive, image string, options binimage.Options) (reference string, err error) {
	made, err := describeImage(image, options)
	if err != nil {
		return "", err
	}
	note := archive + ".made"
	if text, err := os.ReadFile(note); err == nil {
		of, tag, _ := strings.Cut(strings.TrimSpace(string(text)), " ")
		if _, err := os.Stat(archive); err == nil && of == made {
			return tag, nil
		}
	}
	if reference, err = writeImage(archive, image, options); err != nil {
		return "", err
	}
	return reference, files.Write(note, []byte(made+" "+reference+"\n"), 0o600)
}

// describeImage is a digest of everything that an image is made of.
func describeImage(image string, options binimage.Options) (string, error) {
	sum := sha256.New()
	_, _ = fmt.Fprintf(sum, "%s %+v", image, options)
	for _, path := range append([]string{options.Binary, options.CABundle}, slices.Sorted(maps.Keys(options.Others))...) {
		if path == "" {
			continue
		}
		file, err := os.Open(path)
		if err != nil {
			return "", err
		}
		_, err = io.Copy(sum, file)
		if err := errors.Join(err, file.Close()); err != nil {
			return "", err
		}
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}

// installTekton brings Tekton onto the cluster, with an image for each of its programs.
func (u *up) installTekton(ctx context.Context) error {
	ctx, cancel := starting(ctx)
	defer cancel()
	tags := map[string]string{}
	for _, program := range toolchain.Tekton.Programs() {
		archive := u.bin.tekton + "-" + program + ".tar" // beside the programs, like the one of pause
		options := binimage.Options{Binary: filepath.Join(u.bin.tekton, program), Path: "/ko-app/" + program}
		tag, err := ensureImage(archive, "layerwright.test/tekton-"+program, options)
		for _, n := range u.nodes {
			if err == nil {
				err = n.EnsureImage(ctx, tag, archive)
			}
		}
		if err != nil {
			return err
		}
		tags[program] = tag
	}
	manifests, err := u.tools.TektonManifests(ctx, tags)
	if err == nil {
		err = u.apply(ctx, manifests)
	}
	if err != nil {
		return err
	}
	return await.Tekton(ctx, u.clients)
}

// writeImage makes an image and puts it into an archive. A name without a tag
// gets one from the image's digest, so that a changed program is a changed
// image to Kubernetes.
func writeImage(archive, image string, options binimage.Options) (reference string, err error) {
	built, err := binimage.Build(options)
	if err != nil {
		return "", fmt.Errorf("making an image of %s: %w", options.Binary, err)
	}
	if !strings.Contains(image, ":") {
		digest, err := built.Digest()
		if err != nil {
			return "", err
		}
		image += ":dev-" + digest.Hex[:12]
	}
	tag, err := name.NewTag(image)
	if err != nil {
		return "", err
	}
	temp, err := os.CreateTemp(filepath.Dir(archive), "."+filepath.Base(archive)+".*")
	if err != nil {
		return "", err
	}
	defer func() { _ = os.Remove(temp.Name()) }()
	if err := errors.Join(binimage.WriteArchive(temp, tag, built), temp.Close()); err != nil {
		return "", fmt.Errorf("writing image archive %s: %w", archive, err)
	}
	return image, os.Rename(temp.Name(), archive)
}
