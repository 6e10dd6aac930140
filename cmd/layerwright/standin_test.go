package main

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/utils/ptr"
)

// Tokens that the stand-in knows; any other is unknown to it.
const (
	scraperToken  = "scraper"
	strangerToken = "stranger"
)

// standIn answers as much of the Kubernetes API as a manager without reconcilers (serverParts)
// uses: the version, one Lease, events, and the two reviews that guard the metrics. It checks
// nothing that a real API server would.
type standIn struct {
	*httptest.Server

	mu      sync.Mutex
	lease   *coordinationv1.Lease
	holders []string // of the Lease, as they followed each other
	down    bool
	stolen  bool
}

func newStandIn(t *testing.T) *standIn {
	t.Helper()
	s := &standIn{}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /version", func(w http.ResponseWriter, _ *http.Request) {
		reply(t, w, http.StatusOK, map[string]string{"gitVersion": "v1.36.3"})
	})
	// Discovery, of the kinds whose scope the cache asks for before it starts.
	mux.HandleFunc("GET /api", func(w http.ResponseWriter, _ *http.Request) {
		reply(t, w, http.StatusOK, metav1.APIVersions{TypeMeta: metav1.TypeMeta{Kind: "APIVersions"}, Versions: []string{"v1"}})
	})
	mux.HandleFunc("GET /apis", func(w http.ResponseWriter, _ *http.Request) {
		list := metav1.APIGroupList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"}}
		for _, name := range []string{"batch", "admissionregistration.k8s.io"} {
			version := metav1.GroupVersionForDiscovery{GroupVersion: name + "/v1", Version: "v1"}
			list.Groups = append(list.Groups, metav1.APIGroup{Name: name, Versions: []metav1.GroupVersionForDiscovery{version}, PreferredVersion: version})
		}
		reply(t, w, http.StatusOK, list)
	})
	mux.HandleFunc("GET /apis/admissionregistration.k8s.io/v1", func(w http.ResponseWriter, _ *http.Request) {
		reply(t, w, http.StatusOK, metav1.APIResourceList{
			TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}, GroupVersion: "admissionregistration.k8s.io/v1",
			APIResources: []metav1.APIResource{
				{Name: "validatingadmissionpolicies", SingularName: "validatingadmissionpolicy", Kind: "ValidatingAdmissionPolicy"},
				{Name: "validatingadmissionpolicybindings", SingularName: "validatingadmissionpolicybinding", Kind: "ValidatingAdmissionPolicyBinding"},
			},
		})
	})
	mux.HandleFunc("GET /api/v1", func(w http.ResponseWriter, _ *http.Request) {
		reply(t, w, http.StatusOK, metav1.APIResourceList{
			TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}, GroupVersion: "v1",
			APIResources: []metav1.APIResource{
				{Name: "configmaps", SingularName: "configmap", Kind: "ConfigMap", Namespaced: true},
				{Name: "pods", SingularName: "pod", Kind: "Pod", Namespaced: true},
			},
		})
	})
	mux.HandleFunc("GET /apis/batch/v1", func(w http.ResponseWriter, _ *http.Request) {
		reply(t, w, http.StatusOK, metav1.APIResourceList{
			TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}, GroupVersion: "batch/v1",
			APIResources: []metav1.APIResource{{Name: "jobs", SingularName: "job", Kind: "Job", Namespaced: true}},
		})
	})
	const leases = "/apis/coordination.k8s.io/v1/namespaces/layerwright-test/leases"
	mux.HandleFunc("GET "+leases+"/{name}", func(w http.ResponseWriter, _ *http.Request) { s.getLease(t, w) })
	mux.HandleFunc("POST "+leases, func(w http.ResponseWriter, r *http.Request) { s.putLease(t, w, r, http.StatusCreated) })
	mux.HandleFunc("PUT "+leases+"/{name}", func(w http.ResponseWriter, r *http.Request) { s.putLease(t, w, r, http.StatusOK) })
	mux.HandleFunc("POST /api/v1/namespaces/layerwright-test/events", func(w http.ResponseWriter, r *http.Request) {
		reply(t, w, http.StatusCreated, decode[runtime.Object](t, r))
	})
	mux.HandleFunc("POST /apis/authentication.k8s.io/v1/tokenreviews", func(w http.ResponseWriter, r *http.Request) {
		review := decode[*authenticationv1.TokenReview](t, r)
		switch review.Spec.Token {
		case scraperToken, strangerToken:
			review.Status.Authenticated = true
			review.Status.User.Username = review.Spec.Token
		}
		reply(t, w, http.StatusCreated, review)
	})
	mux.HandleFunc("POST /apis/authorization.k8s.io/v1/subjectaccessreviews", func(w http.ResponseWriter, r *http.Request) {
		review := decode[*authorizationv1.SubjectAccessReview](t, r)
		asked := review.Spec.NonResourceAttributes
		review.Status.Allowed = review.Spec.User == scraperToken && asked != nil && asked.Path == "/metrics" && asked.Verb == "get"
		reply(t, w, http.StatusCreated, review)
	})
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.isDown() {
			reply(t, w, http.StatusInternalServerError, statusOf(http.StatusInternalServerError, metav1.StatusReasonInternalError))
			return
		}
		mux.ServeHTTP(w, r)
	}))
	t.Cleanup(s.Close)
	return s
}

// config is how a client in this process reaches the stand-in.
func (s *standIn) config() *rest.Config { return &rest.Config{Host: s.URL, QPS: -1} }

func writeKubeconfig(t *testing.T, file, server string) {
	t.Helper()
	config := clientcmdapi.NewConfig()
	config.Clusters["c"] = &clientcmdapi.Cluster{Server: server}
	config.Contexts["c"] = &clientcmdapi.Context{Cluster: "c"}
	config.CurrentContext = "c"
	require.NoError(t, clientcmd.WriteToFile(*config, file))
	_, err := os.Stat(file)
	require.NoError(t, err)
}

func (s *standIn) setDown(down bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.down = down
}

func (s *standIn) isDown() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.down
}

// steal gives the Lease to someone else, as a second instance does whose clock says that ours has
// expired.
func (s *standIn) steal() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stolen = true
	s.lease.Spec.HolderIdentity = ptr.To("someone else")
	s.lease.Spec.RenewTime = ptr.To(metav1.NowMicro())
	s.lease.ResourceVersion = "stolen"
}

// leaseHolders are the holders so far, in order; "" is a Lease that was given back.
func (s *standIn) leaseHolders() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.holders...)
}

func (s *standIn) getLease(t *testing.T, w http.ResponseWriter) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lease == nil {
		reply(t, w, http.StatusNotFound, statusOf(http.StatusNotFound, metav1.StatusReasonNotFound))
		return
	}
	reply(t, w, http.StatusOK, s.lease)
}

func (s *standIn) putLease(t *testing.T, w http.ResponseWriter, r *http.Request, code int) {
	t.Helper()
	lease := decode[*coordinationv1.Lease](t, r)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stolen {
		reply(t, w, http.StatusConflict, statusOf(http.StatusConflict, metav1.StatusReasonConflict))
		return
	}
	s.lease = lease
	holder := ptr.Deref(lease.Spec.HolderIdentity, "")
	if n := len(s.holders); n == 0 || s.holders[n-1] != holder {
		s.holders = append(s.holders, holder)
	}
	reply(t, w, code, lease)
}

func statusOf(code int32, reason metav1.StatusReason) *metav1.Status {
	return &metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"},
		Status:   metav1.StatusFailure, Code: code, Reason: reason, Message: string(reason),
	}
}

// decode reads a request's object, in JSON or in protobuf as the client likes. It runs outside the
// test's goroutine.
func decode[T runtime.Object](t *testing.T, r *http.Request) T {
	t.Helper()
	var none T
	body, err := io.ReadAll(r.Body)
	if err != nil {
		t.Errorf("reading %s %s: %v", r.Method, r.URL.Path, err)
		return none
	}
	object, kind, err := scheme.Codecs.UniversalDeserializer().Decode(body, nil, nil)
	if err != nil {
		t.Errorf("decoding %s %s: %v", r.Method, r.URL.Path, err)
		return none
	}
	object.GetObjectKind().SetGroupVersionKind(*kind)
	typed, ok := object.(T)
	if !ok {
		t.Errorf("%s %s carries a %T", r.Method, r.URL.Path, object)
	}
	return typed
}

func reply(t *testing.T, w http.ResponseWriter, code int, object any) {
	t.Helper()
	body, err := json.Marshal(object)
	if err != nil {
		t.Errorf("encoding the answer: %v", err)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_, _ = w.Write(body)
}
