package poolmirrors_test

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/builder/poolmirrors"
	"github.com/layerwright/layerwright/internal/apitest"
	"github.com/layerwright/layerwright/internal/fault"
	"github.com/layerwright/layerwright/internal/registry/mirrors"
)

const image = "quay.io/team/os:1"

// sets are those of a cluster.
type sets struct{ rules mirrors.Rules }

// Rules are what it says.
func (s *sets) Rules(context.Context) (mirrors.Rules, error) { return s.rules, nil }

// Watched is nothing.
func (s *sets) Watched() []client.Object { return nil }

func pool(name, rendered string) *mcfgv1.MachineConfigPool {
	p := &mcfgv1.MachineConfigPool{ObjectMeta: metav1.ObjectMeta{Name: name}}
	p.Spec.Configuration.Name = rendered
	return p
}

// rendered is a MachineConfig with files.
func rendered(name string, files ...[2]string) *mcfgv1.MachineConfig {
	text := ""
	for i, file := range files {
		if i > 0 {
			text += ","
		}
		text += fmt.Sprintf(`{"path":%q,"contents":{"source":"data:,%s"}}`, file[0], url.PathEscape(file[1]))
	}
	return &mcfgv1.MachineConfig{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: mcfgv1.MachineConfigSpec{
		Config: runtime.RawExtension{Raw: []byte(`{"ignition":{"version":"3.5.0"},"storage":{"files":[` + text + `]}}`)},
	}}
}

func mirrored(to string) string {
	return "[[registry]]\nlocation = \"quay.io\"\n[[registry.mirror]]\nlocation = \"" + to + "\"\n"
}

func TestMirrorsOfPools(t *testing.T) {
	t.Parallel()
	const conf, dropIns = "/etc/containers/registries.conf", "/etc/containers/registries.conf.d/"
	tests := map[string]struct {
		files [][2]string
		want  string // the first place
	}{
		"the cluster's":                   {want: "cluster.io/team/os:1"},
		"the pool's before the cluster's": {files: [][2]string{{conf, mirrored("pool.io")}}, want: "pool.io/team/os:1"},
		"drop-ins after the file":         {files: [][2]string{{dropIns + "20.conf", mirrored("late.io")}, {conf, mirrored("pool.io")}, {dropIns + "10.conf", mirrored("early.io")}}, want: "late.io/team/os:1"},
		"files of other names":            {files: [][2]string{{dropIns + "10.conf.bak", mirrored("a.io")}, {dropIns + "x/10.conf", mirrored("b.io")}}, want: "cluster.io/team/os:1"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := fake.NewClientBuilder().WithScheme(apitest.Scheme(t)).WithObjects(pool("worker", "rendered-worker-1"), rendered("rendered-worker-1", tt.files...)).Build()
			cluster := &sets{mirrors.Rules{}.Add(mirrors.TagsOnly, mirrors.Entry{Source: "quay.io/team", Mirrors: []string{"cluster.io/team"}})}
			table, err := poolmirrors.New(cluster, c, c).Of(t.Context(), "worker")
			require.NoError(t, err)
			places, _ := table.Places(image)
			assert.Equal(t, []string{tt.want, image}, places)
		})
	}
}

func TestRenderedConfigurationsAreReadOnce(t *testing.T) {
	t.Parallel()
	gets := 0
	c := interceptor.NewClient(fake.NewClientBuilder().WithScheme(apitest.Scheme(t)).WithObjects(
		pool("worker", "rendered-worker-1"), pool("new", ""), rendered("rendered-worker-1", [2]string{"/etc/containers/registries.conf", mirrored("one.io")}),
		rendered("rendered-worker-2", [2]string{"/etc/containers/registries.conf", mirrored("two.io")}),
	).Build(), interceptor.Funcs{Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
		if _, isRendered := object.(*mcfgv1.MachineConfig); isRendered {
			gets++
		}
		return c.Get(ctx, key, object, options...)
	}})
	cluster := &sets{}
	r := poolmirrors.New(cluster, c, c)
	first := func() string {
		table, err := r.Of(t.Context(), "worker")
		require.NoError(t, err)
		places, _ := table.Places(image)
		return places[0]
	}
	assert.Equal(t, "one.io/team/os:1", first())
	assert.Equal(t, "one.io/team/os:1", first())
	assert.Equal(t, 1, gets)
	require.NoError(t, c.Update(t.Context(), changed(t, c, "rendered-worker-2")))
	assert.Equal(t, "two.io/team/os:1", first())
	assert.Equal(t, 2, gets)

	worker := changed(t, c, "rendered-worker-2")
	require.NoError(t, c.Delete(t.Context(), worker))
	require.NoError(t, c.Create(t.Context(), pool("infra", "rendered-worker-1")))
	_, err := r.Of(t.Context(), "infra")
	require.NoError(t, err)
	require.NoError(t, c.Create(t.Context(), pool("worker", "rendered-worker-2")))
	assert.Equal(t, "two.io/team/os:1", first())
	assert.Equal(t, 4, gets, "a pool that is gone is forgotten")
	for _, other := range []string{"new", "absent"} {
		table, err := r.Of(t.Context(), other)
		require.NoError(t, err)
		assert.Empty(t, table.Version())
	}
}

func changed(t *testing.T, c client.Client, rendered string) *mcfgv1.MachineConfigPool {
	t.Helper()
	found := &mcfgv1.MachineConfigPool{}
	require.NoError(t, c.Get(t.Context(), client.ObjectKey{Name: "worker"}, found))
	found.Spec.Configuration.Name = rendered
	return found
}

func TestConfsThatCannotBeUsed(t *testing.T) {
	t.Parallel()
	c := fake.NewClientBuilder().WithScheme(apitest.Scheme(t)).WithObjects(
		pool("worker", "rendered-worker-1"), rendered("rendered-worker-1", [2]string{"/etc/containers/registries.conf", "[[registry]]\nblocked = true\n"}), pool("other", "absent"),
	).Build()
	_, err := poolmirrors.New(&sets{}, c, c).Of(t.Context(), "worker")
	require.EqualError(t, err, `registries.conf of MachineConfig "rendered-worker-1": a [[registry]] has neither a prefix nor a location`)
	assert.True(t, fault.IsTerminal(err))
	_, err = poolmirrors.New(&sets{}, c, c).Of(t.Context(), "other")
	assert.True(t, fault.IsWaiting(err), err)
	failing := interceptor.NewClient(c, interceptor.Funcs{Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
		return errors.New("away")
	}})
	_, err = poolmirrors.New(&sets{}, failing, c).Of(t.Context(), "worker")
	require.ErrorContains(t, err, `reading MachineConfigPool "worker": away`)
}
