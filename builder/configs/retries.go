package configs

import "sync"

// retries count how often builds that failed were made again in a row. The build itself goes each
// time; after a restart of the process the count begins anew.
type retries struct {
	mu sync.Mutex
	// last is by MachineOSConfig.
	last map[string]retried
}

type retried struct {
	build string
	times int
}

// of is how often a build was made again.
func (r *retries) of(config, build string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	if last := r.last[config]; last.build == build {
		return last.times
	}
	return 0
}

// note counts that a build is made again.
func (r *retries) note(config, build string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	last := r.last[config]
	if last.build != build {
		last = retried{build: build}
	}
	last.times++
	if r.last == nil {
		r.last = map[string]retried{}
	}
	r.last[config] = last
}

// forget drops what is known of a MachineOSConfig.
func (r *retries) forget(config string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.last, config)
}
