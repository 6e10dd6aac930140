package metrics

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/client-go/rest"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/metrics/filters"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

// reviewer answers the two reviews: it knows the tokens that are names of users, and allows
// "scraper" to get /metrics.
type reviewer struct {
	mu sync.Mutex
	// asked are the reviews, in the order in which they came.
	asked  []string
	rights []authorizationv1.SubjectAccessReviewSpec
	refuse bool
	down   bool
}

func (r *reviewer) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.down {
		http.Error(w, "down", http.StatusInternalServerError)
		return
	}
	var answer any
	switch req.URL.Path {
	case "/apis/authentication.k8s.io/v1/tokenreviews":
		review := &authenticationv1.TokenReview{}
		_ = json.NewDecoder(req.Body).Decode(review)
		r.asked = append(r.asked, "who is "+review.Spec.Token)
		review.Status = authenticationv1.TokenReviewStatus{Error: "invalid bearer token"}
		if review.Spec.Token != "forged" {
			review.Status = authenticationv1.TokenReviewStatus{Authenticated: true, User: authenticationv1.UserInfo{
				Username: review.Spec.Token, UID: "1", Groups: []string{"g", "system:authenticated"},
				Extra: map[string]authenticationv1.ExtraValue{"example.test/pod": {"p"}},
			}}
		}
		answer = review
	case "/apis/authorization.k8s.io/v1/subjectaccessreviews":
		review := &authorizationv1.SubjectAccessReview{}
		_ = json.NewDecoder(req.Body).Decode(review)
		r.asked = append(r.asked, "may "+review.Spec.User)
		r.rights = append(r.rights, review.Spec)
		asked := review.Spec.NonResourceAttributes
		review.Status.Allowed = !r.refuse && review.Spec.User != "stranger" && asked != nil && *asked == authorizationv1.NonResourceAttributes{Path: "/metrics", Verb: "get"}
		review.Status.Denied = review.Spec.User == "denied"
		answer = review
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusCreated)
	if err := json.NewEncoder(w).Encode(answer); err != nil {
		panic(err) // the test's own mistake; the server says it
	}
}

func (r *reviewer) set(change func(*reviewer)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	change(r)
}

// readersOf puts a filter in front of a handler that answers every request.
func readersOf(t *testing.T, r *reviewer, makeFilter func(*rest.Config, *http.Client) (metricsserver.Filter, error)) http.Handler {
	t.Helper()
	server := httptest.NewServer(r)
	t.Cleanup(server.Close)
	config := &rest.Config{Host: server.URL, QPS: -1, ContentConfig: rest.ContentConfig{ContentType: "application/json"}}
	filter, err := makeFilter(config, server.Client())
	require.NoError(t, err)
	handler, err := filter(logr.Discard(), http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprint(w, "the metrics") }))
	require.NoError(t, err)
	return handler
}

func own(c *clocktesting.FakeClock) func(*rest.Config, *http.Client) (metricsserver.Filter, error) {
	return func(config *rest.Config, client *http.Client) (metricsserver.Filter, error) {
		return Readers(config, client, c)
	}
}

// request is the status that a request gets, which is to be served if it is 200, and only then.
func request(t *testing.T, handler http.Handler, method, path, authorization string) int {
	t.Helper()
	req := httptest.NewRequestWithContext(t.Context(), method, path, http.NoBody)
	if authorization != "" {
		req.Header.Set("Authorization", authorization)
	}
	w := httptest.NewRecorder()
	handler.ServeHTTP(w, req)
	assert.Equal(t, w.Code == http.StatusOK, w.Body.String() == "the metrics", "%d %s", w.Code, w.Body)
	return w.Code
}

// TestReadersAnswerAsControllerRuntime asks both filters the same.
func TestReadersAnswerAsControllerRuntime(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		method, path, authorization string
		want                        int
		// theirs is what controller-runtime answers, where that is something else.
		theirs int
	}{
		"a scraper is served":                    {authorization: "Bearer scraper", want: http.StatusOK},
		"the scheme is in any case":              {authorization: "bEARER scraper", want: http.StatusOK},
		"someone without the right is not":       {authorization: "Bearer stranger", want: http.StatusForbidden},
		"nor someone who is denied it":           {authorization: "Bearer denied", want: http.StatusForbidden, theirs: http.StatusInternalServerError}, // allowed, too
		"nor a scraper at another path":          {authorization: "Bearer scraper", path: "/debug/pprof", want: http.StatusForbidden},
		"nor a scraper that does something else": {authorization: "Bearer scraper", method: http.MethodPost, want: http.StatusForbidden},
		"nor a token that no one knows": {
			authorization: "Bearer forged", want: http.StatusUnauthorized, theirs: http.StatusInternalServerError, // it takes the review's word for a failure
		},
		"nor no token":           {want: http.StatusUnauthorized},
		"nor an empty token":     {authorization: "Bearer ", want: http.StatusUnauthorized},
		"nor the scheme alone":   {authorization: "Bearer", want: http.StatusUnauthorized},
		"nor another scheme":     {authorization: "Basic scraper", want: http.StatusUnauthorized},
		"nor the token alone":    {authorization: "scraper", want: http.StatusUnauthorized},
		"nor a token in the URL": {path: "/metrics?access_token=scraper", want: http.StatusUnauthorized},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			method, path, theirs := tt.method, tt.path, tt.theirs
			if method == "" {
				method = http.MethodGet
			}
			if path == "" {
				path = "/metrics"
			}
			if theirs == 0 {
				theirs = tt.want
			}
			here, there := &reviewer{}, &reviewer{}
			assert.Equal(t, tt.want, request(t, readersOf(t, here, own(clocktesting.NewFakeClock(time.Now()))), method, path, tt.authorization))
			assert.Equal(t, theirs, request(t, readersOf(t, there, filters.WithAuthenticationAndAuthorization), method, path, tt.authorization))
			assert.Equal(t, there.asked, here.asked, "the API server is asked the same")
			assert.Empty(t, cmp.Diff(there.rights, here.rights))
		})
	}
}

func TestReadersBelieveAnAnswerForAWhile(t *testing.T) {
	t.Parallel()
	r, now := &reviewer{}, clocktesting.NewFakeClock(time.Now())
	handler := readersOf(t, r, own(now))
	get := func(token string) int { return request(t, handler, http.MethodGet, "/metrics", "Bearer "+token) }
	questions := func() int {
		r.mu.Lock()
		defer r.mu.Unlock()
		return len(r.asked)
	}

	require.Equal(t, http.StatusOK, get("scraper"))
	require.Equal(t, http.StatusOK, get("scraper"))
	require.Equal(t, 2, questions(), "the second scrape asks nothing")
	require.Equal(t, http.StatusForbidden, request(t, handler, http.MethodGet, "/other", "Bearer scraper"), "the answer was about the path")
	require.Equal(t, http.StatusOK, get("other"), "and about the token")

	r.set(func(r *reviewer) { r.refuse = true })
	require.Equal(t, http.StatusOK, get("scraper"))
	now.Step(allowedFor + time.Second)
	require.Equal(t, http.StatusForbidden, get("scraper"), "a right that was taken away is noticed")
	r.set(func(r *reviewer) { r.refuse = false })
	require.Equal(t, http.StatusForbidden, get("scraper"))
	now.Step(refusedFor + time.Second)
	require.Equal(t, http.StatusOK, get("scraper"), "and sooner that it was given")
}

func TestReadersRememberNoFailure(t *testing.T) {
	t.Parallel()
	r := &reviewer{down: true}
	handler := readersOf(t, r, own(clocktesting.NewFakeClock(time.Now())))
	require.Equal(t, http.StatusInternalServerError, request(t, handler, http.MethodGet, "/metrics", "Bearer scraper"))
	r.set(func(r *reviewer) { r.down = false })
	require.Equal(t, http.StatusOK, request(t, handler, http.MethodGet, "/metrics", "Bearer scraper"))
}
