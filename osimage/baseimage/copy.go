package baseimage

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/internal/fault"
	"github.com/layerwright/layerwright/osimage/osindex"
)

// CopyFiles writes files of an image whose index is known into a folder: targets are their names
// there, by path; the paths are those of [osindex.Index.Lookup]. It is for what is too large for
// ReadFiles: nothing of a file is held in memory, and its size has no limit. Only layers that have
// one of the files are read.
//
// Errors are those of ReadFiles.
func (l *Loader) CopyFiles(ctx context.Context, image v1.Image, index *osindex.Index, folder string, targets map[string]string) error {
	wanted := wantedFiles{}
	var missing []string
	for path, target := range targets {
		source, ok := index.Source(path)
		if !ok {
			missing = append(missing, path)
			continue
		}
		wanted.add(target, source)
	}
	if len(missing) > 0 {
		slices.Sort(missing)
		return fmt.Errorf("copying files of an image: %w", fault.NewTerminal(mcfgv1.ReasonInvalid, &MissingError{Paths: missing}))
	}
	err := l.readWanted(ctx, image, index, wanted, func(p *parts, number int) error {
		return l.copyLayer(ctx, p, number, folder, wanted[number])
	})
	if err != nil {
		return fmt.Errorf("copying %w", err)
	}
	return nil
}

// copyLayer copies files of one layer; names are what the layer calls them, by target.
func (l *Loader) copyLayer(ctx context.Context, p *parts, number int, folder string, names map[string]string) error {
	spool, err := os.MkdirTemp(folder, ".layer-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(spool) }()
	s := &copyScan{spool: spool, wanted: map[string]string{}, got: map[string]bool{}, links: map[string]string{}}
	for _, name := range names {
		s.want(name)
	}
	if err := l.rescan(ctx, p, number, s.read, func() int { return len(s.wanted) }); err != nil {
		return err
	}
	for target, name := range names {
		found, ok := s.find(name)
		if !ok {
			return fault.NewTerminal(mcfgv1.ReasonInvalid, fmt.Errorf("layer %d: %w", number+1, &MissingError{Paths: []string{"/" + name}}))
		}
		if err := os.Link(found, filepath.Join(folder, target)); err != nil { // two targets may be one file
			return err
		}
	}
	return nil
}

// copyScan copies what it is looking for out of a layer.
type copyScan struct {
	spool string
	// wanted are files in the spool, by name in the layer; got are those that are there.
	wanted map[string]string
	got    map[string]bool
	links  map[string]string
}

func (s *copyScan) want(name string) {
	if s.wanted[name] == "" {
		s.wanted[name] = filepath.Join(s.spool, strconv.Itoa(len(s.wanted)))
	}
}

// read looks through a layer: of several with one name the last counts.
func (s *copyScan) read(r io.Reader) error {
	return eachEntry(r, func(hdr *tar.Header, body io.Reader) error {
		name := clean(hdr.Name)
		into := s.wanted[name]
		switch {
		case into == "":
		case hdr.Typeflag == tar.TypeLink:
			s.links[name] = clean(hdr.Linkname)
			s.want(s.links[name])
		case hdr.FileInfo().Mode().IsRegular():
			if err := s.save(into, body); err != nil {
				return err
			}
			s.got[name] = true
			delete(s.links, name)
		}
		return nil
	})
}

func (*copyScan) save(into string, body io.Reader) error {
	file, err := os.Create(into) //nolint:gosec // a number in our own folder
	if err != nil {
		return err
	}
	_, err = io.Copy(file, body)
	return errors.Join(err, file.Close())
}

// find follows the hard links to where they end.
func (s *copyScan) find(name string) (string, bool) {
	for range maxPasses {
		target, isLink := s.links[name]
		if !isLink {
			break
		}
		name = target
	}
	return s.wanted[name], s.got[name]
}
