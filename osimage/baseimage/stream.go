package baseimage

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash"
	"io"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/internal/fault"
	"github.com/layerwright/layerwright/osimage/osindex"
)

const (
	bufferBytes = 64 << 10
	// reportBytes is how much is read between two calls of the progress function.
	reportBytes = 1 << 20
	// maxWindow bounds the memory that a zstd layer asks for. The compressors of container tools
	// stay below it.
	maxWindow = 32 << 20
	// A layer may unpack to maxUnpacked and unpacksTo times its size, and never to more than
	// mostUnpacked. Those of operating systems unpack to two or three times their size.
	maxUnpacked  = 2 << 30
	unpacksTo    = 100
	mostUnpacked = 32 << 30
)

// stream gives a layer, uncompressed, to a function that may stop reading where it likes. Then the
// rest is read, so that the layer's digests are known to be right; only then what the function has
// seen may be believed.
func (l *Loader) stream(ctx context.Context, p *parts, number int, use func(io.Reader) error) error {
	s, err := l.openLayer(ctx, p, number)
	if err != nil {
		return fmt.Errorf("opening layer %d: %w", number+1, classify(err))
	}
	defer s.close()
	if err = use(s); err == nil {
		err = s.verify()
	}
	if err != nil {
		return fmt.Errorf("reading layer %d of %d: %w", number+1, len(p.layers), s.explain(ctx, err))
	}
	return nil
}

// stream is an open layer.
type stream struct {
	source io.Reader // compressed
	plain  io.Reader
	sum    hash.Hash // of what was read of plain
	want   v1.Hash
	// left is how many bytes of plain may follow.
	left     int64
	tooLarge *unpackedError
	ends     []func()
}

// unpackedError says that a layer unpacks to more than one of its size may.
type unpackedError struct{ limit int64 }

// Error names the limit.
func (e *unpackedError) Error() string {
	return fmt.Sprintf("it unpacks to more than %d MiB, which is too much for its size: use an image with another layer", e.limit>>20)
}

// unpackedLimit is what a layer of a size may unpack to.
func unpackedLimit(size int64) int64 {
	return min(maxUnpacked+min(max(size, 0), mostUnpacked)*unpacksTo, mostUnpacked)
}

func (l *Loader) openLayer(ctx context.Context, p *parts, number int) (*stream, error) {
	layer := p.layers[number]
	raw, err := await(ctx, layer.Compressed, func(late io.ReadCloser) { _ = late.Close() })
	if err != nil {
		return nil, err
	}
	limit := unpackedLimit(p.sizes[number])
	s := &stream{want: p.diffIDs[number], left: limit, tooLarge: &unpackedError{limit}}
	s.ends = append(s.ends, func() { _ = raw.Close() })
	// A body whose sender has fallen silent ends when it is closed.
	stop := context.AfterFunc(ctx, func() { _ = raw.Close() })
	s.ends = append(s.ends, func() { stop() })
	if s.sum, err = v1.Hasher(s.want.Algorithm); err != nil {
		s.close()
		return nil, fault.NewTerminal(mcfgv1.ReasonInvalid, err)
	}
	s.source = &meter{inner: raw, report: l.options.Progress, state: Progress{
		Image: p.name, Layer: number + 1, Layers: len(p.layers), Size: p.sizes[number],
	}}
	return s, nil
}

// Read gives uncompressed bytes.
func (s *stream) Read(b []byte) (int, error) {
	if s.plain == nil {
		if err := s.unpack(); err != nil {
			return 0, err
		}
	}
	n, err := s.plain.Read(b)
	s.sum.Write(b[:n]) // never fails
	if s.left -= int64(n); s.left < 0 {
		return 0, s.tooLarge
	}
	return n, err
}

// unpack finds out how the layer is compressed: media types are not to be trusted.
func (s *stream) unpack() error {
	buffered := bufio.NewReaderSize(s.source, bufferBytes)
	head, err := buffered.Peek(4)
	if err != nil && len(head) < 2 { // else it is what it looks like, and breaks off
		s.plain = buffered
		return nil
	}
	switch {
	case bytes.HasPrefix(head, []byte{0x1f, 0x8b}):
		s.plain, err = gzip.NewReader(buffered)
		return err
	case bytes.Equal(head, []byte{0x28, 0xb5, 0x2f, 0xfd}):
		unpacker, err := zstd.NewReader(buffered, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(maxWindow))
		if err != nil {
			return err
		}
		s.ends = append(s.ends, unpacker.Close)
		s.plain = unpacker
		return nil
	}
	s.plain = buffered
	return nil
}

// verify reads the rest and compares the digests: that of the compressed bytes is
// go-containerregistry's matter.
func (s *stream) verify() error {
	if _, err := io.Copy(io.Discard, s); err != nil {
		return err
	}
	if _, err := io.Copy(io.Discard, s.source); err != nil {
		return err
	}
	got := v1.Hash{Algorithm: s.want.Algorithm, Hex: fmt.Sprintf("%x", s.sum.Sum(nil))}
	if got != s.want {
		return fmt.Errorf("its content has the digest %q, but the image's configuration says %q", got, s.want)
	}
	return nil
}

// explain tells an image that is broken from a transfer that is: if the compressed bytes are all
// there, with the right digest, then they will be the same next time.
func (s *stream) explain(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	var big *TooLargeError
	var unpacked *unpackedError
	if errors.As(err, &big) || errors.As(err, &unpacked) {
		return fault.NewTerminal(mcfgv1.ReasonInvalid, err)
	}
	var full *osindex.RoomError
	if errors.As(err, &full) {
		return full.Err
	}
	if _, transfer := io.Copy(io.Discard, s.source); transfer != nil {
		if !errors.Is(err, transfer) {
			err = fmt.Errorf("%w: %w", transfer, err)
		}
		return classify(err)
	}
	return fault.NewTerminal(mcfgv1.ReasonInvalid, fmt.Errorf("the image is broken: %w", err))
}

func (s *stream) close() {
	for i := len(s.ends) - 1; i >= 0; i-- {
		s.ends[i]()
	}
}

// meter reports what is read.
type meter struct {
	inner    io.Reader
	report   ProgressFunc
	state    Progress
	reported int64
	begun    bool
}

// Read passes on what the inner reader gives.
func (m *meter) Read(b []byte) (int, error) {
	if m.report == nil {
		return m.inner.Read(b)
	}
	if !m.begun {
		m.begun = true
		m.report(m.state)
	}
	n, err := m.inner.Read(b)
	m.state.Bytes += int64(n)
	if m.state.Bytes-m.reported >= reportBytes || (n > 0 && m.state.Bytes == m.state.Size) {
		m.reported = m.state.Bytes
		m.report(m.state)
	}
	return n, err
}

// await does what can't be cancelled itself, and stops waiting for it when ctx ends. What then
// comes late is dropped.
func await[T any](ctx context.Context, do func() (T, error), drop func(T)) (T, error) {
	type result struct {
		value T
		err   error
	}
	done := make(chan result, 1)
	go func() {
		value, err := do()
		done <- result{value, err}
	}()
	select {
	case r := <-done:
		return r.value, r.err
	case <-ctx.Done():
		go func() {
			if r := <-done; r.err == nil && drop != nil {
				drop(r.value)
			}
		}()
		var none T
		return none, context.Cause(ctx)
	}
}
