package experiment

import (
	"cmp"
	"context"
	"fmt"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/builder/backend"
	"github.com/layerwright/layerwright/builder/backends"
	"github.com/layerwright/layerwright/builder/maker"
	"github.com/layerwright/layerwright/builder/plan"
	"github.com/layerwright/layerwright/builder/wanted/order"
	"github.com/layerwright/layerwright/internal/fault"
	"github.com/layerwright/layerwright/streams/compare"
)

// content finds or builds what the pool's image has between OS image and configuration, for
// the other stream. It goes under the tag that it would have after the move, so that the move finds
// it. Both results are empty while it is being built.
func (e *experiment) content(ctx context.Context, o *order.Order) (image, notBuilt string, err error) {
	if image, err = e.options.Registry.TakeContent(ctx, o); err != nil {
		return "", "", err
	}
	builds, err := e.options.Backends.For(e.Config)
	switch step := plan.Choose(&plan.ImagePlanInput{HasContent: true, HasContentImage: image != "", Backend: err == nil}); step.Action {
	case plan.Append:
		return image, "", nil
	case plan.Build:
		return e.build(ctx, o, builds)
	default:
		return "", fault.Message(err), nil
	}
}

// build has the content built, or follows that.
func (e *experiment) build(ctx context.Context, o *order.Order, builds backends.Backend) (image, notBuilt string, err error) {
	if !e.IsUnderWay { // what runs, if anything, is for something else
		if err := builds.Remove(ctx, o.Key); err != nil {
			return "", "", err
		}
		e.says = "its content is about to be built"
		return "", "", nil
	}
	state, err := builds.Observe(ctx, o.Key)
	if err != nil {
		return "", "", err
	}
	switch {
	case state.Phase == backend.Absent, state.IsIncomplete:
		spec, err := e.options.Maker.Spec(ctx, o)
		if err != nil {
			return "", "", err
		}
		return "", "", builds.Ensure(ctx, *spec)
	case state.Phase == backend.Failed:
		e.failed = []compare.Finding{{
			Rule: mcfgv1.ReasonBuildFailed, Object: fmt.Sprintf("MachineOSConfig %q", e.Config.Name), Place: "spec.containerFile",
			Found: fault.Message(maker.Failed(&state)), Why: "the Containerfile cannot be built on the OS image of the other stream", Fix: "correct the line that the message names",
		}}
		return "", "its content could not be built, see the blockers", builds.Remove(ctx, o.Key)
	case state.Phase == backend.Succeeded:
		if state.Object != nil {
			o.Origin.Backend = string(e.Config.Spec.ImageBuilder.ImageBuilderType)
		}
		if image, err = e.options.Maker.Built(ctx, o, &state); err != nil {
			return "", "", err
		}
		return image, "", builds.Remove(ctx, o.Key)
	}
	e.says = cmp.Or(messageOf(&state), "its content is being built")
	return "", "", nil
}

// messageOf is what happens in a build, or what it waits for.
func messageOf(state *backend.State) string {
	if state.Failure != nil {
		return cmp.Or(state.Failure.Message, state.Message)
	}
	return state.Message
}
