package silences

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// standIn stands in for an Alertmanager. It does what the specification of version 2 of its API
// says, and what its documentation says of updates: a silence whose matchers and start stay is
// changed, any other is ended and made anew.
type standIn struct {
	*httptest.Server
	t  *testing.T
	mu sync.Mutex
	// all are the silences by ID, and now is its clock; posts are how often one was posted.
	all   map[string]*silence
	now   time.Time
	posts int
	// fails is the code of every answer; 0 where it works. raw is what it lists instead.
	fails int
	raw   string
	// asked are the methods and paths of requests.
	asked []string
	// heard means that a request came since it was last read.
	heard chan struct{}
}

func newStandIn(t *testing.T, now time.Time) *standIn {
	t.Helper()
	s := &standIn{t: t, all: map[string]*silence{}, now: now, heard: make(chan struct{}, 1)}
	s.Server = httptest.NewServer(s)
	t.Cleanup(s.Close)
	return s
}

func (s *standIn) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	defer func() {
		select {
		case s.heard <- struct{}{}:
		default:
		}
	}()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked = append(s.asked, r.Method+" "+r.URL.Path)
	assert.Equal(s.t, "Bearer secret", r.Header.Get("Authorization"))
	w.Header().Set("Date", s.now.Format(http.TimeFormat))
	id, isOne := strings.CutPrefix(r.URL.Path, "/am/api/v2/silence/")
	switch {
	case s.fails != 0:
		w.WriteHeader(s.fails)
	case r.Method == http.MethodGet && r.URL.Path == "/am/api/v2/silences":
		s.list(w, r.URL.Query().Get("filter"))
	case r.Method == http.MethodPost && r.URL.Path == "/am/api/v2/silences":
		s.post(w, r)
	case r.Method == http.MethodDelete && isOne && s.all[id] != nil:
		s.all[id].EndsAt = s.now
	default:
		w.WriteHeader(http.StatusNotFound)
	}
}

func (s *standIn) list(w http.ResponseWriter, filter string) {
	if s.raw != "" {
		_, _ = w.Write([]byte(s.raw))
		return
	}
	out := []silence{}
	for _, one := range s.all {
		if m := one.Matchers[0]; fmt.Sprintf("%s=%q", m.Name, m.Value) == filter {
			listed := *one
			listed.Status = &status{State: "active"}
			if !one.EndsAt.After(s.now) {
				listed.Status.State = stateExpired
			}
			out = append(out, listed)
		}
	}
	assert.NoError(s.t, json.NewEncoder(w).Encode(out))
}

func (s *standIn) post(w http.ResponseWriter, r *http.Request) {
	var posted silence
	if err := json.NewDecoder(r.Body).Decode(&posted); err != nil || len(posted.Matchers) == 0 || !posted.EndsAt.After(s.now) {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	was := s.all[posted.ID]
	switch {
	case posted.ID != "" && was == nil:
		w.WriteHeader(http.StatusNotFound)
		return
	case was != nil && was.EndsAt.After(s.now) && was.StartsAt.Equal(posted.StartsAt) && assert.ObjectsAreEqual(was.Matchers, posted.Matchers):
	default:
		if was != nil {
			was.EndsAt = s.now
		}
		posted.ID = fmt.Sprintf("silence-%d", s.posts)
	}
	if posted.StartsAt.Before(s.now) && s.all[posted.ID] == nil {
		posted.StartsAt = s.now
	}
	s.posts++
	s.all[posted.ID] = &posted
	assert.NoError(s.t, json.NewEncoder(w).Encode(map[string]string{"silenceID": posted.ID}))
}

// change changes it.
func (s *standIn) change(do func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	do()
}

// silenced are the names of nodes whose alerts are silenced now, with the minutes left.
func (s *standIn) silenced() (nodes []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, one := range s.all {
		if left := one.EndsAt.Sub(s.now); left > 0 && !one.StartsAt.After(s.now) {
			nodes = append(nodes, fmt.Sprintf("%s %s", one.Matchers[0].Value, left))
		}
	}
	slices.Sort(nodes)
	return nodes
}

// requests are those since the last call.
func (s *standIn) requests() (asked []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	asked, s.asked = s.asked, nil
	return asked
}

// await waits for requests until something is so.
func (s *standIn) await(what string, reached func() bool) {
	s.t.Helper()
	for !reached() {
		select {
		case <-s.heard:
		case <-time.After(time.Minute):
			s.t.Fatalf("waited for a minute until %s: %s", what, s.silenced())
		}
	}
}
