package status

import "context"

// Run makes the steps of a reconcile, up to the first that fails. Each does at most one kind of
// write, and can be repeated.
func Run[S any](ctx context.Context, scope S, steps ...func(context.Context, S) error) error {
	for _, step := range steps {
		if err := step(ctx, scope); err != nil {
			return err
		}
	}
	return nil
}
