package trials

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/builder/description"
	"github.com/layerwright/layerwright/builder/maker"
	"github.com/layerwright/layerwright/builder/objects"
	"github.com/layerwright/layerwright/builder/plan"
	"github.com/layerwright/layerwright/builder/preflight"
	"github.com/layerwright/layerwright/containerfiles"
	"github.com/layerwright/layerwright/images/provenance"
	"github.com/layerwright/layerwright/internal/fault"
	"github.com/layerwright/layerwright/internal/names"
	"github.com/layerwright/layerwright/internal/registry"
	"github.com/layerwright/layerwright/internal/registry/compose"
	"github.com/layerwright/layerwright/internal/registry/credentials"
	"github.com/layerwright/layerwright/machineconfigs"
	"github.com/layerwright/layerwright/streams/compare"
	"github.com/layerwright/layerwright/trials/trial"
)

// trialSide is an OS image, and what the pool's image on it is made of.
type trialSide struct {
	base       *preflight.Base
	extensions string
	config     *machineconfigs.Config
	sources    []containerfiles.Source
	inputs     preflight.BuildInputs
	// described is nil where the image cannot be made, and problem is why.
	described *description.Description
	problem   error
}

// describedInputs are nil where the image cannot be made.
func (s *trialSide) describedInputs() *plan.Inputs {
	if s.described == nil {
		return nil
	}
	return &s.described.Inputs
}

// runTrial looks at both sides, makes the image and reports; nil while content is being built.
func (r *Reconciler) runTrial(ctx context.Context, s *scope) (*mcfgv1.StreamTrial, error) {
	if s.config.Status.StreamTrial == nil {
		running := &mcfgv1.StreamTrial{Stream: s.stream, State: mcfgv1.StreamTrialRunning, Message: "the images of both streams are read"}
		if err := r.writeTrial(ctx, s, running); err != nil {
			return nil, err
		}
	}
	var err error
	if s.credentials, err = r.options.Checker.Credentials(ctx, s.config); err != nil {
		return nil, err
	}
	repository, err := credentials.Repository(s.config.Spec.RenderedImagePushSpec)
	if err != nil {
		return nil, err
	}
	s.push = maker.Target{Repository: repository, Tag: names.TrialTag(s.pool.Name)}
	now, err := machineconfigs.Parse(s.current)
	if err != nil {
		return nil, fault.NewTerminal(mcfgv1.ReasonInvalidMachineConfig, err)
	}
	if image := string(s.config.Spec.BaseOSImagePullSpec); image != "" {
		now.OSImageURL = image
	}
	if s.now, err = r.trialSide(ctx, s, now); err != nil {
		return nil, fmt.Errorf("the OS image of the pool: %w", err)
	}
	if s.next, err = r.trialSide(ctx, s, s.then.Config); err != nil {
		return nil, fmt.Errorf("the OS image of stream %q: %w", s.stream, err)
	}
	image, notBuilt, err := r.trialImage(ctx, s)
	if err != nil || image == "" && notBuilt == "" {
		return nil, err
	}
	report, err := r.examine(ctx, s)
	if err != nil {
		return nil, err
	}
	report.TrialImage, report.NotBuilt = image, notBuilt
	return r.publishReport(ctx, s, report)
}

// trialSide finds the OS image of a configuration, and says what the pool's image on it would be.
func (r *Reconciler) trialSide(ctx context.Context, s *scope, config *machineconfigs.Config) (*trialSide, error) {
	side := &trialSide{config: config}
	if config.OSImageURL == "" {
		return nil, fault.NewTerminal(mcfgv1.ReasonImageNotFound, fmt.Errorf("nothing names it"))
	}
	var err error
	if side.base, err = r.options.Checker.ChooseBase(ctx, s.credentials, config.OSImageURL, s.demand); err != nil {
		return nil, err
	}
	if config.ExtensionsImage != "" && trial.UsesExtensions(config) {
		if side.extensions, err = r.options.Checker.Pin(ctx, s.credentials, config.ExtensionsImage); err != nil {
			return nil, fmt.Errorf("its extensions image: %w", err)
		}
	}
	if side.sources, err = r.options.Checker.Sources(ctx, s.config); err != nil {
		return nil, err
	}
	if side.inputs, err = r.options.Checker.BuildInputs(ctx, s.pool.Name); err != nil {
		return nil, err
	}
	side.described, side.problem = description.Describe(description.Request{
		Config: config, Sources: side.sources, Base: side.base.Image, Extensions: side.extensions, Platforms: side.base.Described(), IsChoice: side.base.IsChoice,
		BuildInputs: side.inputs.Items,
	})
	if fault.IsTransient(side.problem) {
		return nil, side.problem
	}
	return side, nil
}

// trialImage makes the pool's image for the other stream under a tag of its own; where it makes
// none, it says why. It says nothing while content is being built.
func (r *Reconciler) trialImage(ctx context.Context, s *scope) (image, notBuilt string, err error) {
	if s.next.problem != nil {
		return "", "the image cannot be made, see the blockers", nil //nolint:nilerr // the report names the problem
	}
	if err := r.options.Checker.CanPush(ctx, s.credentials, s.config.Spec.RenderedImagePushSpec, false); err != nil {
		return "", "", err
	}
	order := r.order(s)
	content := s.next.base.Below()
	if s.next.described.Inputs.HasContent() {
		if content, notBuilt, err = r.trialContent(ctx, s, order); err != nil || content == "" {
			return "", notBuilt, err
		}
	}
	result, err := r.options.Maker.Append(ctx, order, content, func(request *registry.AppendRequest) {
		request.Tags = []string{s.push.Tag}
		request.BeforeTags = func(ctx context.Context) error { return r.stillAsked(ctx, s) }
		request.Labels[mcfgv1.ImageLabelTrial] = s.stream
	})
	if err != nil {
		return "", "", err
	}
	return result.Pinned, "", nil
}

// stillAsked is an error where the annotation has changed meanwhile: the tag is for the newest
// trial.
func (r *Reconciler) stillAsked(ctx context.Context, s *scope) error {
	now := &mcfgv1.MachineOSConfig{}
	if err := r.options.Client.Get(ctx, client.ObjectKeyFromObject(s.config), now); err != nil {
		return err
	}
	if now.UID != s.config.UID || now.Annotations[mcfgv1.AnnotationTryStream] != s.stream {
		return fault.NewWaiting(mcfgv1.ReasonPreparing, turn, fmt.Errorf("the annotation %s has changed", mcfgv1.AnnotationTryStream))
	}
	return nil
}

// order says what image the trial makes.
func (r *Reconciler) order(s *scope) *maker.Order {
	key := trialKey(s.config)
	o := &maker.Order{
		Key: key, Pool: s.pool.Name, Config: s.config.Name, Rendered: s.then.MachineConfig.Name,
		Credentials: s.credentials, PushSecret: s.config.Spec.RenderedImagePushSecret.Name, Settings: objects.SettingsOf(s.config),
		Base: s.next.base, Extensions: s.next.extensions, Record: s.next.described.Inputs.Record(),
		Configuration: s.next.config, Described: s.next.described, Inputs: s.next.inputs.Inputs,
		Target: s.push, Before: string(s.config.Status.CurrentImagePullSpec),
		Origin: &provenance.Origin{
			Invocation: key.Build + "/" + key.UID, Config: s.config.Name, Base: s.next.base.Image, Extensions: s.next.extensions,
		},
	}
	o.IsStale = func(ctx context.Context, invocation string) (bool, error) {
		return objects.IsRebuilt(ctx, r.options.Client, maker.ContentOf(o.Base, o.Described), o.Target.Repository, "", invocation)
	}
	return o
}

// examine compares the two sides, on the first architecture that both have.
func (r *Reconciler) examine(ctx context.Context, s *scope) (*compare.Report, error) {
	images, known := r.options.Base.(trial.Images)
	if !known {
		return nil, fmt.Errorf("what reads base images here cannot tell their packages")
	}
	now, next, found := commonPlatform(s.now.base, s.next.base)
	if !found {
		return nil, fault.NewTerminal(mcfgv1.ReasonUnsuitableBaseImage, fmt.Errorf("the OS image of stream %q has no architecture that the pool's has", s.stream))
	}
	request := &trial.Request{
		Pool: s.pool.Name, Then: s.then, Containerfiles: s.next.sources, Before: s.now.describedInputs(), After: s.next.describedInputs(), Problem: s.next.problem,
		Blockers: append(trial.Overrides(s.config), s.failed...),
	}
	for _, p := range s.next.base.Platforms {
		request.Architectures = append(request.Architectures, p.Architecture)
	}
	var err error
	if request.From, err = r.trialOS(ctx, s, s.now, now); err != nil {
		return nil, err
	}
	if request.To, err = r.trialOS(ctx, s, s.next, next); err != nil {
		return nil, err
	}
	request.From.Stream = s.now.base.Stream
	if choice := s.pool.Status.OSImageStream.Name; choice != "" {
		request.From.Stream = choice
	}
	request.To.Stream = s.stream
	return trial.Examine(ctx, images, request)
}

func commonPlatform(a, b *preflight.Base) (preflight.Platform, preflight.Platform, bool) {
	for _, p := range a.Platforms {
		for _, q := range b.Platforms {
			if p.Architecture == q.Architecture {
				return p, q, true
			}
		}
	}
	return preflight.Platform{}, preflight.Platform{}, false
}

// trialOS opens the images of one side for one architecture.
func (*Reconciler) trialOS(ctx context.Context, s *scope, side *trialSide, p preflight.Platform) (trial.OS, error) {
	os := trial.OS{Reference: side.base.Image, Index: p.Index, HasExtensions: side.config.ExtensionsImage != ""}
	image, err := s.credentials.Pull.Image(ctx, side.base.Image, p.Platform)
	if err != nil {
		return os, err
	}
	if os.Image, err = compose.WithoutConfiguration(image); err != nil {
		return os, err
	}
	if side == s.next && side.extensions != "" {
		os.Extensions, err = s.credentials.Pull.Image(ctx, side.extensions, v1.Platform{OS: p.Platform.OS, Architecture: p.Platform.Architecture})
	}
	return os, err
}

// Keys of the report's ConfigMap.
const (
	reportText = "report.txt"
	reportJSON = "report.json"
	// maxReport is what fits into a ConfigMap, in bytes, with room for its metadata.
	maxReport = 1000 << 10
)

// publishReport writes the report, and says it in short.
func (r *Reconciler) publishReport(ctx context.Context, s *scope, report *compare.Report) (*mcfgv1.StreamTrial, error) {
	document, err := json.Marshal(report)
	if err != nil {
		return nil, fmt.Errorf("writing the report: %w", err)
	}
	data := map[string]string{reportText: report.Text()}
	if len(data[reportText])+len(document) <= maxReport {
		data[reportJSON] = string(document)
	}
	if len(data[reportText]) > maxReport {
		data[reportText] = strings.ToValidUTF8(data[reportText][:maxReport], "") + "\n(cut)\n"
	}
	configMap := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: r.options.Namespace, Name: names.StreamTrial(s.config.Name),
			Labels: objects.ValidLabels(map[string]string{mcfgv1.LabelMachineOSConfig: s.config.Name, mcfgv1.LabelTargetMachineConfigPool: s.pool.Name}),
		},
		Data: data,
	}
	if err := controllerutil.SetControllerReference(s.config, configMap, r.options.Client.Scheme()); err != nil {
		return nil, fmt.Errorf("setting the owner of ConfigMap %q: %w", configMap.Name, err)
	}
	if err := r.replace(ctx, configMap); err != nil {
		return nil, fmt.Errorf("writing the report into ConfigMap %q: %w", configMap.Name, err)
	}
	now := metav1.NewTime(r.options.Clock.Now()).Rfc3339Copy()
	result := &mcfgv1.StreamTrial{
		Stream: s.stream, State: mcfgv1.StreamTrialReported, Message: report.Summary(), ImagePullSpec: mcfgv1.ImageDigestFormat(report.TrialImage),
		BlockerCount: int32(len(report.Blockers)), WarningCount: int32(len(report.Warnings)), //nolint:gosec // a few
		Report:         &mcfgv1.StreamTrialReport{Namespace: configMap.Namespace, Name: configMap.Name},
		CompletionTime: &now, Inputs: s.inputs,
	}
	if p := report.Packages; p != nil {
		result.Packages = &mcfgv1.StreamTrialPackages{
			Added: int32(len(p.Added)), Removed: int32(len(p.Removed)), //nolint:gosec // some thousands
			Upgraded: int32(len(p.Upgraded)), Downgraded: int32(len(p.Downgraded)), //nolint:gosec // some thousands
		}
	}
	const maxListed = 32
	for _, blocker := range report.Blockers[:min(len(report.Blockers), maxListed)] {
		result.Blockers = append(result.Blockers, blocker.Short())
	}
	return result, nil
}

// replace writes an object in place of the one of its name. Changing objects of its kind takes a
// right that nothing else here needs.
func (r *Reconciler) replace(ctx context.Context, configMap *corev1.ConfigMap) error {
	err := r.options.Client.Create(ctx, configMap.DeepCopy())
	if !apierrors.IsAlreadyExists(err) {
		return err
	}
	if err := client.IgnoreNotFound(r.options.Client.Delete(ctx, configMap.DeepCopy())); err != nil {
		return err
	}
	return r.options.Client.Create(ctx, configMap.DeepCopy())
}
