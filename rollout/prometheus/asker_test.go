package prometheus

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/layerwright/layerwright/rollout/endpoint"
)

var t0 = time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)

// fixture is an Asker and the stand-in for Prometheus that it asks.
type fixture struct {
	*Asker
	clock *clocktesting.FakePassiveClock
	// told gets the pool after each answer.
	told chan string
	// asks counts requests, and code is what they are answered with.
	asks, code atomic.Int64
	// label is the value of a label of each sample.
	label string
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	f := &fixture{clock: clocktesting.NewFakePassiveClock(t0), told: make(chan string, 1)}
	f.code.Store(200)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		f.asks.Add(1)
		w.WriteHeader(int(f.code.Load()))
		_, _ = io.WriteString(w, vectorOf(`{"metric":{"node":"a","x":"`+f.label+`"},"value":[1,"7"]}`, `{"metric":{"node":"b"},"value":[1,"8"]}`, `{"metric":{},"value":[1,"9"]}`))
	}))
	t.Cleanup(server.Close)
	f.Asker = New(func(_ context.Context, secret string) (endpoint.Address, error) {
		if secret == "none" {
			return endpoint.Address{}, errors.New(`reading Secret "none": not found`)
		}
		return endpoint.Address{URL: server.URL}, nil
	}, f.clock, func(_ context.Context, pool string) { f.told <- pool })
	return f
}

func TestAQueryIsAskedForAllNodesOfAPoolAtOnce(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	byNode, all := Query{Secret: "p", Text: "up", NodeLabel: "node"}, Query{Secret: "p", Text: "up"}
	_, err := f.Answer("worker", byNode)
	require.ErrorIs(t, err, errNone)
	assert.Equal(t, Interval, f.Want(t.Context(), "worker", true, byNode, all))
	assert.Equal(t, "worker", <-f.told)
	assert.Equal(t, "worker", <-f.told)
	answer, err := f.Answer("worker", byNode)
	require.NoError(t, err)
	assert.True(t, answer.At.Equal(t0))
	assert.Equal(t, []float64{7}, values(answer.Of("a")))
	assert.Equal(t, []float64{8}, values(answer.Of("b")))
	assert.Empty(t, answer.Of("c"))
	answer, err = f.Answer("worker", all)
	require.NoError(t, err)
	assert.Equal(t, []float64{7, 8, 9}, values(answer.Of("c")))
	assert.Equal(t, int64(2), f.asks.Load())
	_, err = f.Answer("infra", all)
	require.ErrorIs(t, err, errNone, "another pool's")
}

func values(samples []Sample) (all []float64) {
	for _, s := range samples {
		all = append(all, s.Value)
	}
	return all
}

func TestQueryInterval(t *testing.T) {
	t.Parallel()
	f, q := newFixture(t), Query{Secret: "p", Text: "up"}
	f.Want(t.Context(), "worker", false, q)
	<-f.told
	for range 10 { // reconciles
		f.clock.SetTime(f.clock.Now().Add(time.Minute))
		assert.Zero(t, f.Want(t.Context(), "worker", false, q), "that it can be answered is known")
	}
	assert.Equal(t, int64(1), f.asks.Load())

	assert.Equal(t, Interval, f.Want(t.Context(), "worker", true, q), "a node has to prove something")
	<-f.told
	asked := f.clock.Now()
	for range 10 {
		f.clock.SetTime(f.clock.Now().Add(time.Second))
		want := asked.Add(Interval).Sub(f.clock.Now())
		assert.Equal(t, want, f.Want(t.Context(), "worker", true, q))
	}
	assert.Equal(t, int64(2), f.asks.Load(), "at most once in an interval, however many reconciles there are")
	f.clock.SetTime(asked.Add(Interval))
	f.Want(t.Context(), "worker", true, q)
	<-f.told
	assert.Equal(t, int64(3), f.asks.Load())

	assert.Zero(t, f.Want(t.Context(), "worker", false), "nothing is rolled out")
	_, err := f.Answer("worker", q)
	require.ErrorIs(t, err, errNone)
	f.clock.SetTime(t0) // the clock is set back
	f.Want(t.Context(), "worker", true, q)
	<-f.told
	assert.Equal(t, int64(4), f.asks.Load())
}

func TestAnswerOutlastsAShortOutage(t *testing.T) {
	t.Parallel()
	f, q := newFixture(t), Query{Secret: "p", Text: "up"}
	next := func() {
		f.Want(t.Context(), "worker", true, q)
		<-f.told
		f.clock.SetTime(f.clock.Now().Add(Interval))
	}
	f.code.Store(500)
	next()
	_, err := f.Answer("worker", q)
	require.EqualError(t, err, "the Prometheus server answered 500", "there was none before")
	f.code.Store(200)
	next()
	f.code.Store(500)
	for range 2 {
		next()
		_, err = f.Answer("worker", q)
		require.NoError(t, err)
	}
	next()
	_, err = f.Answer("worker", q)
	require.EqualError(t, err, "the Prometheus server answered 500", "the answer is too old")
	f.code.Store(200)
	next()
	_, err = f.Answer("worker", q)
	require.NoError(t, err)
}

func TestAnAddressThatCanNotBeRead(t *testing.T) {
	t.Parallel()
	f, q := newFixture(t), Query{Secret: "none", Text: "up"}
	assert.Equal(t, Interval, f.Want(t.Context(), "worker", false, q))
	<-f.told
	_, err := f.Answer("worker", q)
	require.EqualError(t, err, `reading Secret "none": not found`)
	assert.Equal(t, Interval, f.Want(t.Context(), "worker", false, q), "it is tried again")
	assert.Zero(t, f.asks.Load())
}

func TestAnswersOfAllPoolsHaveOneBudget(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.label = strings.Repeat("x", 3<<20)
	ask := func(pool string, queries ...Query) {
		f.Want(t.Context(), pool, true, queries...)
		for range queries {
			assert.Equal(t, pool, <-f.told)
		}
	}
	first, second, third := Query{Text: "1"}, Query{Text: "2"}, Query{Text: "3"}
	ask("p0", first, second, third)
	_, err := f.Answer("p0", second)
	require.NoError(t, err)
	_, err = f.Answer("p0", third)
	require.EqualError(t, err, "the answers to the pool's queries take more than 8 MiB of memory together: aggregate in the query")
	for _, pool := range []string{"p1", "p2", "p3", "p4"} {
		ask(pool, first, second)
		_, err = f.Answer(pool, first)
		require.NoError(t, err)
	}
	ask("p5", first)
	_, err = f.Answer("p5", first)
	require.EqualError(t, err, "the answers to the queries of all pools take more than 32 MiB of memory together: aggregate in the queries")

	f.Want(t.Context(), "p1", false)
	f.clock.SetTime(t0.Add(Interval))
	ask("p5", first)
	_, err = f.Answer("p5", first)
	require.NoError(t, err, "there is room again")
}

// TestQueriesAreAskedAFewAtOnce holds all answers back: what is asked at the same time is what the
// bodies may take together.
func TestQueriesAreAskedAFewAtOnce(t *testing.T) {
	t.Parallel()
	begun, answer, told := make(chan struct{}), make(chan struct{}), make(chan string)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		begun <- struct{}{}
		<-answer
		_, _ = io.WriteString(w, vectorOf())
	}))
	t.Cleanup(server.Close)
	a := New(func(context.Context, string) (endpoint.Address, error) { return endpoint.Address{URL: server.URL}, nil },
		clocktesting.NewFakePassiveClock(t0), func(_ context.Context, pool string) { told <- pool })
	const pools = 3 * atOnce
	for i := range pools {
		a.Want(t.Context(), strconv.Itoa(i), true, Query{Text: "1"}, Query{Text: "2"})
	}
	for range atOnce {
		<-begun
	}
	assert.Len(t, a.turns, atOnce)
	for left := 2 * pools; left > 0; {
		select {
		case answer <- struct{}{}:
		case <-begun:
			assert.LessOrEqual(t, len(a.turns), atOnce)
		case <-told:
			left--
		}
	}
}
