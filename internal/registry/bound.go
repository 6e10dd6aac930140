package registry

import (
	"fmt"
	"io"
	"net/http"
	"path"
)

// maxManifest is the largest manifest or list of referrers that is read, in bytes. Registries take 4 MiB; go-containerregistry would read 100.
const maxManifest = 8 << 20

var errLargeManifest = fmt.Errorf("its manifest has more than %d bytes", maxManifest)

// bounded ends answers that are larger than a manifest can be: they are read as a whole.
type bounded struct{ next http.RoundTripper }

// RoundTrip bounds the answer.
func (t bounded) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := t.next.RoundTrip(request)
	if err != nil {
		return nil, err
	}
	if what := path.Base(path.Dir(request.URL.Path)); what == "manifests" || what == "referrers" {
		response.Body = &boundedBody{ReadCloser: response.Body, left: maxManifest}
	}
	return response, nil
}

type boundedBody struct {
	io.ReadCloser

	left int64
}

// Read fails where there is more than may be.
func (b *boundedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if b.left -= int64(n); b.left < 0 {
		return 0, errLargeManifest
	}
	return n, err
}
