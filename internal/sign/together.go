package sign

import (
	"context"

	"golang.org/x/sync/singleflight"
)

// Together asks a service once for all who want the same at the same time. Each waits no longer
// than it wants to; what was asked goes on for the others, so the question has to have a time limit
// of its own. The zero value is ready.
type Together[T any] struct{ group singleflight.Group }

// Ask asks, or waits for the answer to whoever did.
func (t *Together[T]) Ask(ctx context.Context, ask func(context.Context) (T, error)) (T, error) {
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
