package images

import (
	"context"
	"sync"
)

// locks are locks by name. Those that no one holds take no memory. They are by hand, because who
// waits for a keymutex of k8s.io/utils can't give up, and two names may share one.
type locks struct {
	mu   sync.Mutex
	held map[string]*heldLock
}

type heldLock struct {
	// free has something in it while no one has the lock.
	free    chan struct{}
	holders int
}

// lock waits for the lock of a name, until the context ends, and gives what unlocks it.
func (l *locks) lock(ctx context.Context, name string) (unlock func(), err error) {
	one := l.join(name)
	select {
	case <-one.free:
		return func() {
			one.free <- struct{}{}
			l.leave(name, one)
		}, nil
	case <-ctx.Done():
		l.leave(name, one)
		return nil, ctx.Err()
	}
}

func (l *locks) join(name string) *heldLock {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.held == nil {
		l.held = map[string]*heldLock{}
	}
	one := l.held[name]
	if one == nil {
		one = &heldLock{free: make(chan struct{}, 1)}
		one.free <- struct{}{}
		l.held[name] = one
	}
	one.holders++
	return one
}

func (l *locks) leave(name string, one *heldLock) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if one.holders--; one.holders == 0 {
		delete(l.held, name)
	}
}
