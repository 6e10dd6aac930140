package sign

import (
	"context"
	"sync"
)

// together has something asked for once for all who want it at the same time. Whoever waits does so no longer than its own context lasts, and gets what
// the one got who asked, an error too: a service that does not answer costs everybody its time once, and not each after the other.
type together[T any] struct {
	mu sync.Mutex
	// asked is what is under way; nil where nothing is.
	asked *question[T]
}

type question[T any] struct {
	// done is closed at the end.
	done  chan struct{}
	value T
	err   error
	// given is that whoever asked has waited for the answer.
	given bool
}

// ask asks, or waits for the answer to whoever did. The function is called by one at a time.
func (t *together[T]) ask(ctx context.Context, ask func(context.Context) (T, error)) (T, error) {
	for {
		t.mu.Lock()
		q := t.asked
		if q == nil {
			q = &question[T]{done: make(chan struct{})}
			t.asked = q
			t.mu.Unlock()
			return t.answer(ctx, q, ask)
		}
		t.mu.Unlock()
		select {
		case <-q.done:
		case <-ctx.Done():
			var none T
			return none, context.Cause(ctx)
		}
		if q.given {
			return q.value, q.err
		}
	}
}

func (t *together[T]) answer(ctx context.Context, q *question[T], ask func(context.Context) (T, error)) (T, error) {
	defer func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.asked = nil
		close(q.done)
	}()
	q.value, q.err = ask(ctx)
	q.given = ctx.Err() == nil
	return q.value, q.err
}
