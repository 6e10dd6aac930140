package wanted

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/builder/backend"
	"github.com/layerwright/layerwright/builder/objects"
	"github.com/layerwright/layerwright/builder/plan"
	"github.com/layerwright/layerwright/builder/wanted/order"
	"github.com/layerwright/layerwright/builder/wanted/preflight"
	"github.com/layerwright/layerwright/internal/fault"
	"github.com/layerwright/layerwright/internal/inwork"
	"github.com/layerwright/layerwright/internal/names"
	"github.com/layerwright/layerwright/internal/status"
)

// Subject is what an image is wanted for.
type Subject struct {
	Config *mcfgv1.MachineOSConfig
	// Rendered is the pool's MachineConfig. It may lack its content.
	Rendered *mcfgv1.MachineConfig
	// Demand says which architectures the image is to be for.
	Demand plan.Demand
}

// Answer is what was found.
type Answer struct {
	// Image is nil if no one can tell which image is wanted: then problem says why.
	Image   *Image
	Problem error
	// recipe is what the image is made of, where that was found out now.
	recipe *handedOn
	// Late means that what was found is from before, because it can't be found out again right now.
	Late error
}

// Find finds out which image is wanted, and what prevents it. What it finds wrong is a fact
// like any other, and remembered until a person acts.
func (f *Finder) Find(ctx context.Context, s *Subject) (Answer, error) {
	key, err := f.Key(ctx, s)
	if err != nil {
		return Answer{}, err
	}
	found, problem := f.known(ctx, s.Config, key)
	if found != nil || problem != nil {
		return Answer{Image: found, Problem: problem}, nil //nolint:nilerr // what is wrong is an answer like any other
	}
	out := f.look(ctx, s, key)
	if fault.IsTerminal(out.Problem) {
		f.memory.note(s.Config.Name, &failure{
			key: key, access: f.options.Checker.Access(ctx, s.Config), at: f.options.Clock.Now(), err: out.Problem,
		})
	}
	return out, nil
}

// known is what was found before and still holds. Where something is wrong, someone may have
// replaced a secret, which nothing tells of: then the secrets are read in each reconcile, and the
// registries are asked only if one has changed.
func (f *Finder) known(ctx context.Context, config *mcfgv1.MachineOSConfig, key string) (*Image, error) {
	if objects.WantsRecheck(config) {
		return nil, nil
	}
	now := f.options.Clock.Now()
	if !status.IsTrue(config.Status.Conditions, status.Stalled) {
		return f.memory.of(config.Name, key, now.Add(soon-Idle)), nil
	}
	access := f.options.Checker.Access(ctx, config)
	found, problem := f.memory.of(config.Name, key, now.Add(soon-stopped)), f.memory.failure(config.Name)
	switch {
	case problem != nil && problem.key == key && problem.access == access && problem.at.After(now.Add(soon-stopped)):
		return nil, problem.err
	case found != nil && found.Credentials.Access == access:
		return found, nil
	default:
		return nil, nil
	}
}

// look finds out which image is wanted.
func (f *Finder) look(ctx context.Context, s *Subject, key string) Answer {
	end, err := f.options.InWork.Begin(ctx, workOn(s.Config, s.Rendered.Name))
	if err != nil {
		return f.notFound(s, key, err)
	}
	defer end()
	parsed, err := objects.ReadConfiguration(ctx, f.options.Reader, s.Rendered.Name)
	if err != nil {
		return Answer{Problem: err}
	}
	result, err := f.options.Checker.Inspect(ctx, preflight.Request{Config: s.Config, Rendered: parsed, Demand: s.Demand, Fresh: objects.WantsRecheck(s.Config)})
	if err = objects.NameSources(ctx, f.options.Reader, s.Config.Spec.MachineConfigPool.Name, err); err != nil {
		return f.notFound(s, key, err)
	}
	found := &Image{
		key: key, at: f.options.Clock.Now(), Credentials: result.Credentials, Base: result.Base, Extensions: result.Extensions,
		Record: result.Described.Inputs.Record(), HasContent: result.Described.Inputs.HasContent(), Warnings: result.Described.Warnings(),
		content: order.ContentOf(&result.Recipe),
	}
	f.memory.remember(s.Config.Name, found)
	return Answer{Image: found, recipe: &handedOn{Recipe: result.Recipe, at: found.at}}
}

// notFound is the answer where looking failed. What was found before is believed on while it can't
// be found out again.
func (f *Finder) notFound(s *Subject, key string, err error) Answer {
	if fault.IsTransient(err) || fault.Reason(err) == mcfgv1.ReasonWaitingForTurn {
		if last := f.memory.of(s.Config.Name, key, time.Time{}); last != nil {
			return Answer{Image: last, Late: err}
		}
	}
	return Answer{Problem: err}
}

// workOn is the work on a MachineOSConfig, which a change of it, of what it is built from, or of
// the annotation for another build begins anew.
func workOn(config *mcfgv1.MachineOSConfig, from string) inwork.Work {
	version := []string{string(config.UID), fmt.Sprint(config.Generation), from}
	for _, key := range objects.RebuildAnnotations() {
		if value, has := config.Annotations[key]; has {
			version = append(version, key+"="+value)
		}
	}
	return inwork.Work{
		Object: fmt.Sprintf("MachineOSConfig %q", config.Name), Version: strings.Join(version, "/"),
		Retry: "set the annotation " + mcfgv1.AnnotationRebuild,
	}
}

// ConfigMaps are the names of those that the image of a MachineOSConfig is made of, or found by.
func ConfigMaps(config *mcfgv1.MachineOSConfig) []string {
	out := []string{backend.InputYumRepos, names.RegistryMirrors}
	for _, entry := range config.Spec.Containerfile {
		if entry.ConfigMapRef != nil {
			out = append(out, entry.ConfigMapRef.Name)
		}
	}
	return out
}

// Key identifies what is inspected: objects by their versions.
func (f *Finder) Key(ctx context.Context, s *Subject) (string, error) {
	parts := []string{
		string(s.Config.UID), fmt.Sprint(s.Config.Generation), s.Rendered.Name, string(s.Rendered.UID), s.Rendered.ResourceVersion, s.Demand.String(),
	}
	for _, name := range ConfigMaps(s.Config) {
		meta := &metav1.PartialObjectMetadata{}
		meta.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("ConfigMap"))
		err := f.options.Client.Get(ctx, client.ObjectKey{Namespace: f.options.Namespace, Name: name}, meta)
		if client.IgnoreNotFound(err) != nil {
			return "", fmt.Errorf("reading ConfigMap %q: %w", name, err)
		}
		parts = append(parts, string(meta.UID), meta.ResourceVersion)
	}
	return strings.Join(parts, "/"), nil
}
