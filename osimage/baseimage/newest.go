package baseimage

import (
	"context"
	"fmt"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// NewestFile reads one file of an image that no one has made an index of: from the newest layer
// down, and no further than to the first one that has it. It is for what is known to be in one of
// the last layers, and is no symbolic link; whiteouts are not heeded. Nil is that no layer has it.
//
// Errors are those of ReadFiles.
func (l *Loader) NewestFile(ctx context.Context, image v1.Image, path string) ([]byte, error) {
	p, err := open(ctx, image)
	if err != nil {
		return nil, fmt.Errorf("reading a file of an image: %w", err)
	}
	name := clean(path)
	for number := len(p.layers) - 1; number >= 0; number-- {
		s := &scan{limit: l.options.MaxFileBytes, wanted: map[string]bool{name: true}, got: map[string][]byte{}, links: map[string]string{}}
		if err := l.stream(ctx, p, number, s.read); err != nil {
			return nil, fmt.Errorf("reading file %q of image %q: %w", path, p.name, err)
		}
		if content, ok := s.content(name); ok {
			return content, nil
		}
	}
	return nil, nil
}
