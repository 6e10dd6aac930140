package preflight

import (
	"context"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	ggcr "github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/stretchr/testify/require"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/builder/wanted/recipe"
	"github.com/layerwright/layerwright/internal/registry"
	"github.com/layerwright/layerwright/internal/registry/credentials"
	"github.com/layerwright/layerwright/internal/registry/registrytest"
	"github.com/layerwright/layerwright/osimage/osindex"
)

// account is one of a registry.
type account string

// Resolve logs in.
func (a account) Resolve(authn.Resource) (authn.Authenticator, error) { //nolint:ireturn // that is how authn has it
	return &authn.Basic{Username: string(a), Password: "hunter2"}, nil
}

// emptyIndexes reads nothing.
type emptyIndexes struct{}

// Index is empty.
func (emptyIndexes) Index(context.Context, v1.Image) (*osindex.Index, error) {
	return &osindex.Index{}, nil
}

// TestBaseImagesAreOpenedWithOnesOwnCredentials has two accounts ask for a base image, of which the
// first is refused then.
func TestBaseImagesAreOpenedWithOnesOwnCredentials(t *testing.T) {
	t.Parallel()
	server := registrytest.New(t, nil)
	image, err := mutate.Config(empty.Image, v1.Config{Labels: map[string]string{mcfgv1.ImageLabelBootc: "1"}})
	require.NoError(t, err)
	config, err := image.ConfigFile()
	require.NoError(t, err)
	config.OS, config.Architecture = "linux", "amd64"
	image, err = mutate.ConfigFile(image, config)
	require.NoError(t, err)
	pinned := server.Push(t, "os:base", image)
	var revoked atomic.Value
	revoked.Store("")
	server.Answer(func(w http.ResponseWriter, r *http.Request) bool {
		name, _, given := r.BasicAuth()
		if given && name != revoked.Load() {
			return false
		}
		w.Header().Set("WWW-Authenticate", "Basic")
		w.WriteHeader(http.StatusUnauthorized)
		return true
	})
	checker := New(Options{Indexer: emptyIndexes{}})
	base := func(name string) *recipe.Base {
		pull := registry.New(registry.Options{Keychain: account(name), Backoff: ggcr.Backoff{Duration: time.Millisecond, Steps: 1}})
		found, err := checker.BaseImage(t.Context(), credentials.Credentials{Pull: pull, Access: name}, pinned, nil)
		require.NoError(t, err)
		require.Len(t, found.Platforms, 1)
		return found
	}
	first, second := base("first"), base("second")
	revoked.Store("first")
	_, err = first.Platforms[0].Open(t.Context())
	require.True(t, registry.IsDenied(err), err)
	_, err = second.Platforms[0].Open(t.Context())
	require.NoError(t, err)
}
