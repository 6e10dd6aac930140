package bootimages

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/layerwright/layerwright/internal/fault"
	"github.com/layerwright/layerwright/rollout/bootimages/plan"
)

// Importer imports boot images into a platform that has no public ones.
type Importer interface {
	// Import makes the template that an image is wanted as, where machines of a provider
	// specification look for it. Where it is already, there is nothing to do.
	Import(ctx context.Context, namespace string, spec plan.Spec, image plan.Image) error
}

// importTimeout bounds one import. An image has about 1 GB.
const importTimeout = time.Hour

// maxImports is how many there may be at a time: whoever changes the workspace of a MachineSet
// again and again begins as many.
const maxImports = 4

// imports are the imports under way, each beside the reconciles of resources: they take minutes.
type imports struct {
	importer Importer
	clock    clock.PassiveClock

	mu    sync.Mutex
	known map[string]*imported
}

// imported is an import, and what came of it.
type imported struct {
	image  string
	isDone bool
	err    error
	at     time.Time
}

func newImports(importer Importer, c clock.PassiveClock) *imports {
	return &imports{importer: importer, clock: c, known: map[string]*imported{}}
}

// ensure reports whether the image that a resource wants has been imported. Where no one has begun
// to, it begins, and calls done when that has come to an end. What has failed is tried again later:
// each try is a download.
func (m *imports) ensure(ctx context.Context, r *resource, image plan.Image, done func(context.Context)) (bool, error) {
	spec := r.plan.ProviderSpec
	key := fmt.Sprint(image.ID, spec["workspace"])
	m.mu.Lock()
	defer m.mu.Unlock()
	running, isUnderWay := 0, false
	for other, is := range m.known {
		switch {
		case !is.isDone:
			running++
			isUnderWay = isUnderWay || is.image == image.ID // two of one name would remove each other
		case m.clock.Since(is.at) >= recheck:
			delete(m.known, other)
		}
	}
	switch is := m.known[key]; {
	case is != nil && is.isDone:
		return is.err == nil, is.err
	case isUnderWay || running >= maxImports:
		return false, nil
	}
	is := &imported{image: image.ID}
	m.known[key] = is
	namespace := r.id.Namespace
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), importTimeout)
	go func() {
		defer cancel()
		err := m.importer.Import(ctx, namespace, spec, image)
		if err != nil && !fault.IsTerminal(err) {
			err = fault.NewWaiting("ImportFailed", recheck, err)
		}
		m.mu.Lock()
		is.isDone, is.err, is.at = true, err, m.clock.Now()
		m.mu.Unlock()
		done(ctx)
	}()
	return false, nil
}

// forgetFailed has what failed be tried again at once: credentials have changed.
func (m *imports) forgetFailed() {
	m.mu.Lock()
	defer m.mu.Unlock()
	maps.DeleteFunc(m.known, func(_ string, is *imported) bool { return is.isDone && is.err != nil })
}
