package baseimage

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"path"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/internal/fault"
	"github.com/layerwright/layerwright/osimage/osindex"
)

// maxPasses is how often a layer is read. Once is enough unless the file is a hard link to one that
// comes long before it; each link to a link takes one more.
const maxPasses = 4

// ReadFiles reads files of an image whose index is known, by path; the paths are those of
// [osindex.Index.Lookup]. What the index keeps is taken from there. Else only layers that have one
// of the files are read, and these to their end: their digests tell whether the bytes are the
// image's. Files are small: see Options.MaxFileBytes.
//
// Errors are those of Index, and Terminal ones with a [MissingError] if the image has no regular
// file of a name (nothing is read then), or a [TooLargeError].
func (l *Loader) ReadFiles(ctx context.Context, image v1.Image, index *osindex.Index, paths []string) (map[string][]byte, error) {
	found, wanted, err := l.locate(index, paths)
	if err != nil {
		return nil, fmt.Errorf("reading files of an image: %w", fault.NewTerminal(mcfgv1.ReasonInvalid, err))
	}
	if len(wanted) == 0 {
		return found, nil
	}
	err = l.readWanted(ctx, image, index, wanted, func(p *parts, number int) error {
		contents, err := l.readLayer(ctx, p, number, wanted[number])
		maps.Copy(found, contents)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("reading %w", err)
	}
	return found, nil
}

// wantedFiles are names in layers, by the layer's number and by what the files are to be called.
type wantedFiles map[int]map[string]string

func (w wantedFiles) add(as string, source osindex.Source) {
	if w[source.Layer] == nil {
		w[source.Layer] = map[string]string{}
	}
	w[source.Layer][as] = source.Name
}

// readWanted opens an image and reads the layers that have wanted files, the lowest first. Its
// errors lack what was being done.
func (l *Loader) readWanted(
	ctx context.Context, image v1.Image, index *osindex.Index, wanted wantedFiles, read func(p *parts, number int) error,
) error {
	p, err := open(ctx, image)
	if err != nil {
		return fmt.Errorf("files of an image: %w", err)
	}
	if len(p.layers) != index.Layers() {
		return fmt.Errorf("files of image %q: it has %d layers, its index %d", p.name, len(p.layers), index.Layers())
	}
	for _, number := range slices.Sorted(maps.Keys(wanted)) {
		if err := read(p, number); err != nil {
			return fmt.Errorf("files of image %q: %w", p.name, err)
		}
	}
	return nil
}

// locate finds the layers that have files, and the files' names in them, by path.
func (l *Loader) locate(index *osindex.Index, paths []string) (found map[string][]byte, wanted wantedFiles, err error) {
	found, wanted = map[string][]byte{}, wantedFiles{}
	var missing []string
	room := int64(maxFilesBytes)
	for _, path := range paths {
		if content, ok := index.Content(path); ok {
			found[path] = bytes.Clone(content)
			continue
		}
		source, ok := index.Source(path)
		if !ok {
			missing = append(missing, path)
			continue
		}
		if entry, _ := index.Lookup(path); entry.Size > l.options.MaxFileBytes {
			return nil, nil, &TooLargeError{Path: path, Size: entry.Size, Limit: l.options.MaxFileBytes}
		} else if room -= entry.Size; room < 0 {
			return nil, nil, &TooLargeError{Path: path, Size: entry.Size, Limit: maxFilesBytes, Together: true}
		}
		wanted.add(path, source)
	}
	if len(missing) > 0 {
		slices.Sort(missing)
		return nil, nil, &MissingError{Paths: slices.Compact(missing)}
	}
	return found, wanted, nil
}

// readLayer reads files of one layer; names are what the layer calls them, by path.
func (l *Loader) readLayer(ctx context.Context, p *parts, number int, names map[string]string) (map[string][]byte, error) {
	scan := &scan{limit: l.options.MaxFileBytes, wanted: map[string]bool{}, got: map[string][]byte{}, links: map[string]string{}}
	for _, name := range names {
		scan.wanted[name] = true
	}
	if err := l.rescan(ctx, p, number, scan.read, func() int { return len(scan.wanted) }); err != nil {
		return nil, err
	}
	found := map[string][]byte{}
	var missing []string
	for path, name := range names {
		if content, ok := scan.content(name); ok {
			found[path] = bytes.Clone(content)
		} else {
			missing = append(missing, path)
		}
	}
	if len(missing) > 0 {
		slices.Sort(missing)
		return nil, fault.NewTerminal(mcfgv1.ReasonInvalid, fmt.Errorf("layer %d: %w", number+1, &MissingError{Paths: missing}))
	}
	return found, nil
}

// rescan reads a layer until no link leads to something that was not looked for yet; wanted is how
// much is looked for.
func (l *Loader) rescan(ctx context.Context, p *parts, number int, read func(io.Reader) error, wanted func() int) error {
	for range maxPasses {
		before := wanted()
		if err := l.stream(ctx, p, number, read); err != nil {
			return err
		}
		if wanted() == before {
			break
		}
	}
	return nil
}

// eachEntry goes through a layer, from its first to its last entry.
func eachEntry(r io.Reader, use func(*tar.Header, io.Reader) error) error {
	archive := tar.NewReader(r)
	for {
		hdr, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := use(hdr, archive); err != nil {
			return err
		}
	}
}

// scan looks for files in a layer.
type scan struct {
	limit  int64
	wanted map[string]bool // names, and what they are hard links to
	got    map[string][]byte
	links  map[string]string
	// last is the newest small file: hard links often follow their target at once, in the layers of
	// OSTree commits always.
	last string
	body bytes.Buffer
}

// read looks through a layer: of several with one name the last counts.
func (s *scan) read(r io.Reader) error {
	s.last = ""
	return eachEntry(r, s.entry)
}

func (s *scan) entry(hdr *tar.Header, body io.Reader) error {
	name := clean(hdr.Name)
	if hdr.Typeflag == tar.TypeLink {
		s.link(name, clean(hdr.Linkname))
		return nil
	}
	if !hdr.FileInfo().Mode().IsRegular() {
		return nil
	}
	if hdr.Size > s.limit {
		if s.wanted[name] {
			return &TooLargeError{Path: "/" + name, Size: hdr.Size, Limit: s.limit}
		}
		return nil
	}
	s.body.Reset()
	if _, err := io.Copy(&s.body, body); err != nil {
		return err
	}
	s.last = name
	if s.wanted[name] {
		s.got[name] = bytes.Clone(s.body.Bytes())
		delete(s.links, name)
	}
	return nil
}

func (s *scan) link(name, target string) {
	if !s.wanted[name] {
		return
	}
	if target == s.last {
		s.got[name] = bytes.Clone(s.body.Bytes())
		delete(s.links, name)
		return
	}
	s.wanted[target] = true
	s.links[name] = target
	delete(s.got, name)
}

// content follows the hard links to where they end.
func (s *scan) content(name string) ([]byte, bool) {
	for range maxPasses {
		if content, ok := s.got[name]; ok {
			return content, true
		}
		name = s.links[name]
	}
	return nil, false
}

// clean is a name as [osindex.Source] has it.
func clean(name string) string { return strings.TrimPrefix(path.Clean("/"+name), "/") }
