package sign

import (
	"context"

	"golang.org/x/sync/singleflight"
)

// SharedCall asks a service once for all callers that want the same at the same time. Each caller
// waits until its own context ends; the call goes on for the others, so it needs a time limit of
// its own. The zero value is ready.
type SharedCall[T any] struct{ group singleflight.Group }

// Ask asks, or waits for the answer to whoever did.
func (t *SharedCall[T]) Ask(ctx context.Context, ask func(context.Context) (T, error)) (T, error) {
	var none T
	answers := t.group.DoChan("", func() (any, error) { return ask(context.WithoutCancel(ctx)) })
	select {
	case answer := <-answers:
		value, _ := answer.Val.(T) // it is one, or there is an error
		return value, answer.Err
	case <-ctx.Done():
		return none, context.Cause(ctx)
	}
}
