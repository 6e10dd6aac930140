package pools

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
)

func TestBacklog(t *testing.T) {
	t.Parallel()
	now := clocktesting.NewFakePassiveClock(t0)
	b := NewBacklog(now)
	pool := func(i int) string { return fmt.Sprint("pool-", i) }
	for i := range maxConcurrent {
		b.add(pool(i))
		b.add(pool(i))
	}
	assert.False(t, b.IsLong(), "these are rendered at once")
	b.add(pool(maxConcurrent))
	assert.True(t, b.IsLong())
	now.SetTime(t0.Add(longestBacklog - time.Second))
	b.add(pool(maxConcurrent + 1))
	assert.True(t, b.IsLong())
	now.SetTime(t0.Add(longestBacklog))
	assert.False(t, b.IsLong(), "others have waited long enough")
	b.remove(pool(0))
	b.remove(pool(0))
	assert.False(t, b.IsLong())
	b.remove(pool(1))
	b.add(pool(0))
	assert.True(t, b.IsLong(), "the next one")
	b.remove(pool(0))
	assert.False(t, b.IsLong())

	var none *Backlog
	none.add("worker")
	none.remove("worker")
	assert.False(t, none.IsLong())
}

// TestAReconcileEndsABacklog has pools that are rendered, and one that is gone.
func TestAReconcileEndsABacklog(t *testing.T) {
	t.Parallel()
	w := newWorld(t, newPool("worker"), newConfig("00-a", "worker", "/etc/a"))
	w.options.Backlog = NewBacklog(w.clock)
	r := w.reconciler()
	for _, pool := range []string{"worker", "gone"} {
		w.options.Backlog.add(pool)
		_, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: types.NamespacedName{Name: pool}})
		require.NoError(t, err)
	}
	assert.Empty(t, w.options.Backlog.pools)
}
