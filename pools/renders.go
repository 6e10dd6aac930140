package pools

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"sync"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/internal/fault"
	"github.com/layerwright/layerwright/internal/inwork"
	"github.com/layerwright/layerwright/internal/selected"
	"github.com/layerwright/layerwright/machineconfigs"
	"github.com/layerwright/layerwright/streams"
)

// renderFunc is machineconfigs.Render.
type renderFunc func(machineconfigs.Options, []*mcfgv1.MachineConfig) (*machineconfigs.Rendered, error)

// inputs are everything that a rendered MachineConfig is made from.
type inputs struct {
	options machineconfigs.Options
	stream  streams.Choice
	configs []*mcfgv1.MachineConfig // as the cache has them, without their content
	// content reads them with their content, as they are now. Beside an error there are some if it
	// is about them.
	content func(context.Context) ([]*mcfgv1.MachineConfig, error)
	// accepted are the rules whose findings are accepted, as the pool's annotation has them.
	accepted string
}

// outcome is what a pool's MachineConfigs are rendered to, or why they cannot be.
type outcome struct {
	// name and sources are those of the rendered MachineConfig; empty with an err.
	name    string
	sources []string
	// osImage is the OS image in it.
	osImage string
	// stream is the one whose images went in.
	stream streams.Choice
	// err has the class of package fault that says who can cure it.
	err error

	key string
	// content is the rendered MachineConfig, until the cluster is known to have it.
	content *mcfgv1.MachineConfig
	// stored is the version of the object in the cluster that has this content; empty while that is
	// not known.
	stored string
}

// followsStream reports whether the nodes get the OS image of the stream, and no other that a
// MachineConfig names.
func (o *outcome) followsStream() bool {
	return o.err == nil && o.stream.Name != "" && o.osImage == string(o.stream.Images.OSImage)
}

// renders remembers what each pool's inputs were rendered to last, since rendering is the one thing
// here that takes time, and Nodes change far more often than MachineConfigs. It holds nothing that
// could not be computed again: a restart renders every pool once.
type renders struct {
	render renderFunc
	inWork *inwork.Log

	// turn is had by the one pool that is rendered: joining is work for the processor, and holds
	// the content of all its MachineConfigs.
	turn sync.Mutex
	mu   sync.Mutex
	last map[string]*outcome // by pool
}

func newRenders(render renderFunc, inWork *inwork.Log) *renders {
	return &renders{render: render, inWork: inWork, last: map[string]*outcome{}}
}

// noted renders, and notes meanwhile that the pool is in work. Inputs that have changed since they
// were listed are taken as they are now.
func (r *renders) noted(ctx context.Context, in *inputs) (*machineconfigs.Rendered, error) {
	work := inwork.Work{Object: fmt.Sprintf("MachineConfigPool %q", in.options.Pool), Version: hex.EncodeToString([]byte(in.key()))}
	end, err := r.inWork.Begin(ctx, work)
	if err != nil {
		return nil, err
	}
	defer end()
	r.turn.Lock()
	defer r.turn.Unlock()
	configs, err := in.content(ctx)
	if configs != nil {
		in.configs = configs
	}
	if err != nil {
		return nil, err
	}
	rendered, err := r.render(in.options, in.configs)
	if err != nil {
		return nil, renderFault(err)
	}
	return rendered, blocked(in, rendered)
}

// of renders the inputs, unless it was they that were rendered last.
func (r *renders) of(ctx context.Context, in inputs) *outcome {
	key := in.key()
	r.mu.Lock()
	last := r.last[in.options.Pool]
	r.mu.Unlock()
	if last != nil && last.key == key {
		return last
	}
	out := &outcome{stream: in.stream}
	if rendered, err := r.noted(ctx, &in); err != nil {
		out.err = err
	} else {
		out.name, out.sources, out.content = rendered.MachineConfig.Name, rendered.Sources, rendered.MachineConfig
		out.osImage = rendered.MachineConfig.Spec.OSImageURL
	}
	if fault.IsTransient(out.err) || fault.Reason(out.err) == mcfgv1.ReasonWaitingForTurn {
		return out
	}
	out.key = in.key() // of what was rendered
	r.mu.Lock()
	r.last[in.options.Pool] = out
	r.mu.Unlock()
	return out
}

// contentOf gives the rendered MachineConfig, which is rendered once more if it has been let go.
func (r *renders) contentOf(ctx context.Context, in inputs, out *outcome) (*mcfgv1.MachineConfig, error) {
	if out.content == nil {
		rendered, err := r.noted(ctx, &in)
		if err != nil {
			return nil, err
		}
		if rendered.MachineConfig.Name != out.name {
			return nil, fmt.Errorf("the MachineConfigs of %q have changed", out.name) // which is an event too
		}
		out.content = rendered.MachineConfig
	}
	return out.content, nil
}

// forget drops what is known of a pool that is gone.
func (r *renders) forget(pool string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.last, pool)
}

// key identifies the inputs: every object by its version, everything else by its value. It names
// objects instead of reading them, so that finding out that nothing has changed costs nothing.
func (in *inputs) key() string {
	hash := sha256.New()
	write := func(words ...any) { _, _ = fmt.Fprintf(hash, "%q\n", words) }
	write(in.options.Pool, in.options.ControllerVersion, in.options.ReleaseVersion)
	write(in.options.Images.OSImage, in.options.Images.ExtensionsImage, in.options.Images.Stream, in.options.Images.Explicit)
	write(in.accepted, in.stream.Name)
	write(selected.Version(in.configs))
	return string(hash.Sum(nil))
}
