package builder

import (
	"context"
	"sync"
)

// runs are the builds that this process works on right now, one for each MachineOSConfig at most. Nothing is decided by it but who goes first:
// after a restart it is empty, and the status of the builds says what is to be done.
type runs struct {
	mu      sync.Mutex
	running map[string]*run // by MachineOSConfig
}

type run struct {
	build  string
	cancel context.CancelFunc
}

func newRuns() *runs { return &runs{running: map[string]*run{}} }

// begin starts a run, unless another build of the MachineOSConfig runs. Its context ends when somebody stops it; call end when it is over.
func (r *runs) begin(ctx context.Context, config, build string) (running context.Context, end func(), ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.running[config] != nil {
		return ctx, func() {}, false
	}
	ctx, cancel := context.WithCancel(ctx)
	r.running[config] = &run{build: build, cancel: cancel}
	return ctx, func() {
		cancel()
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.running, config)
	}, true
}

// stop ends the run of a build, and tells whether there is one. It does not wait for the end.
func (r *runs) stop(config, build string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	running := r.running[config]
	if running == nil || running.build != build {
		return false
	}
	running.cancel()
	return true
}

// names are the builds that run.
func (r *runs) names() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	names := make([]string, 0, len(r.running))
	for _, running := range r.running {
		names = append(names, running.build)
	}
	return names
}
