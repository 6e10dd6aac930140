package bootimages

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/layerwright/layerwright/internal/fault"
	"github.com/layerwright/layerwright/internal/metrics"
	"github.com/layerwright/layerwright/rollout/bootimages/plan"
)

// listener is a watch of one secret whose events tests make.
type listener struct {
	*watch.RaceFreeFakeWatcher
	began chan string
}

func (l *listener) Watch(_ context.Context, _ client.ObjectList, options ...client.ListOption) (watch.Interface, error) {
	var is client.ListOptions
	is.ApplyOptions(options)
	l.began <- is.Namespace + " " + is.FieldSelector.String()
	return l, nil
}

// listen has the watches of a cluster be one that a test makes the events of.
func listen(c *cluster) *listener {
	l := &listener{watch.NewRaceFreeFake(), make(chan string, 10)}
	for _, u := range c.update {
		u.secrets.watcher = l
	}
	return l
}

func of(secret *corev1.Secret, made time.Time) *metav1.PartialObjectMetadata {
	return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: secret.Namespace, Name: secret.Name, CreationTimestamp: metav1.NewTime(made)}}
}

// told waits until a MachineSet is to be looked at again.
func (c *cluster) told() string {
	c.t.Helper()
	select {
	case event := <-c.update[mapi].wake[c.update[mapi].kind]:
		return event.Object.GetName()
	case <-c.t.Context().Done():
		return ""
	}
}

func TestARepairedSecretIsNoticed(t *testing.T) {
	t.Parallel()
	set := machineSet(t, "a", "worker")
	c := newCluster(t, set)
	l := listen(c)
	secret := userData(machines, "worker-user-data", "userData", "broken")
	require.NoError(t, c.Update(t.Context(), secret))
	c.mustReconcile(mapi, set)
	require.Equal(t, machines+" metadata.name=worker-user-data", <-l.began)
	l.Add(of(secret, t0.Add(-time.Hour)))
	require.Equal(t, "a", c.told(), "it may have changed before the watch")
	c.mustReconcile(mapi, set)
	require.Equal(t, metrics.BootImageFailed, c.update[mapi].ledger.entries()[0].state)

	secret = userData(machines, "worker-user-data", "userData", stub3)
	require.NoError(t, c.Update(t.Context(), secret))
	l.Add(of(userData(machines, "another", "", ""), t0))
	l.Modify(of(secret, t0.Add(-time.Hour)))
	require.Equal(t, "a", c.told())
	c.mustReconcile(mapi, set)
	assert.Equal(t, image9, c.image(set))
	assert.Empty(t, l.began, "one watch is enough")
}

func TestRepairedCredentialsAreTriedAtOnce(t *testing.T) {
	t.Parallel()
	set := machineSet(t, "a", "worker")
	require.NoError(t, unstructured.SetNestedMap(set.Object, map[string]any{
		"kind": "VSphereMachineProviderSpec", "template": "lab-x7-rhcos", "credentialsSecret": map[string]any{"name": "vsphere"}, "workspace": map[string]any{"server": "vc"},
	}, providerSpec...))
	set.SetLabels(map[string]string{"machine.openshift.io/cluster-api-cluster": "lab-x7"})
	c := newCluster(t, set)
	l := listen(c)
	u := c.update[mapi]
	for i := range c.update {
		c.update[i].options.Importer = refused{}
	}
	u.imports = newImports(refused{}, c.clock)
	c.mustReconcile(mapi, set)
	require.Equal(t, "a", c.told(), "the import has ended")
	c.mustReconcile(mapi, set)
	require.Equal(t, metrics.BootImageFailed, u.ledger.entries()[0].state)
	require.Equal(t, machines+" metadata.name=vsphere", <-l.began)
	secret := userData(machines, "vsphere", "", "")
	l.Add(of(secret, t0.Add(-time.Hour)))
	require.Equal(t, "a", c.told())
	require.Len(t, u.imports.known, 1, "nothing has changed: a download is not repeated")
	c.mustReconcile(mapi, set)
	l.Modify(of(secret, t0.Add(-time.Hour)))
	require.Equal(t, "a", c.told())
	assert.Empty(t, u.imports.known, "it is tried again")
}

// refused is a vCenter that refuses the credentials.
type refused struct{}

func (refused) Import(context.Context, string, plan.Spec, plan.Image) error {
	return fault.NewTerminal("CredentialsUnreadable", nil)
}

// TestWatchesOfSecretsHaveABound has more secrets than are watched.
func TestWatchesOfSecretsHaveABound(t *testing.T) {
	t.Parallel()
	l := &listener{watch.NewRaceFreeFake(), make(chan string, 3*maxWatched)}
	w := &secrets{watcher: l, clock: clocktesting.NewFakePassiveClock(t0), waiting: map[types.NamespacedName]map[id]bool{}}
	called := make(chan []id, maxWatched)
	named := func(name string) id { return id{NamespacedName: types.NamespacedName{Namespace: machines, Name: name}} }
	changed := func(_ context.Context, _ bool, all []id) { called <- all }
	for i := range 2 * maxWatched {
		w.await(t.Context(), types.NamespacedName{Namespace: machines, Name: fmt.Sprint("secret-", i)}, named(fmt.Sprint(i)), changed)
	}
	for range maxWatched {
		<-l.began
	}
	w.await(t.Context(), types.NamespacedName{Namespace: machines, Name: "secret-0"}, named("another"), changed)
	w.mu.Lock()
	assert.Len(t, w.waiting, maxWatched)
	assert.Len(t, w.waiting[types.NamespacedName{Namespace: machines, Name: "secret-0"}], 2, "who waits for one that is watched waits with others")
	w.mu.Unlock()
	assert.Empty(t, l.began)
	l.Stop() // all watches end
}
