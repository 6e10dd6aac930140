package binimage

import (
	"archive/tar"
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"
	imagespec "github.com/opencontainers/image-spec/specs-go/v1"
)

// containerdName is the annotation that tells containerd what the image is called. Other tools read
// that of OCI layouts.
const containerdName = "io.containerd.image.name"

// entry is a file of an archive.
type entry struct {
	path    string
	mode    int64
	content []byte
	// isFolder reports whether it is one, without content.
	isFolder bool
	// link is what it points to, where it is a symbolic link.
	link string
}

// WriteArchive writes the image as a tar of an OCI layout, which "ctr images import", skopeo and
// podman read. Other than a docker-archive it keeps manifest, annotations and digest as they are.
// The same image and name give the same bytes.
func WriteArchive(w io.Writer, ref name.Tag, img v1.Image) error {
	index, err := indexOf(ref, img)
	if err != nil {
		return fmt.Errorf("describing the image: %w", err)
	}
	blobs, err := blobsOf(img)
	if err != nil {
		return fmt.Errorf("reading the image: %w", err)
	}
	content, err := archive(append(blobs,
		entry{path: "oci-layout", mode: 0o644, content: []byte(`{"imageLayoutVersion":"1.0.0"}`)},
		entry{path: "index.json", mode: 0o644, content: index},
	))
	if err != nil {
		return fmt.Errorf("writing the archive: %w", err)
	}
	if _, err := w.Write(content); err != nil {
		return fmt.Errorf("writing the archive: %w", err)
	}
	return nil
}

func indexOf(ref name.Tag, img v1.Image) ([]byte, error) {
	manifest, err := img.RawManifest()
	if err != nil {
		return nil, err
	}
	digest, err := img.Digest()
	if err != nil {
		return nil, err
	}
	mediaType, err := img.MediaType()
	if err != nil {
		return nil, err
	}
	config, err := img.ConfigFile()
	if err != nil {
		return nil, err
	}
	return json.Marshal(v1.IndexManifest{
		SchemaVersion: 2,
		MediaType:     types.OCIImageIndex,
		Manifests: []v1.Descriptor{{
			MediaType:   mediaType,
			Digest:      digest,
			Size:        int64(len(manifest)),
			Platform:    config.Platform(),
			Annotations: map[string]string{containerdName: ref.Name(), imagespec.AnnotationRefName: ref.TagStr()},
		}},
	})
}

func blobsOf(img v1.Image) ([]entry, error) {
	manifest, err := img.RawManifest()
	if err != nil {
		return nil, err
	}
	manifestDigest, err := img.Digest()
	if err != nil {
		return nil, err
	}
	config, err := img.RawConfigFile()
	if err != nil {
		return nil, err
	}
	configDigest, err := img.ConfigName()
	if err != nil {
		return nil, err
	}
	layers, err := img.Layers()
	if err != nil {
		return nil, err
	}
	blobs := []entry{blob(manifestDigest, manifest), blob(configDigest, config)}
	for _, layer := range layers {
		layerDigest, err := layer.Digest()
		if err != nil {
			return nil, err
		}
		compressed, err := readAll(layer.Compressed)
		if err != nil {
			return nil, err
		}
		blobs = append(blobs, blob(layerDigest, compressed))
	}
	return blobs, nil
}

func blob(digest v1.Hash, content []byte) entry {
	return entry{path: path.Join("blobs", digest.Algorithm, digest.Hex), mode: 0o644, content: content}
}

func readAll(open func() (io.ReadCloser, error)) ([]byte, error) {
	reader, err := open()
	if err != nil {
		return nil, err
	}
	defer func() { _ = reader.Close() }()
	return io.ReadAll(reader)
}

// archive writes files and the directories that they lie in: sorted, owned by root, at the epoch.
func archive(files []entry) ([]byte, error) {
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, header := range headers(files) {
		if err := w.WriteHeader(&header.Header); err != nil {
			return nil, err
		}
		if _, err := w.Write(header.content); err != nil {
			return nil, err
		}
	}
	err := w.Close()
	return out.Bytes(), err
}

type header struct {
	tar.Header
	content []byte
}

func headers(files []entry) []header {
	byName := map[string]header{}
	for _, f := range files {
		name := strings.TrimPrefix(f.path, "/")
		switch {
		case f.isFolder:
			byName[name+"/"] = header{Header: tar.Header{Typeflag: tar.TypeDir, Name: name + "/", Mode: f.mode}}
		case f.link != "":
			byName[name] = header{Header: tar.Header{Typeflag: tar.TypeSymlink, Name: name, Mode: f.mode, Linkname: f.link}}
		default:
			byName[name] = header{
				Header:  tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: f.mode, Size: int64(len(f.content))},
				content: f.content,
			}
		}
		for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
			if _, there := byName[dir+"/"]; there {
				continue // with a mode of its own, perhaps
			}
			byName[dir+"/"] = header{Header: tar.Header{Typeflag: tar.TypeDir, Name: dir + "/", Mode: 0o755}}
		}
	}
	sorted := make([]header, 0, len(byName))
	for _, h := range byName {
		h.ModTime, h.Format = time.Unix(0, 0), tar.FormatPAX
		sorted = append(sorted, h)
	}
	slices.SortFunc(sorted, func(a, b header) int { return cmp.Compare(a.Name, b.Name) })
	return sorted
}
