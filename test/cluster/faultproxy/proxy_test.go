package faultproxy_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/layerwright/layerwright/test/cluster/faultproxy"
)

const answer = "the registry's answer"

// registry notes what reaches it.
type registry struct {
	mu   sync.Mutex
	seen []string
	// done gets an element for each request that was noted.
	done chan struct{}
}

func (s *registry) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	text := r.Method + " " + r.Host + " " + r.Header.Get("Authorization") + " " + string(body)
	if err != nil {
		text += " broken"
	}
	s.mu.Lock()
	s.seen = append(s.seen, text)
	s.mu.Unlock()
	s.done <- struct{}{}
	w.Header().Set("Location", "here")
	_, _ = io.WriteString(w, answer)
}

func (s *registry) reached() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.seen
}

func serve(t *testing.T) (proxy *faultproxy.Proxy, address string, behind *registry) {
	t.Helper()
	behind = &registry{done: make(chan struct{}, 100)}
	server := httptest.NewServer(behind)
	t.Cleanup(server.Close)
	target, err := url.Parse(server.URL)
	require.NoError(t, err)
	proxy = faultproxy.New(target, &http.Transport{DisableKeepAlives: true})
	front := httptest.NewServer(proxy)
	t.Cleanup(front.Close)
	return proxy, front.URL, behind
}

// ask makes a request; the answer is its status and body, or that there is none.
func ask(t *testing.T, method, address, body string) string {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, address, io.MultiReader(strings.NewReader(body)))
	if err != nil {
		return err.Error()
	}
	request.SetBasicAuth("a", "b")
	response, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(request)
	if err != nil {
		return "none"
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return response.Status + " broken " + string(text)
	}
	return response.Status + " " + string(text)
}

func TestUnmatchedRequestsPass(t *testing.T) {
	t.Parallel()
	proxy, address, behind := serve(t)
	proxy.Add(faultproxy.Rule{Method: http.MethodPut, Fault: faultproxy.Answer(500, "UNKNOWN")},
		faultproxy.Rule{Path: regexp.MustCompile("^/other"), Fault: faultproxy.Answer(500, "UNKNOWN")})
	assert.Equal(t, "200 OK "+answer, ask(t, http.MethodPost, address+"/v2/a", "hello"))
	assert.Equal(t, []string{"POST " + strings.TrimPrefix(address, "http://") + " Basic YTpi hello"}, behind.reached())
	assert.Equal(t, []string{"POST /v2/a"}, proxy.Requests(regexp.MustCompile("/a$")))
	assert.Empty(t, proxy.Requests(regexp.MustCompile("/b$")))
}

func TestRulesCount(t *testing.T) {
	t.Parallel()
	proxy, address, _ := serve(t)
	remove := proxy.Add(faultproxy.Rule{Skip: 1, Times: 2, Fault: faultproxy.Answer(429, "TOOMANYREQUESTS", "Retry-After", "1")},
		faultproxy.Rule{Skip: 3, Fault: faultproxy.Answer(503, "UNAVAILABLE")})
	var got []string
	for range 7 {
		got = append(got, ask(t, http.MethodGet, address, "")[:3])
	}
	remove()
	got = append(got, ask(t, http.MethodGet, address, "")[:3])
	assert.Equal(t, []string{"200", "429", "429", "200", "200", "503", "503", "200"}, got)
}

func TestRulesAreAboutAClient(t *testing.T) {
	t.Parallel()
	proxy, address, _ := serve(t)
	proxy.Add(faultproxy.Rule{Client: "another/", Fault: faultproxy.Answer(503, "UNAVAILABLE")})
	assert.Equal(t, "200", ask(t, http.MethodGet, address, "")[:3])
	proxy.Add(faultproxy.Rule{Client: "Go-http-client/", Fault: faultproxy.Answer(502, "UNAVAILABLE")})
	assert.Equal(t, "502", ask(t, http.MethodGet, address, "")[:3])
}

func TestFaults(t *testing.T) {
	t.Parallel()
	hang, end := faultproxy.Hang()
	tests := map[string]struct {
		fault   faultproxy.Fault
		begins  string
		ends    string
		reached string
	}{
		"an error":                     {fault: faultproxy.Answer(507, "UNKNOWN"), begins: "507 ", ends: `"code":"UNKNOWN","message":"a fault that was asked for"}]}`},
		"no answer":                    {fault: hang, begins: "none"},
		"half of the request":          {fault: faultproxy.CutRequest(0.5), begins: "none", reached: " 12345 broken"},
		"nothing of the answer":        {fault: faultproxy.CutAnswer(0), begins: "none", reached: " 1234567890"},
		"a part of the header":         {fault: faultproxy.CutAnswer(0.2), begins: "none", reached: " 1234567890"},
		"all but the answer's last":    {fault: faultproxy.CutAnswer(1), begins: "200 OK broken the registry's answe", ends: "answe", reached: " 1234567890"},
		"all but a part of the answer": {fault: faultproxy.CutAnswer(0.9), begins: "200 OK broken the ", reached: " 1234567890"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			proxy, address, behind := serve(t)
			proxy.Add(faultproxy.Rule{Fault: tt.fault})
			if name == "no answer" {
				end()
			}
			got := ask(t, http.MethodPatch, address, "1234567890")
			assert.True(t, strings.HasPrefix(got, tt.begins), got)
			assert.True(t, strings.HasSuffix(got, tt.ends), got)
			if tt.reached == "" {
				assert.Empty(t, behind.reached())
				return
			}
			<-behind.done // a lost connection is seen on its two ends at different times
			require.Len(t, behind.reached(), 1)
			assert.True(t, strings.HasSuffix(behind.reached()[0], tt.reached), behind.reached()[0])
		})
	}
}

// TestCutBeforeTheBody loses the connection so early that the registry sees the headers, or not
// even them.
func TestCutBeforeTheBody(t *testing.T) {
	t.Parallel()
	proxy, address, behind := serve(t)
	remove := proxy.Add(faultproxy.Rule{Fault: faultproxy.CutRequest(0)})
	assert.Equal(t, "none", ask(t, http.MethodPatch, address, "1234567890"))
	remove()
	ask(t, http.MethodPatch, address, "the next")
	for seen := behind.reached(); len(seen) == 0 || !strings.HasSuffix(seen[len(seen)-1], "the next"); seen = behind.reached() {
		<-behind.done
	}
	for _, request := range behind.reached() {
		assert.NotContains(t, request, "1234567890")
	}
}

func TestHold(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		hold    func() (faultproxy.Fault, *faultproxy.Held)
		reached int
	}{
		"a request": {hold: faultproxy.HoldRequest},
		"an answer": {hold: faultproxy.HoldAnswer, reached: 1},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			proxy, address, behind := serve(t)
			fault, held := tt.hold()
			proxy.Add(faultproxy.Rule{Fault: fault})
			got := make(chan string)
			go func() { got <- ask(t, http.MethodPut, address, "hello") }()
			<-held.Arrived
			assert.Len(t, behind.reached(), tt.reached)
			held.Release()
			assert.Equal(t, "200 OK "+answer, <-got)
			assert.Len(t, behind.reached(), 1)
			assert.Equal(t, "200 OK "+answer, ask(t, http.MethodPut, address, "hello"), "those that follow pass")
		})
	}
}
