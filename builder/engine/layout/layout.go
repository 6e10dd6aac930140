//go:build cgo && containers_image_openpgp && exclude_graphdriver_btrfs

package layout

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"slices"

	"github.com/opencontainers/go-digest"
	imagespec "github.com/opencontainers/image-spec/specs-go/v1"
	"golang.org/x/sys/unix"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/builder/engine/report"
)

// Bounds of what Push takes from Export.
const (
	maxDescription = 4 << 20 // bytes of the index, the manifest and the config, each
	maxLayers      = 512
)

// Folder is what Export left, read as what it is: files of a container in which an attacker may
// have run. Nothing is opened but regular files below the folder.
type Folder struct{ dir *os.File }

// Open opens the folder of an exported image.
func Open(dir string) (*Folder, error) {
	folder, err := os.Open(dir)
	if err != nil {
		return nil, fmt.Errorf("opening the exported image: %w", err)
	}
	return &Folder{dir: folder}, nil
}

// Close ends reading.
func (l *Folder) Close() { _ = l.dir.Close() }

// Open opens a regular file. It does not wait for whoever writes to a FIFO, and follows no link.
func (l *Folder) Open(name string) (*os.File, int64, error) {
	how := unix.OpenHow{
		Flags:   unix.O_RDONLY | unix.O_NONBLOCK | unix.O_NOFOLLOW | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS | unix.RESOLVE_NO_XDEV,
	}
	fd, err := unix.Openat2(int(l.dir.Fd()), name, &how)
	if err != nil {
		return nil, 0, Changed("file %q cannot be opened: %w", name, err)
	}
	file := os.NewFile(uintptr(fd), name)
	size, err := regular(file)
	if err != nil {
		_ = file.Close()
		return nil, 0, Changed("file %q: %w", name, err)
	}
	return file, size, nil
}

// regular is the size of a regular file. One that says to be larger than the disk that it is on has
// holes: whoever reads it gets zeros, and more of them than any limit of the build allows.
func regular(file *os.File) (int64, error) {
	info, err := file.Stat()
	if err != nil {
		return 0, err
	}
	if !info.Mode().IsRegular() {
		return 0, errors.New("it is no regular file")
	}
	var disk unix.Statfs_t
	if err := unix.Fstatfs(int(file.Fd()), &disk); err != nil {
		return 0, err
	}
	if most := int64(disk.Blocks) * disk.Bsize; info.Size() > most { //nolint:gosec // sizes of disks
		return 0, fmt.Errorf("it has %d bytes, and its disk %d", info.Size(), most)
	}
	return info.Size(), nil
}

// Changed is the end of a build whose export is not what Export writes.
func Changed(format string, args ...any) error {
	return report.NewAdmin(mcfgv1.ReasonBuildFailed, fmt.Errorf("the exported image was changed: "+format, args...))
}

// read reads a small file.
func (l *Folder) read(name string) ([]byte, error) {
	file, size, err := l.Open(name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	if size > maxDescription {
		return nil, Changed("file %q has more than %d bytes", name, maxDescription)
	}
	text, err := io.ReadAll(io.LimitReader(file, maxDescription))
	if err != nil {
		return nil, fmt.Errorf("reading the exported image: %w", err)
	}
	return text, nil
}

// blob reads a small blob, which has to be what its digest says.
func (l *Folder) blob(d digest.Digest) ([]byte, error) {
	if err := checkDigest(d); err != nil {
		return nil, err
	}
	text, err := l.read(BlobPath(d))
	if err != nil {
		return nil, err
	}
	if digest.FromBytes(text) != d {
		return nil, Changed("blob %s is another one", d)
	}
	return text, nil
}

func checkDigest(d digest.Digest) error {
	if err := d.Validate(); err != nil || d.Algorithm() != digest.SHA256 {
		return Changed("%q is no digest", d)
	}
	return nil
}

// Image is the image of a layout.
type Image struct {
	Manifest imagespec.Manifest
	Config   []byte
	diffIDs  []digest.Digest
}

// Image reads what is small of the image. Layers are read as they are uploaded.
func (l *Folder) Image() (*Image, error) {
	text, err := l.read(indexFile)
	if err != nil {
		return nil, err
	}
	var index imagespec.Index
	if err := json.Unmarshal(text, &index); err != nil || len(index.Manifests) != 1 {
		return nil, Changed("%s does not name one manifest", path.Base(indexFile))
	}
	if text, err = l.blob(index.Manifests[0].Digest); err != nil {
		return nil, err
	}
	e := &Image{}
	if err := json.Unmarshal(text, &e.Manifest); err != nil {
		return nil, Changed("its manifest: %w", err)
	}
	if e.Config, err = l.blob(e.Manifest.Config.Digest); err != nil {
		return nil, err
	}
	var config imagespec.Image
	if err := json.Unmarshal(e.Config, &config); err != nil {
		return nil, Changed("its config: %w", err)
	}
	e.diffIDs = config.RootFS.DiffIDs
	if err := e.check(); err != nil {
		return nil, err
	}
	return e, nil
}

// check makes sure that the manifest has nothing but layers of the kind that Export writes.
func (e *Image) check() error {
	if len(e.diffIDs) > maxLayers || len(e.Manifest.Layers) > len(e.diffIDs) {
		return Changed("it has %d layers and %d digests of layers", len(e.Manifest.Layers), len(e.diffIDs))
	}
	for _, layer := range e.Manifest.Layers {
		if err := checkDigest(layer.Digest); err != nil {
			return err
		}
		if !slices.Contains([]string{imagespec.MediaTypeImageLayerGzip, imagespec.MediaTypeImageLayerZstd}, layer.MediaType) || len(layer.URLs) > 0 {
			return Changed("layer %s is of the type %q", layer.Digest, layer.MediaType)
		}
	}
	return nil
}

// Base is the fetched image that an exported one is built on; nil for one that is built on nothing.
func (e *Image) Base(fetched []Fetched) (*Fetched, error) {
	below := e.diffIDs[:len(e.diffIDs)-len(e.Manifest.Layers)]
	if len(below) == 0 {
		return nil, nil //nolint:nilnil // an image from scratch has none
	}
	for i := range fetched {
		if f := &fetched[i]; slices.Equal(f.DiffIDs, below) && len(f.Layers) == len(below) {
			return f, nil
		}
	}
	return nil, Changed("it is not built on the layers of an image that was fetched")
}

// Fetched is what Push has to know of an image that Fetch pulled: an image that is built on it
// has these layers below its own. Push believes this and not the store, which RUN lines can change.
type Fetched struct {
	// Image is where its layers are, by digest.
	Image string `json:"image"`
	// Layers are those of its manifest, lowest first, with types of OCI.
	Layers []imagespec.Descriptor `json:"layers"`
	// DiffIDs are the digests of the same layers, unpacked.
	DiffIDs []digest.Digest `json:"diffIDs"`
}
