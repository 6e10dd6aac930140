package registry

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
	"github.com/stretchr/testify/require"
)

var (
	pusher = Account{Name: "push", Password: "p1", Push: true}
	puller = Account{Name: "pull", Password: "p2"}
)

func start(t *testing.T) (host string) {
	t.Helper()
	server := httptest.NewServer(New(t.Context(), Options{Dir: t.TempDir(), Accounts: []Account{pusher, puller}}))
	t.Cleanup(server.Close)
	return strings.TrimPrefix(server.URL, "http://")
}

func as(t *testing.T, a Account) []remote.Option {
	t.Helper()
	return []remote.Option{
		remote.WithContext(t.Context()),
		remote.WithAuth(a.Login()),
	}
}

func TestAccounts(t *testing.T) {
	t.Parallel()
	tag, err := name.NewTag(start(t) + "/os/worker:latest")
	require.NoError(t, err)
	image, err := random.Image(1024, 2)
	require.NoError(t, err)
	want, err := image.Digest()
	require.NoError(t, err)

	requireStatus(t, remote.Write(tag, image, as(t, puller)...), http.StatusForbidden)
	requireStatus(t, remote.Write(tag, image, as(t, Account{Name: "push", Password: "wrong"})...), http.StatusUnauthorized)
	require.NoError(t, remote.Write(tag, image, as(t, pusher)...))

	for _, account := range []Account{pusher, puller} {
		got, err := remote.Head(tag, as(t, account)...)
		require.NoError(t, err)
		require.Equal(t, want, got.Digest)
	}
	_, err = remote.Get(tag, remote.WithContext(t.Context()))
	requireStatus(t, err, http.StatusUnauthorized)

	pinned := tag.Digest(want.String())
	requireStatus(t, remote.Delete(pinned, as(t, puller)...), http.StatusForbidden)
	require.NoError(t, remote.Delete(pinned, as(t, pusher)...))
}

func requireStatus(t *testing.T, err error, status int) {
	t.Helper()
	var refused *transport.Error
	require.ErrorAs(t, err, &refused)
	require.Equal(t, status, refused.StatusCode)
}

func TestDockerConfigLogsIn(t *testing.T) {
	t.Parallel()
	text, err := puller.DockerConfig("registry.example:5000")
	require.NoError(t, err)
	var config struct {
		Auths map[string]authn.AuthConfig `json:"auths"`
	}
	require.NoError(t, json.Unmarshal(text, &config))
	got := config.Auths["registry.example:5000"]
	require.Equal(t, "pull", got.Username)
	require.Equal(t, "p2", got.Password)
}
