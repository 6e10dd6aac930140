package wire

import (
	"fmt"
	"io"
	"net/http"
	"path"
)

const (
	// maxManifest is the largest manifest or list of referrers that is read, in bytes. Registries
	// take 4 MiB; go-containerregistry would read 100.
	maxManifest = 8 << 20
	// MaxValues is how many JSON values a manifest, a list of referrers or a config may have. The
	// largest lists of real images have some thousand. What reads them makes a value of some
	// hundred bytes of two characters.
	MaxValues = 1 << 16
)

// What is too large to be read.
var (
	ErrLargeManifest = fmt.Errorf("its manifest has more than %d bytes", maxManifest)
	ErrManyValues    = fmt.Errorf("its manifest has more than %d values", MaxValues)
)

// Bounded ends answers that are larger than a manifest can be, or say more: they are read as a
// whole.
type Bounded struct{ Next http.RoundTripper }

// RoundTrip bounds the answer.
func (t Bounded) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := t.Next.RoundTrip(request)
	if err != nil {
		return nil, err
	}
	if what := path.Base(path.Dir(askedFirst(request).URL.Path)); what == "manifests" || what == "referrers" {
		response.Body = &boundedBody{ReadCloser: response.Body, left: maxManifest}
	}
	return response, nil
}

// askedFirst is the request that was redirected to this one; itself where none was. Behind a
// redirect a manifest may have any path.
func askedFirst(request *http.Request) *http.Request {
	for request.Response != nil && request.Response.Request != nil {
		request = request.Response.Request
	}
	return request
}

type boundedBody struct {
	io.ReadCloser

	left   int64
	values valueCounter
}

// Read fails where there is more than may be.
func (b *boundedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if b.left -= int64(n); b.left < 0 {
		return 0, ErrLargeManifest
	}
	if b.values.add(p[:n]); b.values.count > MaxValues {
		return 0, ErrManyValues
	}
	return n, err
}

// valueCounter counts the values of a JSON text that comes in pieces: each is the first of an
// object or list, or follows a comma. It knows strings and nothing else, so a text that is no JSON
// has some count too.
type valueCounter struct {
	count             int
	inString, escaped bool
}

func (c *valueCounter) add(text []byte) {
	for _, b := range text {
		switch {
		case c.escaped:
			c.escaped = false
		case c.inString:
			c.escaped = b == '\\'
			c.inString = b != '"'
		case b == '"':
			c.inString = true
		case b == '{', b == '[', b == ',':
			c.count++
		}
	}
}

// HasManyValues reports whether a JSON text has more values than are read.
func HasManyValues(text []byte) bool { return HasMoreValues(text, MaxValues) }

// HasMoreValues reports whether a JSON text has more values than a number.
func HasMoreValues(text []byte, limit int) bool {
	var values valueCounter
	values.add(text)
	return values.count > limit
}
