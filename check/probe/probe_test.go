package probe

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
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
	dead, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, dead.Close())

	out := filepath.Join(t.TempDir(), "report")
	require.NoError(t, Run(t.Context(), Options{
		Push: map[string]string{host(open) + "/os": secret, host(refusing) + "/os": secret, "r.test/os": filepath.Dir(write(t, ".dockerconfigjson", "{"))},
		Dial: []string{host(open), dead.Addr().String()}, Report: out, Users: write(t, "uid_map", "         0     524288      65536\n"),
	}))
	content, err := os.ReadFile(out)
	require.NoError(t, err)
	var report Report
	require.NoError(t, json.Unmarshal(content, &report))
	assert.True(t, report.UserNamespace)
	assert.Equal(t, map[string]bool{host(open): true, dead.Addr().String(): false}, report.Reached)
	assert.Empty(t, report.Push[host(open)+"/os"])
	assert.Contains(t, report.Push[host(refusing)+"/os"], "403")
	assert.Contains(t, report.Push["r.test/os"], "JSON")

	require.NoError(t, Run(t.Context(), Options{Report: out, Users: write(t, "uid_map", "0 0 4294967295")}))
	content, err = os.ReadFile(out)
	require.NoError(t, err)
	assert.JSONEq(t, `{"userNamespace":false}`, string(content))
	require.ErrorContains(t, Run(t.Context(), Options{Report: out, Users: write(t, "uid_map", "")}), "reading")
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
