//go:build e2e

package e2e

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/layerwright/layerwright/test/cluster/faultproxy"
	"github.com/layerwright/layerwright/test/cluster/registry"
)

// ownRegistry is a registry of one test's own, on a disk of its own.
type ownRegistry struct {
	// host is its name for the controller.
	host  string
	proxy *faultproxy.Proxy

	dir, outside string
	handler      atomic.Pointer[http.Handler]
}

// ownRegistry starts a registry whose disk has the options of a tmpfs. It has no accounts yet.
func (b *builds) ownRegistry(t *testing.T, disk string) *ownRegistry {
	t.Helper()
	r := &ownRegistry{dir: t.TempDir()}
	require.NoError(t, unix.Mount("tmpfs", r.dir, "tmpfs", 0, disk))
	t.Cleanup(func() { require.NoError(t, unix.Unmount(r.dir, unix.MNT_DETACH)) })
	r.serve()
	outside := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) { (*r.handler.Load()).ServeHTTP(w, q) }))
	t.Cleanup(outside.Close)
	target, err := url.Parse(outside.URL)
	require.NoError(t, err)
	r.outside = target.Host
	r.proxy = faultproxy.New(target, &http.Transport{})
	r.host = serveInside(t, statusOf(t), r.proxy)
	return r
}

// serve goes on with other accounts, as a registry does that is restarted.
func (r *ownRegistry) serve(accounts ...registry.Account) {
	handler := registry.New(context.Background(), registry.Options{Dir: r.dir, Accounts: accounts})
	r.handler.Store(&handler)
}

// resize changes the size of the disk.
func (r *ownRegistry) resize(t *testing.T, disk string) {
	t.Helper()
	require.NoError(t, unix.Mount("tmpfs", r.dir, "tmpfs", unix.MS_REMOUNT, disk))
}

// tags are those of the images in a repository.
func (r *ownRegistry) tags(t *testing.T, account, password, repository string) []string {
	t.Helper()
	repo, err := name.NewRepository(r.outside + "/" + repository)
	require.NoError(t, err)
	tags, err := remote.List(repo, remote.WithContext(t.Context()), remote.WithAuth(&authn.Basic{Username: account, Password: password}))
	require.NoError(t, err)
	return slices.DeleteFunc(tags, attachmentTag.MatchString)
}
