package builder

import "sync"

// locks are locks by name. Those that nobody holds take no memory.
type locks struct {
	mu   sync.Mutex
	held map[string]*heldLock
}

type heldLock struct {
	mu      sync.Mutex
	holders int
}

// lock waits for the lock of a name, and gives what unlocks it.
func (l *locks) lock(name string) func() {
	l.mu.Lock()
	if l.held == nil {
		l.held = map[string]*heldLock{}
	}
	one := l.held[name]
	if one == nil {
		one = &heldLock{}
		l.held[name] = one
	}
	one.holders++
	l.mu.Unlock()
	one.mu.Lock()
	return func() {
		one.mu.Unlock()
		l.mu.Lock()
		defer l.mu.Unlock()
		if one.holders--; one.holders == 0 {
			delete(l.held, name)
		}
	}
}
