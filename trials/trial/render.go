package trial

import (
	"errors"
	"fmt"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/machineconfigs"
	"github.com/layerwright/layerwright/streams"
	"github.com/layerwright/layerwright/streams/compare"
)

// Objects are what of a cluster decides about a pool's configuration.
type Objects struct {
	// Pool is the pool, and Worker the worker pool; the latter may be nil.
	Pool, Worker *mcfgv1.MachineConfigPool
	// Streams is the OSImageStream "cluster"; nil where there is none.
	Streams *mcfgv1.OSImageStream
	// Configs are all MachineConfigs.
	Configs []*mcfgv1.MachineConfig
	// Version and Release go into the rendered MachineConfig's annotations.
	Version, Release string
}

// Rendered is a pool's configuration for another stream than its own.
type Rendered struct {
	*machineconfigs.Rendered
	// Stream are the stream's images.
	Stream mcfgv1.OSImageStreamSet
	// Sources are the MachineConfigs that it was joined from, in the order in which they were
	// joined.
	Sources []*mcfgv1.MachineConfig
	// Blockers are what keeps the pool from following the stream although it can be rendered for
	// it.
	Blockers []compare.Finding
}

// Render joins the pool's MachineConfigs for a stream as if the pool named it. Nothing of the
// pool's own is touched. A stream that is not available is a *streams.Error. One that the pool must
// not go back to is a blocker, and so is a MachineConfig that names another OS image than the
// stream's: what is rendered then has the stream's all the same.
func Render(objects Objects, stream string) (*Rendered, error) {
	pool := objects.Pool.DeepCopy()
	pool.Spec.OSImageStream.Name = stream
	out := &Rendered{}
	choice, err := streams.ForPool(streams.Subject{Pool: pool, Worker: objects.Worker}, objects.Streams)
	var refused *streams.Error
	if errors.As(err, &refused) && refused.Reason == mcfgv1.ReasonStreamDowngrade {
		out.Blockers = append(out.Blockers, compare.Finding{
			Rule: compare.RuleDowngrade, Object: fmt.Sprintf("MachineConfigPool %q", pool.Name), Place: "spec.osImageStream", Found: refused.Message,
			Why: "the older version may not understand what the newer version wrote to the node's disk", Fix: "make a new pool with new nodes for the older stream",
		})
		pool.Status.OSImageStream.Name = ""
		delete(pool.Annotations, mcfgv1.AnnotationRememberedStream)
		choice, err = streams.ForPool(streams.Subject{Pool: pool, Worker: objects.Worker}, objects.Streams)
	}
	if err != nil {
		return nil, err
	}
	out.Stream = choice.Images
	selected, err := machineconfigs.Select(pool, choice.Name, objects.Configs)
	if err != nil {
		return nil, err
	}
	if out.Rendered, err = machineconfigs.Render(machineconfigs.Options{
		Pool: pool.Name, ControllerVersion: objects.Version, ReleaseVersion: objects.Release,
		Images: machineconfigs.Images{
			OSImage: string(choice.Images.OSImage), ExtensionsImage: string(choice.Images.OSExtensionsImage), Stream: choice.Name,
		},
	}, selected); err != nil {
		return nil, err
	}
	byName := map[string]*mcfgv1.MachineConfig{}
	for _, mc := range selected {
		byName[mc.Name] = mc
	}
	for _, name := range out.Rendered.Sources {
		out.Sources = append(out.Sources, byName[name])
	}
	out.useImages()
	return out, nil
}

// useImages takes the stream's images where MachineConfigs name others.
func (r *Rendered) useImages() {
	if r.Config.OSImageURL != string(r.Stream.OSImage) {
		r.Blockers = append(r.Blockers, compare.Finding{
			Rule: RuleOtherImage, Object: r.objectThat(func(mc *mcfgv1.MachineConfig) bool { return mc.Spec.OSImageURL != "" }), Place: "spec.osImageURL",
			Found: "the OS image " + r.Config.OSImageURL, Why: "it takes the place of the stream's, so that the pool would stay on it",
			Fix: "remove it before the pool moves",
		})
	}
	r.Config.OSImageURL, r.Config.ExtensionsImage = string(r.Stream.OSImage), string(r.Stream.OSExtensionsImage)
}

// objectThat names the last of the MachineConfigs that has something.
func (r *Rendered) objectThat(has func(*mcfgv1.MachineConfig) bool) string {
	for i := len(r.Sources) - 1; i >= 0; i-- {
		if has(r.Sources[i]) {
			return object(r.Sources[i].Name)
		}
	}
	return ""
}

func object(machineConfig string) string { return fmt.Sprintf("MachineConfig %q", machineConfig) }

// Names of rules, beside those of package compare.
const (
	// RuleOtherImage means that something names an OS image in place of the stream's.
	RuleOtherImage = "OtherOSImage"
	// RuleEndOfLife means that the life of the stream has ended, or ends.
	RuleEndOfLife = "StreamEndOfLife"
)

// Overrides are what a MachineOSConfig says that takes the place of a stream's images. It may be
// nil.
func Overrides(config *mcfgv1.MachineOSConfig) []compare.Finding {
	if config == nil {
		return nil
	}
	var found []compare.Finding
	for _, field := range []struct{ place, image string }{
		{"spec.baseOSImagePullSpec", string(config.Spec.BaseOSImagePullSpec)},
		{"spec.baseOSExtensionsImagePullSpec", string(config.Spec.BaseOSExtensionsImagePullSpec)},
	} {
		if field.image != "" {
			found = append(found, compare.Finding{
				Rule: RuleOtherImage, Object: fmt.Sprintf("MachineOSConfig %q", config.Name), Place: field.place, Found: "the image " + field.image,
				Why: "it takes the place of the stream's, so that the pool would stay on it", Fix: "remove it when the pool moves",
			})
		}
	}
	return found
}

// UsesExtensions reports whether anything is taken from the extensions image.
func UsesExtensions(config *machineconfigs.Config) bool {
	return len(config.Extensions) > 0 || config.KernelType != "" && config.KernelType != mcfgv1.KernelTypeDefault
}
