package credentials_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/internal/apitest"
	"github.com/layerwright/layerwright/internal/fault"
	"github.com/layerwright/layerwright/internal/registry"
	"github.com/layerwright/layerwright/internal/registry/credentials"
	"github.com/layerwright/layerwright/internal/registry/mirrors"
	"github.com/layerwright/layerwright/internal/registry/registrytest"
)

func TestRepository(t *testing.T) {
	t.Parallel()
	for pushSpec, want := range map[mcfgv1.ImageTagFormat]string{
		"quay.io/team/os:latest":                   "quay.io/team/os",
		"registry:5000/os/worker:1":                "registry:5000/os/worker",
		"registry.ns.svc:5000/repository/name:tag": "registry.ns.svc:5000/repository/name",
		"127.0.0.1:5000/a/b/c/d:x":                 "127.0.0.1:5000/a/b/c/d",
		"[fd00::1]:5000/my.org/a__b/c--d:x":        "[fd00::1]:5000/my.org/a__b/c--d",
	} {
		got, err := credentials.Repository(pushSpec)
		require.NoError(t, err)
		assert.Equal(t, want, got)
	}
	for _, pushSpec := range []mcfgv1.ImageTagFormat{
		"quay.io/UPPER/os:latest", "quay.io/os/-worker:1", "quay.io/os/../worker:1", "quay.io/.hidden/worker:1", "quay.io/os/a___b:1",
	} {
		_, err := credentials.Repository(pushSpec)
		require.ErrorContains(t, err, "spec.renderedImagePushSpec: ", pushSpec)
		assert.True(t, fault.IsTerminal(err))
	}
}

// mirrored has a table for one pool.
type mirrored struct {
	table mirrors.Table
	err   error
}

// Of gives it.
func (m *mirrored) Of(_ context.Context, pool string) (mirrors.Table, error) {
	if pool != "worker" {
		return nil, nil
	}
	return m.table, m.err
}

// TestPullsGoThroughMirrors reads an image whose registry is down, and pushes to no mirror.
func TestPullsGoThroughMirrors(t *testing.T) {
	t.Parallel()
	mirror := registrytest.New(t, nil)
	pinned := mirror.Push(t, "os:1", empty.Image)
	_, digest, _ := strings.Cut(pinned, "@")
	c := fake.NewClientBuilder().WithScheme(apitest.Scheme(t)).WithObjects(&corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "os", Name: "push"}, Type: corev1.SecretTypeDockerConfigJson,
		Data: map[string][]byte{corev1.DockerConfigJsonKey: []byte(`{"auths":{"push.example.com":{"username":"a","password":"b"}}}`)},
	}).Build()
	from := &mirrored{}
	source := &credentials.Source{Reader: c, Namespace: "os", Mirrors: from, Connect: func(keychain authn.Keychain) *registry.Client {
		return registry.New(registry.Options{Keychain: keychain, Backoff: remote.Backoff{Duration: time.Millisecond, Steps: 1}})
	}}
	config := &mcfgv1.MachineOSConfig{}
	config.Spec.MachineConfigPool.Name, config.Spec.RenderedImagePushSecret.Name = "worker", "push"
	image := "127.0.0.1:1/team/os@" + digest

	before, err := source.Credentials(t.Context(), config)
	require.NoError(t, err)
	_, err = before.Pull.Resolve(t.Context(), image)
	require.Error(t, err)
	from.table = mirrors.Table{mirrors.Rules{}.Add(mirrors.DigestsOnly, mirrors.Entry{Source: "127.0.0.1:1/team", Mirrors: []string{mirror.Host}})}
	with, err := source.Credentials(t.Context(), config)
	require.NoError(t, err)
	assert.NotEqual(t, before.Access, with.Access, "what failed is tried again")
	_, err = with.Pull.Resolve(t.Context(), image)
	require.NoError(t, err)
	_, err = with.Push.Resolve(t.Context(), image)
	require.Error(t, err)
	reads, err := source.ReadWith(t.Context(), "worker", "push")
	require.NoError(t, err)
	_, err = reads.Resolve(t.Context(), image)
	require.NoError(t, err)

	from.err = errors.New("no such file")
	broken, err := source.Credentials(t.Context(), config)
	require.ErrorIs(t, err, from.err)
	assert.Nil(t, broken.Pull, "the source may be one that must not be asked")
	assert.NotNil(t, broken.Push)
	_, err = source.ReadWith(t.Context(), "worker")
	require.ErrorIs(t, err, from.err)
}
