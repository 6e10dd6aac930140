package turns

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/layerwright/layerwright/internal/fault"
)

const (
	// spacing keeps apart those who ask again: each of many that wait for one image reads objects
	// and secrets before it asks.
	spacing = 50 * time.Millisecond
	// latest is when to ask again at the latest.
	latest = 15 * time.Second
)

// Flights are readings that several may want. The zero value is ready.
type Flights struct {
	group singleflight.Group
	mu    sync.Mutex
	left  map[string]int
}

// leave gives up waiting for now, and says when to ask again: the later, the more have left.
func (f *Flights) leave(key, image string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.left == nil {
		f.left = map[string]int{}
	}
	f.left[key]++
	return waiting(min(again+time.Duration(f.left[key])*spacing, latest), image, "")
}

func (f *Flights) land(key string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.left, key)
}

// Share reads something of an image once for all who want it at the same time, by its key. Who did
// not begin gets a [WaitError] where it takes long, and what was read when it asks again.
func Share[T any](ctx context.Context, flights *Flights, key, image string, read func() (T, error)) (T, error) {
	var none T
	short, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		var led atomic.Bool
		flight := flights.group.DoChan(key, func() (any, error) {
			led.Store(true)
			defer flights.land(key)
			return recovered(image, read)
		})
		var landed singleflight.Result
		select {
		case landed = <-flight:
		case <-short.Done():
			if ctx.Err() == nil && !led.Load() {
				return none, flights.leave(key, image)
			}
			select {
			case landed = <-flight:
			case <-ctx.Done():
				return none, context.Cause(ctx)
			}
		}
		if !led.Load() && ctx.Err() == nil && fault.IsCancellation(landed.Err) {
			continue // the caller who did the work for both has gone
		}
		value, _ := landed.Val.(T)
		return value, landed.Err
	}
}

// recovered makes an error of a panic, which would end the process: what is read is not trusted.
func recovered[T any](image string, read func() (T, error)) (value T, err error) {
	defer func() {
		if why := recover(); why != nil {
			err = fmt.Errorf("reading image %q: panic: %v", image, why)
		}
	}()
	return read()
}
