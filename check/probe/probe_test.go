package probe

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	inprocess "github.com/google/go-containerregistry/pkg/registry"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func write(t *testing.T, name, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
	return path
}

func TestRun(t *testing.T) {
	t.Parallel()
	open := httptest.NewServer(inprocess.New())
	t.Cleanup(open.Close)
	refusing := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			w.WriteHeader(http.StatusForbidden)
		}
	}))
	t.Cleanup(refusing.Close)
	host := func(server *httptest.Server) string { return strings.TrimPrefix(server.URL, "http://") }
	secret := filepath.Dir(write(t, ".dockerconfigjson", `{"auths":{"`+host(open)+`":{"username":"u","password":"p"}}}`))
	other, broken := filepath.Dir(write(t, ".dockerconfigjson", `{"auths":{"`+host(refusing)+`":{"username":"u","password":"p"}}}`)), filepath.Dir(write(t, ".dockerconfigjson", "{"))
	dead, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, dead.Close())

	out := filepath.Join(t.TempDir(), "report")
	require.NoError(t, Run(t.Context(), Options{
		Push: map[string]string{secret: host(open) + "/os", other: host(refusing) + "/os", broken: "r.test/os"},
		Dial: []string{host(open), dead.Addr().String()}, Report: out, Users: write(t, "uid_map", "         0     524288      65536\n"),
	}))
	content, err := os.ReadFile(out)
	require.NoError(t, err)
	var report Report
	require.NoError(t, json.Unmarshal(content, &report))
	assert.True(t, report.UserNamespace)
	assert.Equal(t, map[string]bool{host(open): true, dead.Addr().String(): false}, report.Reached)
	assert.Empty(t, report.Push[secret])
	assert.Contains(t, report.Push[other], "403")
	assert.Contains(t, report.Push[broken], "JSON")

	require.NoError(t, Run(t.Context(), Options{Report: out, Users: write(t, "uid_map", "0 0 4294967295")}))
	content, err = os.ReadFile(out)
	require.NoError(t, err)
	assert.JSONEq(t, `{"userNamespace":false}`, string(content))
	require.ErrorContains(t, Run(t.Context(), Options{Report: out, Users: write(t, "uid_map", "")}), "reading")
}

func TestReportFitsInATerminationMessage(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{"less-than signs": "<", "quotes": `"`, "Chinese": "\u4e16", "line separators": "\u2028"} {
		report := Report{Push: map[string]string{}, Reached: map[string]bool{"[2001:db8::1]:8443": true, "[2001:db8::2]:8443": false}}
		for i := range 10 {
			report.Push[fmt.Sprintf("/run/push-%d", i)] = strings.Repeat(text, 5000)
		}
		content, err := encode(report)
		require.NoError(t, err, name)
		assert.LessOrEqual(t, len(content), 4096, name)
		var decoded Report
		require.NoError(t, json.Unmarshal(content, &decoded), name)
		require.Len(t, decoded.Push, 10, name)
		for _, trouble := range decoded.Push {
			assert.Greater(t, len(trouble), 100, name)
			assert.Empty(t, strings.ReplaceAll(trouble, text, ""), name)
		}
	}
	many := Report{Push: map[string]string{}}
	for i := range 1000 {
		many.Push[fmt.Sprintf("/run/push-%d", i)] = "denied"
	}
	_, err := encode(many)
	require.ErrorContains(t, err, "too many repositories")
}

// TestRunPushesAtTheSameTime: a registry that does not answer takes the time of no other.
func TestRunPushesAtTheSameTime(t *testing.T) {
	t.Parallel()
	var all sync.WaitGroup
	all.Add(2)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			all.Done()
			all.Wait() // for the other
			w.WriteHeader(http.StatusForbidden)
		}
	}))
	t.Cleanup(server.Close)
	host := strings.TrimPrefix(server.URL, "http://")
	folder := func() string {
		return filepath.Dir(write(t, ".dockerconfigjson", `{"auths":{"`+host+`":{"username":"u","password":"p"}}}`))
	}
	out := filepath.Join(t.TempDir(), "report")
	require.NoError(t, Run(t.Context(), Options{Push: map[string]string{folder(): host + "/a", folder(): host + "/b"}, Report: out, Users: write(t, "uid_map", "0 1 2")}))
	content, err := os.ReadFile(out)
	require.NoError(t, err)
	assert.Equal(t, 2, strings.Count(string(content), "403"))
}

func TestListen(t *testing.T) {
	t.Parallel()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- accept(ctx, listener) }()
	assert.True(t, reaches(t.Context(), listener.Addr().String(), 0))
	cancel()
	require.NoError(t, listener.Close())
	require.NoError(t, <-ended)
	require.Error(t, Listen(t.Context(), "127.0.0.1:99999"))
}
