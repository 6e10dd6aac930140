package silences

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/layerwright/layerwright/rollout/endpoint"
)

var t0 = time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)

const (
	listed = "GET /am/api/v2/silences"
	posted = "POST /am/api/v2/silences"
	ended  = "DELETE /am/api/v2/silence/"
)

// world is an Alertmanager, and a Keeper whose reconciles a test makes.
type world struct {
	*standIn
	*Keeper
	clock *clocktesting.FakeClock
	// said are the errors that were told.
	said []string
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{standIn: newStandIn(t, t0), clock: clocktesting.NewFakeClock(t0)}
	w.restart()
	return w
}

// restart begins anew with what the Alertmanager knows.
func (w *world) restart() {
	w.Keeper = newKeeper(func(context.Context, string) (endpoint.Address, error) {
		return endpoint.Address{URL: w.URL + "/am", Token: "secret"}, nil
	})
	w.Keeper.clock, w.alerts.clock = w.clock, w.clock
}

// want has nodes of the pool worker silenced, and makes a reconcile.
func (w *world) want(nodes ...string) time.Duration {
	w.Want("worker", "am", "node", nodes, func(err error) { w.said = append(w.said, err.Error()) })
	return w.reconcile(w.t.Context())
}

// step lets both clocks go on.
func (w *world) step(d time.Duration) {
	w.clock.Step(d)
	w.change(func() { w.now = w.now.Add(d) })
}

func TestASilenceIsALease(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	assert.Equal(t, renewal, w.want())
	assert.Empty(t, w.requests(), "nothing is wanted")

	assert.Equal(t, renewal, w.want("a", "b"))
	assert.Equal(t, []string{"a 10m0s", "b 10m0s"}, w.silenced())
	assert.Equal(t, []string{listed, posted, listed, posted}, w.requests())
	made := w.all["silence-0"]
	assert.Equal(t, []matcher{{Name: "node", Value: "a", IsEqual: new(true)}}, made.Matchers)
	assert.Equal(t, []string{"layerwright", "pool worker: node a is being updated"}, []string{made.CreatedBy, made.Comment})

	w.step(time.Minute)
	assert.Equal(t, renewal-time.Minute, w.want("a", "b"))
	assert.Empty(t, w.requests(), "it is soon enough later")
	w.step(renewal - time.Minute)
	w.want("a", "b")
	assert.Equal(t, []string{"a 10m0s", "b 10m0s"}, w.silenced())
	assert.Len(t, w.all, 2, "they were renewed, and not made anew")
	w.requests()

	w.want("b")
	assert.Equal(t, []string{"b 10m0s"}, w.silenced(), "a is healthy, or has failed")
	assert.Equal(t, []string{listed, ended + "silence-0"}, w.requests())
	w.step(lease)
	assert.Empty(t, w.silenced(), "it was not renewed")
	w.want()
	assert.Empty(t, w.requests(), "it has ended by itself")
	assert.Empty(t, w.pools)
}

// TestAnotherProcessGoesOn has one that was killed after it had made a silence, before or after it
// knew of it.
func TestAnotherProcessGoesOn(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.want("a")
	w.step(time.Minute)
	w.restart()
	w.want("a")
	assert.Equal(t, []string{"a 10m0s"}, w.silenced())
	assert.Len(t, w.all, 1, "it is the same one")
	w.restart()
	w.want()
	assert.Equal(t, []string{"a 10m0s"}, w.silenced(), "the node has finished meanwhile: it ends by itself")
}

func TestForeignSilencesStay(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	mine := silence{
		Matchers: []matcher{{Name: "node", Value: "a"}}, StartsAt: t0, EndsAt: t0.Add(time.Hour),
		CreatedBy: createdBy, Comment: "pool worker: node a is being updated",
	}
	put := func(id string, change func(*silence)) {
		s := mine
		s.ID = id
		change(&s)
		w.all[id] = &s
	}
	put("person", func(s *silence) { s.CreatedBy = "me" })
	put("other-pool", func(s *silence) { s.Comment = "pool infra: node a is being updated" })
	put("regex", func(s *silence) { s.Matchers = []matcher{{Name: "node", Value: "a", IsRegex: true}} })
	put("unequal", func(s *silence) { s.Matchers = []matcher{{Name: "node", Value: "a", IsEqual: new(false)}} })
	put("narrower", func(s *silence) { s.Matchers = append(s.Matchers, matcher{Name: "alertname", Value: "x"}) })
	put("../status", func(*silence) {})
	put("mine-1", func(*silence) {})
	put("mine-2", func(*silence) {}) // of two processes
	w.want("a")
	assert.Len(t, w.all, 9, "that without isEqual is of an old Alertmanager: it was ended, and made anew")
	w.requests()
	w.want()
	assert.Equal(t, []string{listed, ended + "mine-2", ended + "silence-0"}, w.requests())
}

// TestClocksMayDiffer has an Alertmanager whose clock is another, and a controller whose clock is
// set.
func TestClocksMayDiffer(t *testing.T) {
	t.Parallel()
	for _, off := range []time.Duration{-48 * time.Hour, 48 * time.Hour} {
		w := newWorld(t)
		w.change(func() { w.now = t0.Add(off) })
		w.want("a")
		assert.Equal(t, []string{"a 10m0s"}, w.silenced())
		w.clock.Step(48 * time.Hour)
		w.want("a")
		assert.Equal(t, []string{"a 10m0s"}, w.silenced())
		assert.Empty(t, w.said)
	}
}

func TestAnAlertmanagerThatFails(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		change func(*world)
		says   string
	}{
		"it refuses":           {func(w *world) { w.fails = http.StatusForbidden }, "the Alertmanager answered 403"},
		"it sends elsewhere":   {func(w *world) { w.fails = http.StatusFound }, "the Alertmanager answered 302"},
		"it answers something": {func(w *world) { w.raw = "<html>" }, "the Alertmanager did not answer with a list of silences"},
		"it answers too much":  {func(w *world) { w.raw = "[" + strings.Repeat(" ", 2<<20) + "]" }, "the Alertmanager did not answer with a list of silences"},
		"it is not there":      {func(w *world) { w.Close() }, "the Alertmanager can't be reached: "},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.change(func() { tt.change(w) })
			assert.Equal(t, pause, w.want("a", "b"))
			require.Len(t, w.said, 1)
			assert.True(t, strings.HasPrefix(w.said[0], tt.says), w.said[0])
			assert.LessOrEqual(t, len(w.requests()), 1, "the others are not tried")
			w.want("a")
			assert.Empty(t, w.requests(), "it has a pause")
			w.step(pause)
			w.want("a")
			assert.Len(t, w.said, 1, "the same is not told again")
		})
	}
}

func TestAnAlertmanagerThatReturns(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.want("a")
	w.change(func() { w.fails = http.StatusServiceUnavailable })
	w.want("b")
	w.step(pause)
	w.change(func() { w.fails = 0 })
	assert.Equal(t, renewal, w.want("b"))
	assert.Equal(t, []string{"b 10m0s"}, w.silenced())
	w.change(func() { clear(w.all) }) // it has lost its disk
	w.step(renewal)
	w.want("b")
	assert.Equal(t, []string{"b 10m0s"}, w.silenced())
	assert.Len(t, w.said, 1)
}

// TestAListOfAHostileAlertmanager has it list more of ours than anyone can have made.
func TestAListOfAHostileAlertmanager(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.want("a")
	var all []string
	for i := range 1000 {
		all = append(all, fmt.Sprintf(`{"id":"x-%d","matchers":[{"name":"node","value":"a"}],"createdBy":"layerwright",
			"comment":"pool worker: node a is being updated","status":{"state":"active"}}`, i))
	}
	w.change(func() { w.raw = "[" + strings.Join(all, ",") + "]" })
	w.requests()
	w.want()
	assert.LessOrEqual(t, len(w.requests()), 1+most)
}

func TestALargePool(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("large amounts are for the run without the race detector")
	}
	w := newWorld(t)
	nodes := make([]string, 2000)
	for i := range nodes {
		nodes[i] = fmt.Sprintf("node-%d", i)
	}
	w.want(nodes...)
	assert.Len(t, w.silenced(), len(nodes))
	w.requests()
	w.want(nodes...)
	assert.Empty(t, w.requests())
	w.want()
	assert.Empty(t, w.silenced())
}

func TestWantNeverBlocks(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for i := range 100 { // while it does not run
		w.Want("worker", "am", "node", []string{fmt.Sprint(i)}, nil)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- w.Start(ctx) }()
	silenced := func(want string) {
		w.await("node "+want+" alone is silenced", func() bool { return fmt.Sprint(w.silenced()) == "["+want+" 10m0s]" })
	}
	silenced("99")
	w.Want("worker", "am", "node", []string{"last"}, nil)
	silenced("last")
	w.Want("worker", "", "", nil, nil) // the pool asks for no silences any more
	w.await("no node is silenced", func() bool { return len(w.silenced()) == 0 })
	cancel()
	require.NoError(t, <-ended)
}
