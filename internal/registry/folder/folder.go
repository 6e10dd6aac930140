package folder

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/match"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/types"
	imagespec "github.com/opencontainers/image-spec/specs-go/v1"
)

// Folder is a folder that stands for one repository. Close it when it is not needed any more.
type Folder struct {
	path       layout.Path
	repository name.Repository
	server     *http.Server
	client     *http.Transport
}

// Open has a folder stand for a repository, with the images that it has. A folder that is not there
// has none.
func Open(ctx context.Context, path, repository string) (*Folder, error) {
	f, err := open(path, repository)
	if err != nil {
		return nil, fmt.Errorf("opening the folder %q: %w", path, err)
	}
	if err := f.load(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("reading the images of the folder %q: %w", path, err), f.Close())
	}
	return f, nil
}

func open(path, repository string) (*Folder, error) {
	repo, err := name.NewRepository(repository, name.Insecure)
	if err != nil {
		return nil, err
	}
	there, err := layout.FromPath(path)
	if errors.Is(err, fs.ErrNotExist) {
		there, err = layout.Write(path, empty.Index)
	}
	blobs := filepath.Join(path, "blobs")
	if err == nil {
		err = os.MkdirAll(blobs, 0o755) //nolint:gosec // images are for everyone whom the folder is for
	}
	if err != nil {
		return nil, err
	}
	silent := log.New(io.Discard, "", 0)
	at := &pipe{conns: make(chan net.Conn), closed: make(chan struct{})}
	f := &Folder{
		path: there, repository: repo,
		server: &http.Server{
			Handler:  registry.New(registry.Logger(silent), registry.WithBlobHandler(registry.NewDiskBlobHandler(blobs))),
			ErrorLog: silent, ReadHeaderTimeout: time.Minute,
		},
		client: &http.Transport{DialContext: at.dial, DialTLSContext: at.dial},
	}
	go func() { _ = f.server.Serve(at) }() // it says that it was closed
	return f, nil
}

// Close ends what answers for the folder.
func (f *Folder) Close() error {
	f.client.CloseIdleConnections()
	return f.server.Close()
}

// Wrap is a transport that answers requests to the repository's registry from the folder, and has
// another one make all others.
func (f *Folder) Wrap(next http.RoundTripper) http.RoundTripper { return &route{f, next} }

type route struct {
	folder *Folder
	next   http.RoundTripper
}

// RoundTrip makes a request.
func (r *route) RoundTrip(request *http.Request) (*http.Response, error) {
	if request.URL.Host == r.folder.repository.RegistryStr() {
		return r.folder.client.RoundTrip(request)
	}
	return r.next.RoundTrip(request)
}

func (f *Folder) options(ctx context.Context) []remote.Option {
	return []remote.Option{remote.WithContext(ctx), remote.WithTransport(f.client)}
}

// load tells the registry of the images in the folder. It finds their blobs itself.
func (f *Folder) load(ctx context.Context) error {
	index, err := f.path.ImageIndex()
	if err != nil {
		return err
	}
	list, err := index.IndexManifest()
	if err != nil {
		return err
	}
	for _, d := range list.Manifests {
		if err := f.loadOne(ctx, d); err != nil {
			return err
		}
	}
	return nil
}

// stored is a manifest as it is stored.
type stored struct {
	text  []byte
	media types.MediaType
}

// RawManifest is its text.
func (s stored) RawManifest() ([]byte, error) { return s.text, nil }

// MediaType is what it is.
func (s stored) MediaType() (types.MediaType, error) { return s.media, nil }

// loadOne loads a manifest, after those that it lists.
func (f *Folder) loadOne(ctx context.Context, d v1.Descriptor) error {
	text, err := f.path.Bytes(d.Digest)
	if err != nil {
		return err
	}
	// An index that lists itself has another digest.
	if digest, _, err := v1.SHA256(bytes.NewReader(text)); err != nil || digest != d.Digest {
		return errors.Join(fmt.Errorf("%s is damaged: its content has another digest", d.Digest), err)
	}
	if d.MediaType.IsIndex() {
		list, err := v1.ParseIndexManifest(bytes.NewReader(text))
		if err != nil {
			return fmt.Errorf("reading the index %s: %w", d.Digest, err)
		}
		for _, part := range list.Manifests {
			if err := f.loadOne(ctx, part); err != nil {
				return err
			}
		}
	}
	var ref name.Reference = f.repository.Digest(d.Digest.String())
	if tag := d.Annotations[imagespec.AnnotationRefName]; tag != "" {
		ref = f.repository.Tag(tag)
	}
	return remote.Put(ref, stored{text, d.MediaType}, f.options(ctx)...)
}

// Save writes to the folder what the repository has by its tags.
func (f *Folder) Save(ctx context.Context) error {
	tags, err := remote.List(f.repository, f.options(ctx)...)
	if err != nil {
		return fmt.Errorf("writing the images of the folder %q: %w", f.path, err)
	}
	slices.Sort(tags)
	for _, tag := range tags {
		if err := f.saveOne(ctx, f.repository.Tag(tag), tag); err != nil {
			return fmt.Errorf("writing the images of the folder %q: %w", f.path, err)
		}
	}
	return nil
}

// saveOne writes a manifest and those that it lists. One with a tag takes the place of the one that
// had it.
func (f *Folder) saveOne(ctx context.Context, ref name.Reference, tag string) error {
	found, err := remote.Get(ref, f.options(ctx)...)
	if err != nil {
		return err
	}
	if found.MediaType.IsIndex() {
		list, err := v1.ParseIndexManifest(bytes.NewReader(found.Manifest))
		if err != nil {
			return err
		}
		for _, part := range list.Manifests {
			if err := f.saveOne(ctx, f.repository.Digest(part.Digest.String()), ""); err != nil {
				return err
			}
		}
	}
	if err := f.path.WriteBlob(found.Digest, io.NopCloser(bytes.NewReader(found.Manifest))); err != nil || tag == "" {
		return err
	}
	if err := f.path.RemoveDescriptors(match.Annotation(imagespec.AnnotationRefName, tag)); err != nil {
		return err
	}
	return f.path.AppendDescriptor(v1.Descriptor{
		MediaType: found.MediaType, Size: found.Size, Digest: found.Digest, Annotations: map[string]string{imagespec.AnnotationRefName: tag},
	})
}

// pipe is a listener that this process alone can connect to.
type pipe struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func (p *pipe) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	ours, its := net.Pipe()
	select {
	case p.conns <- its:
		return ours, nil
	case <-p.closed:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Accept is the next connection.
func (p *pipe) Accept() (net.Conn, error) {
	select {
	case conn := <-p.conns:
		return conn, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

// Close ends it.
func (p *pipe) Close() error {
	p.once.Do(func() { close(p.closed) })
	return nil
}

// Addr has no meaning.
func (*pipe) Addr() net.Addr { return &net.UnixAddr{Net: "pipe"} }
