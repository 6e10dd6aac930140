package endpoint

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/layerwright/layerwright/internal/fault"
	"github.com/layerwright/layerwright/internal/registry/wire"
)

const (
	// timeout is how long one request may take, its answer included.
	timeout = 10 * time.Second
	// maxAnswer is how much of an answer is read, in bytes, where a request does not say it.
	maxAnswer = 1 << 20
	maxHeader = 64 << 10
	// maxValues is how many JSON values an answer may have, where a request does not say it. What
	// reads it may make some hundred bytes of two characters.
	maxValues = 1 << 15
)

// Errors that another try does not mend.
var (
	// ErrAddress means that what a Secret has for an address is none.
	ErrAddress = errors.New("it is no http or https address")
	// ErrCA means that what a Secret has for certificates are none.
	ErrCA = errors.New("it has no certificate in PEM")
)

// Address is where requests go.
type Address struct {
	// URL is http or https.
	URL string
	// Token is sent as a bearer token; empty for none.
	Token string
	// CA are the certificates in PEM that are trusted instead of the system's; empty for those.
	CA []byte
}

// Lookup finds the address that a Secret holds.
type Lookup func(ctx context.Context, secret string) (Address, error)

// Request is one request. Its body, if there is one, is JSON.
type Request struct {
	// Secret is the name of the Secret with the address.
	Secret string
	// Method is one of HTTP's.
	Method string
	// Path is appended to that of the address, and Query to its query.
	Path  string
	Query url.Values
	Body  []byte
	// Most is how much of the answer is read, in bytes; 1 MiB where it is zero.
	Most int
	// MostValues is how many JSON values the answer may have; 32,768 where it is zero.
	MostValues int
}

// Answer is what was answered, whatever the code.
type Answer struct {
	Code int
	// Time is the clock of who answered; zero where it does not say it.
	Time time.Time
	// Body is the beginning of the answer's body; IsWhole is that nothing of it is missing.
	Body    []byte
	IsWhole bool

	token, name, secret string
}

// Redact takes the token, which who answers knows, out of what was answered.
func (a *Answer) Redact(text string) string {
	if a.token == "" {
		return text
	}
	return strings.ReplaceAll(text, a.token, "REDACTED")
}

// IsSuccess reports whether the request was taken.
func (a *Answer) IsSuccess() bool { return a.Code >= 200 && a.Code < 300 }

// Refusal is the error of an answer that is no success, with what to look at.
func (a *Answer) Refusal() error {
	switch code := a.Code; {
	case code == http.StatusUnauthorized || code == http.StatusForbidden:
		return fmt.Errorf("the %s answered %d: see the key %s of Secret %q", a.name, code, keyToken, a.secret)
	case code >= 300 && code < 400:
		return fmt.Errorf("the %s answered %d: redirects are not followed, so correct the key %s of Secret %q", a.name, code, keyURL, a.secret)
	default:
		return fmt.Errorf("the %s answered %d", a.name, code)
	}
}

// Client asks one kind of endpoint.
type Client struct {
	name   string
	lookup Lookup
	plain  *http.Client
}

// New makes a Client. Its errors call the endpoint by this name, such as "webhook".
func New(name string, lookup Lookup) *Client {
	return &Client{name: name, lookup: lookup, plain: newClient(newTransport())}
}

// newTransport asks no address where clouds hand out credentials.
func newTransport() *http.Transport {
	return &http.Transport{Proxy: http.ProxyFromEnvironment, DialContext: wire.DialContext, MaxResponseHeaderBytes: maxHeader}
}

func newClient(transport http.RoundTripper) *http.Client {
	return &http.Client{Timeout: timeout, Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error {
		return http.ErrUseLastResponse // the token is for this address alone
	}}
}

// Do makes a request, once.
func (c *Client) Do(ctx context.Context, r *Request) (*Answer, error) {
	address, err := c.lookup(ctx, r.Secret)
	if err != nil {
		return nil, err
	}
	request, err := newRequest(ctx, &address, r)
	if err != nil {
		return nil, fmt.Errorf("the url in Secret %q: %w", r.Secret, err)
	}
	client, err := c.trusting(address.CA)
	if err != nil {
		return nil, fmt.Errorf("ca.crt in Secret %q: %w", r.Secret, err)
	}
	response, err := client.Do(request)
	if err != nil {
		return nil, c.withoutURL(err)
	}
	defer func() { _ = response.Body.Close() }() // it was read
	most := cmp.Or(r.Most, maxAnswer)
	body, err := io.ReadAll(io.LimitReader(response.Body, int64(most)+1))
	if err != nil {
		return nil, c.withoutURL(err)
	}
	if values := cmp.Or(r.MostValues, maxValues); len(body) <= most && wire.HasMoreValues(body, values) {
		return nil, fmt.Errorf("the %s answered with more than %d values", c.name, values)
	}
	answer := &Answer{Code: response.StatusCode, Body: body[:min(len(body), most)], IsWhole: len(body) <= most}
	answer.token, answer.name, answer.secret = address.Token, c.name, r.Secret
	if at, err := http.ParseTime(response.Header.Get("Date")); err == nil {
		answer.Time = at
	}
	return answer, nil
}

func newRequest(ctx context.Context, address *Address, r *Request) (*http.Request, error) {
	at, err := url.Parse(address.URL)
	if err != nil || at.Host == "" || at.Scheme != "http" && at.Scheme != "https" {
		return nil, ErrAddress // what is wrong with it would show it
	}
	if r.Path != "" {
		at = at.JoinPath(r.Path)
	}
	if len(r.Query) > 0 {
		query := at.Query()
		for key, values := range r.Query {
			query[key] = append(query[key], values...)
		}
		at.RawQuery = query.Encode()
	}
	request, err := http.NewRequestWithContext(ctx, r.Method, at.String(), bytes.NewReader(r.Body))
	if err != nil {
		return nil, ErrAddress
	}
	if len(r.Body) > 0 {
		request.Header.Set("Content-Type", "application/json")
	}
	if address.Token != "" {
		request.Header.Set("Authorization", "Bearer "+address.Token)
	}
	return request, nil
}

// trusting is a client that trusts some CAs instead of the system's. It keeps no connection: the
// Secret may have others the next time.
func (c *Client) trusting(ca []byte) (*http.Client, error) {
	if len(ca) == 0 {
		return c.plain, nil
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(ca) {
		return nil, ErrCA
	}
	transport := newTransport()
	transport.DisableKeepAlives, transport.TLSClientConfig = true, &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
	return newClient(transport), nil
}

// withoutURL is an error of an HTTP client without the address.
func (c *Client) withoutURL(err error) error {
	return fmt.Errorf("the %s can't be reached: %w", c.name, fault.WithoutURL(err))
}
