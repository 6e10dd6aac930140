package remote

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/utils/clock"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/internal/fault"
	"github.com/layerwright/layerwright/internal/registry/wire"
)

// Limits that hold where Options leave them out.
const (
	// DefaultMaxBytes is the size of all files that are fetched together, as they are sent.
	DefaultMaxBytes = 64 << 20
	// DefaultTimeout is how long one file may take.
	DefaultTimeout = 5 * time.Minute
	// parallel is how many files are fetched at once: enough to hide latency, few enough to be no
	// burden.
	parallel = 4
	// maxRedirects is what net/http allows too.
	maxRedirects = 10
	// retryUnavailable is when a file that its server refuses is asked for again.
	retryUnavailable = 10 * time.Minute
)

// Source is a file to fetch.
type Source struct {
	// URL has the scheme http or https.
	URL string
	// Header is sent along, as the MachineConfig says.
	Header http.Header
}

// Options limit a Fetcher. The zero value is usable.
type Options struct {
	// Transport makes the requests; nil is http.DefaultTransport, which heeds the proxies of the
	// environment.
	Transport http.RoundTripper
	// MaxBytes is how much is taken for all files together; 0 is DefaultMaxBytes.
	MaxBytes int64
	// Timeout is how long one file may take; 0 is DefaultTimeout.
	Timeout time.Duration
}

// Fetcher fetches files.
type Fetcher struct {
	client   *http.Client
	maxBytes int64
}

// New returns a fetcher with these limits.
func New(options Options) *Fetcher {
	transport := options.Transport
	if transport == nil {
		transport = http.DefaultTransport
	}
	f := &Fetcher{maxBytes: options.MaxBytes, client: &http.Client{
		Transport:     &wire.Progress{Next: transport, Clock: clock.RealClock{}},
		Timeout:       options.Timeout,
		CheckRedirect: checkRedirect,
	}}
	if f.maxBytes == 0 {
		f.maxBytes = DefaultMaxBytes
	}
	if f.client.Timeout == 0 {
		f.client.Timeout = DefaultTimeout
	}
	return f
}

// FetchAll fetches files side by side and gives their bytes in the order of the sources. The first
// failure ends the others. A server that refuses a file is Waiting with the reason
// WaitingForRemoteFile, as its owner may put the file there any time; a URL that can't be asked is
// Terminal; all else is Transient.
func (f *Fetcher) FetchAll(ctx context.Context, sources []Source) ([][]byte, error) {
	contents := make([][]byte, len(sources))
	room := &room{}
	room.left.Store(f.maxBytes)
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(parallel)
	for i, source := range sources {
		group.Go(func() (err error) {
			contents[i], err = f.fetch(ctx, source, room)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	return contents, nil
}

func (f *Fetcher) fetch(ctx context.Context, source Source, room *room) ([]byte, error) {
	name := fault.Redact(source.URL)
	request, err := newRequest(ctx, source)
	if err != nil {
		return nil, fault.NewTerminal(mcfgv1.ReasonInvalidMachineConfig, fmt.Errorf("fetching %q: %w", name, err))
	}
	response, err := f.client.Do(request)
	if err != nil {
		return nil, fmt.Errorf("fetching %q: %w", name, err)
	}
	defer response.Body.Close() //nolint:errcheck // read to the end or not wanted any more
	if err := statusError(response.StatusCode); err != nil {
		return nil, fmt.Errorf("fetching %q: %w", name, err)
	}
	content, err := io.ReadAll(io.TeeReader(response.Body, room))
	if errors.Is(err, errNoRoom) {
		return nil, fault.NewTerminal(mcfgv1.ReasonInvalidMachineConfig,
			fmt.Errorf("fetching %q: with the other files by URL it is larger than %d bytes; bring it with the Containerfile instead", name, f.maxBytes))
	}
	if err != nil {
		return nil, fmt.Errorf("fetching %q: %w", name, err)
	}
	return content, nil
}

// room is what is left for files that are fetched together.
type room struct{ left atomic.Int64 }

var errNoRoom = errors.New("too much is fetched")

// Write takes as much room as is read.
func (r *room) Write(p []byte) (int, error) {
	if r.left.Add(-int64(len(p))) < 0 {
		return 0, errNoRoom
	}
	return len(p), nil
}

func newRequest(ctx context.Context, source Source) (*http.Request, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, source.URL, http.NoBody)
	if err != nil {
		return nil, err
	}
	if !isWeb(request.URL) {
		return nil, fmt.Errorf("the scheme %q is not http or https", request.URL.Scheme)
	}
	for name, values := range source.Header {
		request.Header[http.CanonicalHeaderKey(name)] = slices.Clone(values)
	}
	// What is not asked for comes as it is: net/http would unpack it, and the hash is over what the
	// MachineConfig names.
	request.Header.Set("Accept-Encoding", "identity")
	return request, nil
}

func isWeb(u *url.URL) bool { return (u.Scheme == "http" || u.Scheme == "https") && u.Host != "" }

// checkRedirect keeps headers of the administrator's from other hosts: net/http does so for the few
// that it knows only.
func checkRedirect(request *http.Request, via []*http.Request) error {
	before := via[len(via)-1].URL
	switch {
	case len(via) >= maxRedirects:
		return fmt.Errorf("more than %d redirects", maxRedirects)
	case !isWeb(request.URL):
		return errors.New("redirected to something that is not http or https")
	case before.Scheme == "https" && request.URL.Scheme == "http":
		return errors.New("redirected from https to http")
	case !strings.EqualFold(via[0].URL.Host, request.URL.Host):
		clear(request.Header)
		request.Header.Set("Accept-Encoding", "identity")
	}
	return nil
}

// statusError says what an answer other than 200 means.
func statusError(code int) error {
	err := fmt.Errorf("the server answers %d %s", code, http.StatusText(code))
	switch {
	case code == http.StatusOK:
		return nil
	case code == http.StatusRequestTimeout, code == http.StatusTooManyRequests, code >= http.StatusInternalServerError:
		return err
	default:
		return fault.NewWaiting(mcfgv1.ReasonWaitingForRemoteFile, retryUnavailable, err)
	}
}
