package source

import (
	"archive/tar"
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/internal/fault"
)

const (
	// imageReferences is the file in a release image that lists all others.
	imageReferences = "release-manifests/image-references"
	whiteout        = ".wh."
	opaque          = ".wh..wh..opq"
)

const (
	// maxList is how long the list of images may be. One of 200 images has some 200 KB.
	maxList = 16 << 20
	// maxLayer is how much a layer of a release image may hold, unpacked. Those with manifests have
	// some 10 MB, a whole operator some 200.
	maxLayer = 4 << 30
	// maxWindow bounds the memory that a zstd layer asks for. The compressors of container tools
	// stay below it.
	maxWindow = 32 << 20
	// bufferBytes is how much is read at once.
	bufferBytes = 64 << 10
)

// errGone means that a layer removes the list that an older one has.
var errGone = errors.New("a layer of it removes the file")

// maxLimits is how long the limits of boot images may be: longer ones are cut, and so no JSON.
const maxLimits = 1 << 10

// skewLimits are the limits of boot images that a release image has as an annotation or, since
// images of Docker have none, as a label; empty where it has neither.
func skewLimits(image v1.Image) (string, error) {
	manifest, err := image.Manifest()
	if err != nil {
		return "", fmt.Errorf("reading its manifest: %w", err)
	}
	limits := manifest.Annotations[mcfgv1.AnnotationBootImageSkewLimits]
	if limits == "" {
		config, err := image.ConfigFile()
		if err != nil {
			return "", fmt.Errorf("reading its configuration: %w", err)
		}
		limits = config.Config.Labels[mcfgv1.AnnotationBootImageSkewLimits]
	}
	return limits[:min(len(limits), maxLimits)], nil
}

// readList reads the list of images out of a release image: layer by layer, the newest first, down
// to the one that has it. That layer is read to its end, since only then its digest tells that it
// is the image's.
func readList(ctx context.Context, image v1.Image) ([]byte, error) {
	layers, err := image.Layers()
	if err != nil {
		return nil, fmt.Errorf("reading its layers: %w", err)
	}
	for i := len(layers) - 1; i >= 0; i-- {
		content, err := readLayer(ctx, layers[i])
		if err != nil {
			return nil, fmt.Errorf("layer %d of %d: %w", i+1, len(layers), err)
		}
		if content != nil {
			return content, nil
		}
	}
	return nil, noList("it has no file /" + imageReferences + ", and so is no release image")
}

func noList(problem string) error {
	return fault.NewTerminal(mcfgv1.ReasonSourceFailed, errors.New(problem))
}

// readLayer looks for the list in a layer; nil where it is not in there.
func readLayer(ctx context.Context, layer v1.Layer) ([]byte, error) {
	raw, err := layer.Compressed()
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { _ = raw.Close() }) // the body of a sender that has fallen silent ends
	defer stop()
	defer func() { _ = raw.Close() }()
	plain, end, err := unpack(raw)
	if err != nil {
		return nil, whole(ctx, raw, err)
	}
	defer end()
	content, err := scan(io.LimitReader(plain, maxLayer))
	return content, whole(ctx, raw, err)
}

// whole reads the rest of a layer. Compressed bytes that are all there and have the right digest
// will be the same next time, so what is wrong with them is the image's fault, and else that of the
// transfer.
func whole(ctx context.Context, raw io.Reader, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if _, transfer := io.Copy(io.Discard, raw); transfer != nil {
		return transfer
	}
	if err != nil {
		return noList(err.Error())
	}
	return nil
}

// unpack finds out how a layer is compressed: media types are not to be trusted.
func unpack(raw io.Reader) (plain io.Reader, end func(), err error) {
	buffered := bufio.NewReaderSize(raw, bufferBytes)
	const magic = 4
	head, _ := buffered.Peek(magic)
	switch {
	case bytes.HasPrefix(head, []byte{0x1f, 0x8b}):
		unpacked, err := gzip.NewReader(buffered)
		return unpacked, func() {}, err
	case bytes.Equal(head, []byte{0x28, 0xb5, 0x2f, 0xfd}):
		unpacked, err := zstd.NewReader(buffered, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(maxWindow))
		if err != nil {
			return nil, nil, err
		}
		return unpacked, unpacked.Close, nil
	default:
		return buffered, func() {}, nil
	}
}

// scan looks through an archive, to its end: of several files of one name the last counts.
func scan(r io.Reader) (content []byte, err error) {
	gone := false
	archive := tar.NewReader(r)
	for {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		name := strings.TrimPrefix(path.Clean("/"+header.Name), "/")
		switch {
		case name == imageReferences && header.Typeflag != tar.TypeReg:
			return nil, fmt.Errorf("/%s is no regular file", imageReferences)
		case name == imageReferences && header.Size > maxList:
			return nil, fmt.Errorf("/%s has %d bytes; the limit is %d", imageReferences, header.Size, maxList)
		case name == imageReferences:
			if content, err = io.ReadAll(archive); err != nil {
				return nil, err
			}
		case removes(name):
			gone = true
		}
	}
	if content == nil && gone {
		return nil, errGone
	}
	return content, nil
}

// removes reports whether an entry of a layer removes the list that an older layer has.
func removes(name string) bool {
	folder, file := path.Split(imageReferences)
	folder = path.Clean(folder)
	return name == folder+"/"+whiteout+file || name == folder+"/"+opaque || name == whiteout+folder
}
