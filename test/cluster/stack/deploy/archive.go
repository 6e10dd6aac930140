package deploy

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"

	"github.com/layerwright/layerwright/hack/release/binimage"
	"github.com/layerwright/layerwright/test/cluster/files"
)

// ensureImage is writeImage, unless the archive was made of the same files already.
func ensureImage(archive, name string, options binimage.Options) (Image, error) {
	made, err := describeImage(name, options)
	if err != nil {
		return Image{}, err
	}
	note := archive + ".made"
	if text, err := os.ReadFile(note); err == nil {
		of, tag, _ := strings.Cut(strings.TrimSpace(string(text)), " ")
		if _, err := os.Stat(archive); err == nil && of == made {
			return Image{Tag: tag, Archive: archive}, nil
		}
	}
	tag, err := writeImage(archive, name, options)
	if err != nil {
		return Image{}, err
	}
	return Image{Tag: tag, Archive: archive}, files.Write(note, []byte(made+" "+tag+"\n"), 0o600)
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
