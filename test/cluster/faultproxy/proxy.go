package faultproxy

import (
	"io"
	"log"
	"net/http"
	"net/http/httputil"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
)

// Rule says which requests go wrong, and how.
type Rule struct {
	// Method is that of the requests; empty is any.
	Method string
	// Path is what their path has to match; nil is anything.
	Path *regexp.Regexp
	// Client is what their User-Agent has to begin with; empty is anything.
	Client string
	// Skip is how many matching requests pass before, and Times how many go wrong then; 0 is all.
	Skip, Times int
	// Fault is what happens to them.
	Fault Fault
}

// Fault handles a request that goes wrong. It may let next, the registry, see it.
type Fault func(w http.ResponseWriter, r *http.Request, next http.Handler)

// Proxy is the handler that clients talk to. It may be used by several goroutines.
type Proxy struct {
	registry http.Handler

	mu     sync.Mutex
	rules  []*counted
	served []string
}

// counted is a rule with how often it matched.
type counted struct {
	Rule
	matched, broke int
}

// New returns a proxy for the registry at target.
func New(target *url.URL, transport http.RoundTripper) *Proxy {
	return &Proxy{registry: &httputil.ReverseProxy{
		Transport: transport,
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(target)
			r.SetXForwarded() // so that the registry names the proxy in what it answers
			r.Out.Host = r.In.Host
		},
		ErrorLog:     log.New(io.Discard, "", 0),
		ErrorHandler: func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
	}}
}

// Add adds rules, and returns what takes them away again. Of several rules that match a request the
// one that was added first counts.
func (p *Proxy) Add(rules ...Rule) (remove func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	added := make([]*counted, len(rules))
	for i, rule := range rules {
		added[i] = &counted{Rule: rule}
	}
	p.rules = append(p.rules, added...)
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.rules = slices.DeleteFunc(p.rules, func(c *counted) bool { return slices.Contains(added, c) })
	}
}

// Requests are those so far whose path matches, such as "PUT /v2/os/worker/manifests/worker", in
// the order in which they came.
func (p *Proxy) Requests(path *regexp.Regexp) []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(p.served), func(request string) bool { return !path.MatchString(request) })
}

// ServeHTTP lets a request pass, or go wrong.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if fault := p.faultOf(r); fault != nil {
		fault(w, r, p.registry)
		return
	}
	p.registry.ServeHTTP(w, r)
}

// fits reports whether the rule is about a request.
func (r *Rule) fits(request *http.Request) bool {
	return (r.Method == "" || r.Method == request.Method) && (r.Path == nil || r.Path.MatchString(request.URL.Path)) &&
		strings.HasPrefix(request.UserAgent(), r.Client)
}

func (p *Proxy) faultOf(r *http.Request) Fault {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.served = append(p.served, r.Method+" "+r.URL.Path)
	for _, rule := range p.rules {
		if !rule.fits(r) {
			continue
		}
		if rule.matched++; rule.matched <= rule.Skip || rule.Times > 0 && rule.broke >= rule.Times {
			continue
		}
		rule.broke++
		return rule.Fault
	}
	return nil
}
