package turns

import (
	"context"
	"fmt"
	"sync/atomic"

	"golang.org/x/sync/singleflight"

	"github.com/layerwright/layerwright/internal/fault"
)

// Share reads something of an image once for all who want it at the same time, by its key. Who did
// not begin gets a [WaitError] where it takes long, and what was read when it asks again.
func Share[T any](ctx context.Context, flights *singleflight.Group, key, image string, read func() (T, error)) (T, error) {
	var none T
	short, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		var led atomic.Bool
		flight := flights.DoChan(key, func() (any, error) {
			led.Store(true)
			return recovered(image, read)
		})
		var landed singleflight.Result
		select {
		case landed = <-flight:
		case <-short.Done():
			if ctx.Err() == nil && !led.Load() {
				return none, waiting(image, "")
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
