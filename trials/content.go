package trials

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/builder/backend"
	"github.com/layerwright/layerwright/builder/backends"
	"github.com/layerwright/layerwright/builder/maker"
	"github.com/layerwright/layerwright/builder/objects"
	"github.com/layerwright/layerwright/builder/plan"
	"github.com/layerwright/layerwright/containerfiles"
	"github.com/layerwright/layerwright/internal/events"
	"github.com/layerwright/layerwright/internal/fault"
	"github.com/layerwright/layerwright/internal/names"
	"github.com/layerwright/layerwright/internal/registry"
	"github.com/layerwright/layerwright/streams/compare"
)

// trialKey is what a backend knows the build of a trial by. There is one at a time for each
// MachineOSConfig.
func trialKey(config *mcfgv1.MachineOSConfig) backend.Key {
	return backend.Key{Build: names.StreamTrial(config.Name), UID: string(config.UID), Trial: config.Name}
}

// trialContent finds or builds what the pool's image has between OS image and configuration, for
// the other stream. It goes under the tag that it would have after the move, so that the move finds
// it. Both results are empty while it is being built.
func (r *Reconciler) trialContent(ctx context.Context, s *scope, o *maker.Order) (image, notBuilt string, err error) {
	if image, err = r.options.Maker.TakeContent(ctx, o); err != nil {
		return "", "", err
	}
	builds, err := r.options.Backends.For(s.config)
	switch step := plan.Choose(&plan.Making{HasContent: true, HasContentImage: image != "", Backend: err == nil}); step.Action {
	case plan.Append:
		return image, "", nil
	case plan.Build:
		return r.buildTrial(ctx, s, o, builds)
	default:
		return "", fault.Message(err), nil
	}
}

// buildTrial has the content built, or follows that.
func (r *Reconciler) buildTrial(ctx context.Context, s *scope, o *maker.Order, builds backends.Backend) (image, notBuilt string, err error) {
	if before := s.config.Status.StreamTrial; before == nil || before.Inputs != s.inputs { // what runs, if anything, is for something else
		if err := builds.Remove(ctx, o.Key); err != nil {
			return "", "", err
		}
		return "", "", r.saysTrial(ctx, s, "its content is about to be built")
	}
	state, err := builds.Observe(ctx, o.Key)
	if err != nil {
		return "", "", err
	}
	switch state.Phase {
	case backend.Absent:
		spec, err := r.options.Maker.Spec(ctx, o)
		if err != nil {
			return "", "", err
		}
		return "", "", builds.Ensure(ctx, *spec)
	case backend.Failed:
		s.failed = []compare.Finding{{
			Rule: mcfgv1.ReasonBuildFailed, Object: fmt.Sprintf("MachineOSConfig %q", s.config.Name), Place: "spec.containerFile",
			Found: fault.Message(maker.Failed(&state)), Why: "the Containerfile cannot be built on the OS image of the other stream", Fix: "correct the line that the message names",
		}}
		return "", "its content could not be built, see the blockers", builds.Remove(ctx, o.Key)
	case backend.Succeeded:
		if state.Object != nil {
			o.Origin.Backend = string(s.config.Spec.ImageBuilder.ImageBuilderType)
		}
		if image, err = r.options.Maker.Built(ctx, o, &state); err != nil {
			return "", "", err
		}
		return image, "", builds.Remove(ctx, o.Key)
	case backend.Pending, backend.Running:
	}
	return "", "", r.saysTrial(ctx, s, cmp.Or(messageOf(&state), "its content is being built"))
}

// messageOf is what happens in a build, or what it waits for.
func messageOf(state *backend.State) string {
	if state.Failure != nil {
		return cmp.Or(state.Failure.Message, state.Message)
	}
	return state.Message
}

// saysTrial says what happens, and for which inputs.
func (r *Reconciler) saysTrial(ctx context.Context, s *scope, message string) error {
	running := &mcfgv1.StreamTrial{Stream: s.stream}
	if before := s.config.Status.StreamTrial; before != nil {
		running = before.DeepCopy()
	}
	running.State, running.Message, running.Inputs = mcfgv1.StreamTrialRunning, message, s.inputs
	return r.writeTrial(ctx, s, running)
}

// withdraw removes the report, the build and the images of a trial that no one asks for any more.
func (r *Reconciler) withdraw(ctx context.Context, s *scope, result *mcfgv1.StreamTrial) error {
	report := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: r.options.Namespace, Name: names.StreamTrial(s.config.Name)}}
	if err := client.IgnoreNotFound(r.options.Client.Delete(ctx, report)); err != nil {
		return fmt.Errorf("deleting the report %q: %w", report.Name, err)
	}
	if builds, err := r.options.Backends.For(s.config); err == nil {
		if err := builds.Remove(ctx, trialKey(s.config)); err != nil {
			return err
		}
	}
	if result.ImagePullSpec == "" {
		return nil
	}
	image := string(result.ImagePullSpec)
	credentials, err := r.options.Checker.Credentials(ctx, s.config)
	if credentials.Push == nil {
		r.options.Events.Publish(s.config, events.ImageNotDeleted(image, fault.Message(err)))
		return nil
	}
	if err := r.withdrawContent(ctx, credentials.Push, image); err != nil {
		return err
	}
	deletion, err := credentials.Push.DeleteManifest(ctx, image)
	if err != nil {
		return err
	}
	if deletion.Outcome == registry.Denied || deletion.Outcome == registry.Unsupported {
		r.options.Events.Publish(s.config, events.ImageNotDeleted(image, deletion.Detail))
	}
	return nil
}

// withdrawContent removes what was built for a trial image, as its labels say, unless a build has
// the same content: the pool may have moved.
func (r *Reconciler) withdrawContent(ctx context.Context, push *registry.Client, image string) error {
	resolved, err := push.Resolve(ctx, image)
	if registry.IsNotFound(err) || registry.IsDenied(err) {
		return nil
	}
	if err != nil {
		return err
	}
	labels, err := push.Labels(ctx, image, objects.FirstOf(resolved.Platforms))
	if err != nil {
		return err
	}
	var builds mcfgv1.MachineOSBuildList
	if err := r.options.Client.List(ctx, &builds, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("listing MachineOSBuilds: %w", err)
	}
	repository, _, _ := strings.Cut(image, "@")
	for _, key := range []string{labels[mcfgv1.ImageLabelContentKey], labels[mcfgv1.ImageLabelBuildKey]} {
		shared := slices.ContainsFunc(builds.Items, func(b mcfgv1.MachineOSBuild) bool {
			keys, has := objects.ContentOf(&b)
			return has && (keys.Content == key || keys.Build == key)
		})
		if key == "" || shared {
			continue
		}
		for _, tag := range trialTags(key, resolved.Platforms) {
			if err := r.options.Remover.RemoveTagged(ctx, push, maker.Target{Repository: repository, Tag: tag}); err != nil {
				return err
			}
		}
	}
	return nil
}

// trialTags are those of what was pushed on the way to an image with content.
func trialTags(key string, platforms []v1.Platform) []string {
	tags := []string{names.ContentTag(key), names.ConfigsTag(key)}
	for _, p := range platforms {
		if arch, known := mcfgv1.ArchitectureFromOCI(p.Architecture); known {
			tags = append(tags, names.ContentTag(key)+"-"+containerfiles.GoArch(mcfgv1.ContainerfileArch(arch)))
		}
	}
	return tags
}
