//go:build containers_image_openpgp

package pull

import (
	"cmp"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/klauspost/compress/zstd"
	"github.com/opencontainers/go-digest"
	ociv1 "github.com/opencontainers/image-spec/specs-go/v1"
	"go.podman.io/image/v5/docker"
	"go.podman.io/image/v5/image"
	"go.podman.io/image/v5/manifest"
	"go.podman.io/image/v5/pkg/blobinfocache/none"
	"go.podman.io/image/v5/signature"
	"go.podman.io/image/v5/types"

	"github.com/layerwright/layerwright/test/host/deployments"
)

// AuthFile is where ostree's programs look for logins.
const AuthFile = "/run/ostree/auth.json"

// authFiles are where logins are looked for, the first that exists (ostree-ext, globals.rs).
var authFiles = []string{AuthFile, "/etc/ostree/auth.json", "/usr/lib/ostree/auth.json"}

// Puller reads one image.
type Puller struct {
	source types.ImageSource
	system *types.SystemContext
	policy *signature.PolicyContext
	// isOpen reports whether the policy's default accepts every image.
	isOpen bool
	// Cut ends the first layer in its middle, as a connection that breaks does.
	Cut bool
}

// Open connects to the registry of an image: registry/name@sha256:... Close it.
func Open(ctx context.Context, name string) (*Puller, error) {
	ref, err := docker.ParseReference("//" + name)
	if err != nil {
		return nil, fmt.Errorf("parsing the image name %q: %w", name, err)
	}
	p := &Puller{system: &types.SystemContext{AuthFilePath: authFile()}}
	policy, err := signature.DefaultPolicy(p.system)
	if err != nil {
		return nil, err
	}
	if p.isOpen, err = acceptsAnything(policy.Default); err != nil {
		return nil, err
	}
	if p.policy, err = signature.NewPolicyContext(policy); err != nil {
		return nil, err
	}
	if p.source, err = ref.NewImageSource(ctx, p.system); err != nil {
		return nil, errors.Join(err, p.policy.Destroy())
	}
	return p, nil
}

// acceptsAnything reports whether requirements are the one that every image meets.
func acceptsAnything(requirements signature.PolicyRequirements) (bool, error) {
	text, err := json.Marshal(requirements)
	return string(text) == `[{"type":"insecureAcceptAnything"}]`, err
}

func authFile() string {
	for _, file := range authFiles {
		if _, err := os.Stat(file); err == nil {
			return file
		}
	}
	return AuthFile
}

// Close ends the connection.
func (p *Puller) Close() error { return errors.Join(p.source.Close(), p.policy.Destroy()) }

// RequireSignatures is --enforce-container-sigpolicy: a policy whose default accepts everything is
// refused, whatever it says of the image. What it accepts without a signature otherwise is let
// through (ostree-ext, store.rs).
func (p *Puller) RequireSignatures() error {
	if p.isOpen {
		return errors.New("containers-policy.json specifies a default of `insecureAcceptAnything`; refusing usage")
	}
	return nil
}

// Image asks the policy, and reads what the image consists of.
func (p *Puller) Image(ctx context.Context) (*deployments.Image, error) {
	if _, err := p.policy.IsRunningImageAllowed(ctx, image.UnparsedInstance(p.source, nil)); err != nil {
		return nil, fmt.Errorf("source image rejected: %w", err)
	}
	top, _, err := p.source.GetManifest(ctx, nil)
	if err != nil {
		return nil, err
	}
	sum, err := manifest.Digest(top)
	if err != nil {
		return nil, err
	}
	own, err := p.ownManifest(ctx, top)
	if err != nil {
		return nil, err
	}
	config, err := p.config(ctx, own.Config)
	if err != nil {
		return nil, err
	}
	labels := config.Config.Labels
	if err := requireBootable(labels); err != nil {
		return nil, err
	}
	out := &deployments.Image{Digest: sum.String(), Version: cmp.Or(labels["org.opencontainers.image.version"], labels["version"])}
	var unpacked []string
	for _, d := range config.RootFS.DiffIDs {
		unpacked = append(unpacked, d.String())
	}
	if out.Base, err = deployments.FindBase(labels, unpacked); err != nil {
		return nil, err
	}
	for _, l := range own.Layers {
		out.Layers = append(out.Layers, deployments.Layer{Digest: l.Digest.String(), Open: func(ctx context.Context) (io.ReadCloser, error) {
			return p.layer(ctx, l)
		}})
	}
	return out, nil
}

// requireBootable refuses images that are no operating system, by what they say of themselves.
func requireBootable(labels map[string]string) error {
	for _, label := range []string{"ostree.bootable", "containers.bootc"} {
		if _, has := labels[label]; has {
			return nil
		}
	}
	return errors.New("Target image does not have ostree.bootable label") //nolint:staticcheck // the importer's own words
}

// ownManifest is the manifest for this machine where the image is a list.
func (p *Puller) ownManifest(ctx context.Context, top []byte) (*ociv1.Manifest, error) {
	out := &ociv1.Manifest{}
	kind := manifest.GuessMIMEType(top)
	if !manifest.MIMETypeIsMultiImage(kind) {
		return out, json.Unmarshal(top, out)
	}
	list, err := manifest.ListFromBlob(top, kind)
	if err != nil {
		return nil, err
	}
	chosen, err := list.ChooseInstance(p.system)
	if err != nil {
		return nil, err
	}
	blob, _, err := p.source.GetManifest(ctx, &chosen)
	if err != nil {
		return nil, err
	}
	if matches, err := manifest.MatchesDigest(blob, chosen); err != nil || !matches {
		return nil, errors.Join(err, fmt.Errorf("the registry's manifest %s has another digest", chosen))
	}
	return out, json.Unmarshal(blob, out)
}

func (p *Puller) config(ctx context.Context, d ociv1.Descriptor) (*ociv1.Image, error) {
	blob, err := p.blob(ctx, d)
	if err != nil {
		return nil, err
	}
	defer func() { _ = blob.Close() }()
	out := &ociv1.Image{}
	return out, json.NewDecoder(blob).Decode(out)
}

func (p *Puller) blob(ctx context.Context, d ociv1.Descriptor) (io.ReadCloser, error) {
	stream, _, err := p.source.GetBlob(ctx, types.BlobInfo{Digest: d.Digest, Size: d.Size, MediaType: d.MediaType}, none.NoCache)
	return stream, err
}

// layer opens a layer's tar archive. Its digest is checked at the end.
func (p *Puller) layer(ctx context.Context, d ociv1.Descriptor) (io.ReadCloser, error) {
	blob, err := p.blob(ctx, d)
	if err != nil {
		return nil, err
	}
	l := &layer{blob: blob, verifier: d.Digest.Verifier(), digest: d.Digest}
	if p.Cut {
		l.limit = d.Size/2 + 1
	}
	if strings.HasSuffix(d.MediaType, "+zstd") {
		plain, err := zstd.NewReader(l.packed())
		if err != nil {
			return nil, errors.Join(err, blob.Close())
		}
		l.Reader = plain.IOReadCloser()
		return l, nil
	}
	if l.Reader, err = gzip.NewReader(l.packed()); err != nil {
		return nil, errors.Join(err, blob.Close())
	}
	return l, nil
}

// layer is a layer that is read.
type layer struct {
	io.Reader // the tar archive

	blob     io.ReadCloser
	verifier digest.Verifier
	digest   digest.Digest
	limit    int64
}

func (l *layer) packed() io.Reader {
	all := io.TeeReader(l.blob, l.verifier)
	if l.limit == 0 {
		return all
	}
	return io.MultiReader(io.LimitReader(all, l.limit), broken{})
}

// Close reads what is left, and checks that all of it is what was asked for.
func (l *layer) Close() error {
	_, err := io.Copy(io.Discard, io.TeeReader(l.blob, l.verifier))
	err = errors.Join(err, l.blob.Close())
	if err == nil && !l.verifier.Verified() {
		err = fmt.Errorf("the registry's blob %s has another digest", l.digest)
	}
	return err
}

// errCut is what a program says when the other side goes away.
var errCut = errors.New("reading the blob: connection reset by peer")

type broken struct{}

// Read implements io.Reader.
func (broken) Read([]byte) (int, error) { return 0, errCut }
