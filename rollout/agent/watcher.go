package agent

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path"
	"sync"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/event"
)

// lookInterval is how often files are looked at that people may edit. It costs a stat for each of
// them and no request, and no number of watches that the kernel would limit.
const lookInterval = 10 * time.Second

// watcher tells when files of the host have changed since the last reconcile.
type watcher struct {
	root    string
	changed chan event.GenericEvent

	mu   sync.Mutex
	seen map[string]string // what files were like, by path
}

func newWatcher(root string) *watcher {
	return &watcher{root: root, changed: make(chan event.GenericEvent, 1)}
}

// alwaysWatched change when the host's deployments do, whoever changes them.
func alwaysWatched() []string { return []string{"/ostree/deploy", "/run/ostree/staged-deployment"} }

// watch replaces what is watched, from what it is like now.
func (w *watcher) watch(paths []string) {
	seen := map[string]string{}
	for _, at := range append(alwaysWatched(), paths...) {
		seen[at] = w.look(at)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.seen = seen
}

// look is what a file is like, without reading it. What replaces a file, or changes its mode or
// owner, changes its inode or the time of that.
func (w *watcher) look(at string) string {
	info, err := os.Lstat(path.Join(w.root, at))
	if err != nil {
		return ""
	}
	s := info.Sys().(*syscall.Stat_t)
	return fmt.Sprintf("%d %d %d %d.%d", s.Ino, s.Mode, s.Size, s.Ctim.Sec, s.Ctim.Nsec)
}

// hasChanged reports whether a watched file has changed since the last look.
func (w *watcher) hasChanged() bool {
	w.mu.Lock()
	before := maps.Clone(w.seen)
	w.mu.Unlock()
	after, changed := map[string]string{}, false
	for at, was := range before {
		after[at] = w.look(at)
		changed = changed || after[at] != was
	}
	if !changed {
		return false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if maps.Equal(w.seen, before) { // no reconcile has looked meanwhile
		w.seen = after
	}
	return true
}

// run looks until ctx ends, and requests a reconcile of the Node when something has changed.
func (w *watcher) run(ctx context.Context, clock clock.WithTicker, node string) error {
	ticker := clock.NewTicker(lookInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C():
		}
		if !w.hasChanged() {
			continue
		}
		select {
		case w.changed <- event.GenericEvent{Object: &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}}:
		default: // one is asked for already
		}
	}
}
