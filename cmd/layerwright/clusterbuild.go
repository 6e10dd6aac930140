package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/cmd/layerwright/survey"
	"github.com/layerwright/layerwright/internal/names"
	"github.com/layerwright/layerwright/view"
)

// clusterBuild is what a user asks of the builds of a pool.
type clusterBuild struct {
	cluster clusterFlags
	pool    string
	rebuild bool
	cancel  bool
	trial   bool
	stream  string
	wait    bool
	timeout time.Duration
	// own are the names of the flags that are about a cluster.
	own map[string]bool

	from      client.Client
	clock     clock.Clock
	out       io.Writer
	progress  *progressLine
	namespace string
	// stalled is how often in a row the MachineOSConfig was Stalled.
	stalled int
}

func (b *clusterBuild) addFlags(flags *pflag.FlagSet) {
	flags.BoolVar(&b.rebuild, "rebuild", false, "with POOL: resolve tags again, and make the image again although nothing has changed")
	flags.BoolVar(&b.cancel, "cancel", false, "with POOL: end the build that is under way")
	flags.BoolVar(&b.trial, "trial", false, "with POOL: say what the move to another stream would change, and what is in its way")
	flags.StringVar(&b.stream, "stream", "", "with --trial: the other stream")
	flags.BoolVar(&b.wait, "wait", true, "with POOL: follow until the end; --wait=false only asks")
	flags.DurationVar(&b.timeout, "timeout", 0, "with POOL: how long to follow at most")
}

// add adds the flags of a cluster to those of builds from files.
func (b *clusterBuild) add(cmd *cobra.Command) {
	b.own = map[string]bool{}
	cmd.Flags().VisitAll(func(f *pflag.Flag) { b.own[f.Name] = false })
	b.addFlags(cmd.Flags())
	b.cluster = newClusterFlags(cmd)
	cmd.ValidArgsFunction = b.cluster.completePools
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if _, isOfFiles := b.own[f.Name]; !isOfFiles {
			b.own[f.Name] = true
		}
	})
}

// open takes what the command line and the cluster give.
func (b *clusterBuild) open(cmd *cobra.Command, from client.Client) {
	b.from, b.out, b.progress, b.namespace = from, cmd.OutOrStdout(), newProgressLine(cmd.ErrOrStderr()), *b.cluster.Namespace
}

// check refuses flags that do not go together. Others are the flags of builds from files.
func (b *clusterBuild) check(flags *pflag.FlagSet) error {
	var wrong []string
	flags.Visit(func(f *pflag.Flag) {
		if !b.own[f.Name] && b.pool != "" || b.own[f.Name] && b.pool == "" {
			wrong = append(wrong, "--"+f.Name)
		}
	})
	switch {
	case b.pool != "" && len(wrong) > 0:
		return fmt.Errorf("%s: of a build from files, which names no pool as an argument; with POOL the cluster builds", strings.Join(wrong, ", "))
	case len(wrong) > 0:
		return fmt.Errorf("%s: of a build on the cluster, which takes the name of a pool as an argument", strings.Join(wrong, ", "))
	case b.rebuild && b.cancel, b.rebuild && b.trial, b.cancel && b.trial:
		return errors.New("give one of --rebuild, --cancel and --trial")
	case b.trial && b.stream == "":
		return errors.New("no stream: name the one that the pool might move to with --stream")
	case !b.trial && b.stream != "":
		return errors.New("--stream goes with --trial; to move the pool there, see layerwright migrate")
	case b.timeout < 0:
		return errors.New("--timeout must be positive")
	}
	return nil
}

// run does what is asked.
func (b *clusterBuild) run(ctx context.Context) error {
	config, err := b.config(ctx)
	if err != nil {
		return err
	}
	switch {
	case b.cancel:
		return b.end(ctx, config)
	case b.trial:
		return b.try(ctx, config)
	}
	before := nameOfBuild(config)
	if b.rebuild {
		if err := b.annotate(ctx, config, mcfgv1.AnnotationRebuildImage, ""); err != nil {
			return err
		}
		if before, err = b.uidOf(ctx, before); err != nil {
			return err
		}
	} else if before = ""; isCurrent(config) {
		b.progress.say("the image is what is asked for; --rebuild makes it again")
		return b.print(string(config.Status.CurrentImagePullSpec))
	}
	if !b.wait {
		b.progress.say("asked for; layerwright build " + b.pool + " follows it")
		return nil
	}
	return b.follow(ctx, func(ctx context.Context) (bool, error) { return b.look(ctx, before) })
}

// config is the MachineOSConfig of the pool.
func (b *clusterBuild) config(ctx context.Context) (*mcfgv1.MachineOSConfig, error) {
	config := &mcfgv1.MachineOSConfig{}
	err := b.from.Get(ctx, client.ObjectKey{Name: b.pool}, config)
	if apierrors.IsNotFound(err) || meta.IsNoMatchError(err) {
		if _, err := getPool(ctx, b.from, b.pool); err != nil {
			return nil, err
		}
		return nil, fmt.Errorf("pool %s has no MachineOSConfig, so that no image is built for it: make one with the pool's name", b.pool)
	}
	if err != nil {
		return nil, fmt.Errorf("reading MachineOSConfig %s: %w", b.pool, err)
	}
	return config, nil
}

func nameOfBuild(config *mcfgv1.MachineOSConfig) string {
	if config.Status.MachineOSBuild == nil {
		return ""
	}
	return config.Status.MachineOSBuild.Name
}

// isCurrent reports whether the image is what spec asks for.
func isCurrent(config *mcfgv1.MachineOSConfig) bool {
	return meta.IsStatusConditionTrue(config.Status.Conditions, mcfgv1.ConditionReady) && config.Status.ObservedGeneration >= config.Generation && !wantsRebuild(config)
}

func wantsRebuild(config *mcfgv1.MachineOSConfig) bool {
	for _, key := range []string{mcfgv1.AnnotationRebuild, mcfgv1.AnnotationRebuildImage} {
		if _, asked := config.Annotations[key]; asked {
			return true
		}
	}
	return false
}

// annotate asks the controller for something.
func (b *clusterBuild) annotate(ctx context.Context, config *mcfgv1.MachineOSConfig, key, value string) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]string{key: value}}})
	if err != nil {
		return err
	}
	if err := b.from.Patch(ctx, config, client.RawPatch(types.MergePatchType, patch)); err != nil {
		return fmt.Errorf("annotating MachineOSConfig %s with %s: %w", config.Name, key, err)
	}
	return nil
}

// uidOf tells a build from a later one of the same name; empty where it is gone.
func (b *clusterBuild) uidOf(ctx context.Context, name string) (string, error) {
	build, err := b.build(ctx, name)
	if build == nil {
		return "", err
	}
	return string(build.UID), nil
}

// build reads a build; nil where there is none.
func (b *clusterBuild) build(ctx context.Context, name string) (*mcfgv1.MachineOSBuild, error) {
	if name == "" {
		return nil, nil //nolint:nilnil // there is none
	}
	build := &mcfgv1.MachineOSBuild{}
	err := b.from.Get(ctx, client.ObjectKey{Name: name}, build)
	if apierrors.IsNotFound(err) {
		return nil, nil //nolint:nilnil // there is none any more
	}
	if err != nil {
		return nil, fmt.Errorf("reading MachineOSBuild %s: %w", name, err)
	}
	return build, nil
}

// follow looks until the end.
func (b *clusterBuild) follow(ctx context.Context, look func(context.Context) (bool, error)) error {
	const patience = 30 // looks in a row without an answer
	begun, failures := b.clock.Now(), 0
	for {
		isEnd, err := b.within(ctx, begun, look)
		var ended *endError
		switch {
		case ctx.Err() != nil:
		case isEnd, errors.As(err, &ended):
			b.progress.end()
			return err
		case err != nil && failures >= patience, apierrors.IsForbidden(err):
			return err
		case err != nil:
			failures++
			b.progress.show("no answer, trying again: " + err.Error())
		default:
			failures = 0
		}
		if b.timeout > 0 && b.clock.Since(begun) >= b.timeout {
			b.progress.end()
			return &endError{exitTimedOut, fmt.Sprintf("not at its end after %s; it goes on", b.timeout)}
		}
		select {
		case <-ctx.Done():
			b.progress.end()
			return &failedError{fmt.Errorf("interrupted: it goes on in the cluster; layerwright status %s shows it", b.pool)}
		case <-b.clock.After(lookEvery):
		}
	}
}

// within looks for no longer than there is time left.
func (b *clusterBuild) within(ctx context.Context, begun time.Time, look func(context.Context) (bool, error)) (bool, error) {
	if b.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, max(b.timeout-b.clock.Since(begun), time.Millisecond))
		defer cancel()
	}
	return look(ctx)
}

// look looks at the newest build, but for the one with a UID: that was there before it was asked
// for another one.
func (b *clusterBuild) look(ctx context.Context, but string) (bool, error) {
	config, err := b.config(ctx)
	if err != nil {
		return false, err
	}
	build, err := b.build(ctx, nameOfBuild(config))
	if err != nil {
		return false, err
	}
	isAnswered := build != nil && but != string(build.UID) && !wantsRebuild(config)
	if but != "" && isAnswered && build.Status.BuildEnd != nil {
		if isEnd, err := b.judge(build, config); isEnd {
			return true, err
		}
	}
	if but == "" && isCurrent(config) {
		b.progress.end()
		return true, b.print(string(config.Status.CurrentImagePullSpec))
	}
	if !meta.IsStatusConditionTrue(config.Status.Conditions, mcfgv1.ConditionStalled) || config.Status.ObservedGeneration < config.Generation {
		b.stalled = 0
		b.progress.show(stepOf(config))
		return false, nil
	}
	patience := stalledLooks
	if wantsRebuild(config) {
		patience = unansweredLooks
	}
	if b.stalled++; b.stalled < patience {
		return false, nil
	}
	c := meta.FindStatusCondition(config.Status.Conditions, mcfgv1.ConditionStalled)
	return true, &endError{exitDegraded, fmt.Sprintf("MachineOSConfig %s: %s: %s; layerwright logs %s shows what its newest build printed", b.pool, c.Reason, c.Message, b.pool)}
}

// stalledLooks is how many times a MachineOSConfig has to be seen Stalled: what was corrected just
// now is seen a moment later. unansweredLooks is that of one whose request for a rebuild is still
// there: it may be Stalled because of the build before.
const stalledLooks, unansweredLooks = 3, 15

// stepOf is what the controller does, in its words.
func stepOf(config *mcfgv1.MachineOSConfig) string {
	c := meta.FindStatusCondition(config.Status.Conditions, mcfgv1.ConditionReconciling)
	if c == nil || c.Status != metav1.ConditionTrue {
		return "waits for the controller"
	}
	return strings.TrimSuffix(c.Reason+": "+c.Message, ": ")
}

// judge is about a build that has ended. Where another one takes its place, that is not the end.
func (b *clusterBuild) judge(build *mcfgv1.MachineOSBuild, config *mcfgv1.MachineOSConfig) (bool, error) {
	conditions := build.Status.Conditions
	if meta.IsStatusConditionTrue(conditions, mcfgv1.BuildSucceeded) {
		b.progress.end()
		if !isCurrent(config) {
			b.progress.say("built; before nodes get it: " + stepOf(config))
		}
		return true, b.print(string(build.Status.DigestedImagePushSpec))
	}
	for _, end := range []string{mcfgv1.BuildFailed, mcfgv1.BuildInterrupted} {
		c := meta.FindStatusCondition(conditions, end)
		if c == nil || c.Status != metav1.ConditionTrue || c.Reason == mcfgv1.ReasonSuperseded || c.Reason == mcfgv1.ReasonInputsChanged {
			continue
		}
		return true, &endError{exitDegraded, fmt.Sprintf("build %s: %s: %s; layerwright logs %s shows what it printed", build.Name, c.Reason, c.Message, build.Name)}
	}
	return false, nil
}

// print ends with the image.
func (b *clusterBuild) print(image string) error {
	_, err := fmt.Fprintln(b.out, view.Visible(image))
	return err
}

// end ends the build that is under way: without what builds it, it is interrupted, and no other
// one follows until someone asks.
func (b *clusterBuild) end(ctx context.Context, config *mcfgv1.MachineOSConfig) error {
	build, err := b.build(ctx, nameOfBuild(config))
	if err != nil {
		return err
	}
	if build == nil || build.Status.BuildEnd != nil {
		return fmt.Errorf("pool %s has no build under way", b.pool)
	}
	if build.Status.Builder == nil {
		return fmt.Errorf("build %s has no Job or PipelineRun to end: it waits, or appends the configuration, which takes about a second (%s)", build.Name, stepOf(config))
	}
	what := survey.Job
	if build.Status.Builder.PipelineRun != nil {
		what = survey.PipelineRun
	}
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(what)
	of := client.MatchingLabels{mcfgv1.LabelMachineOSBuild: names.BuildLabel(build.Name)}
	if err := b.from.List(ctx, list, client.InNamespace(b.namespace), of); err != nil {
		return fmt.Errorf("listing %ss of namespace %s: %w", what.Kind, b.namespace, err)
	}
	if len(list.Items) == 0 {
		return fmt.Errorf("namespace %s has no %s of build %s: name Layerwright's namespace with -n", b.namespace, what.Kind, build.Name)
	}
	for i := range list.Items {
		list.Items[i].SetGroupVersionKind(what)
		if err := client.IgnoreNotFound(b.from.Delete(ctx, &list.Items[i], client.PropagationPolicy(metav1.DeletePropagationBackground))); err != nil {
			return fmt.Errorf("deleting %s %s: %w", what.Kind, list.Items[i].Name, err)
		}
	}
	_, err = fmt.Fprintf(b.out, "build %s is cancelled; layerwright build %s --rebuild builds again\n", build.Name, b.pool)
	return err
}

// settledTrial is the state of a trial that waits for nothing.
var settledTrial = []mcfgv1.StreamTrialState{mcfgv1.StreamTrialReported, mcfgv1.StreamTrialFailed}

// try has the move to another stream tried, and prints the report.
func (b *clusterBuild) try(ctx context.Context, config *mcfgv1.MachineOSConfig) error {
	if config.Annotations[mcfgv1.AnnotationTryStream] != b.stream {
		if err := b.annotate(ctx, config, mcfgv1.AnnotationTryStream, b.stream); err != nil {
			return err
		}
	}
	if !b.wait {
		b.progress.say("asked for; the same command without --wait=false shows the report")
		return nil
	}
	var trial *mcfgv1.StreamTrial
	if err := b.follow(ctx, func(ctx context.Context) (bool, error) {
		config, err := b.config(ctx)
		if err != nil {
			return false, err
		}
		trial = trialOf(config, b.stream)
		if trial == nil {
			b.progress.show("waits for the controller")
			return false, nil
		}
		b.progress.show(string(trial.State) + ": " + trial.Message)
		return slices.Contains(settledTrial, trial.State), nil
	}); err != nil {
		return err
	}
	if trial.State == mcfgv1.StreamTrialFailed {
		return &endError{exitDegraded, "the trial of stream " + b.stream + " failed: " + trial.Message}
	}
	text, err := b.report(ctx, trial)
	if err != nil {
		return err
	}
	if _, err := io.WriteString(b.out, text); err != nil {
		return err
	}
	if trial.BlockerCount > 0 {
		return &endError{exitHeld, fmt.Sprintf("pool %s can't move to stream %s yet: %d blockers", b.pool, b.stream, trial.BlockerCount)}
	}
	return nil
}

// trialOf is the trial of a stream; nil where there is none.
func trialOf(config *mcfgv1.MachineOSConfig, stream string) *mcfgv1.StreamTrial {
	if t := config.Status.StreamTrial; t != nil && t.Stream == stream {
		return t
	}
	return nil
}

// report is the whole report; without the right to read it, what the MachineOSConfig says of it.
func (b *clusterBuild) report(ctx context.Context, trial *mcfgv1.StreamTrial) (string, error) {
	text := trial.Message + "\n"
	for _, blocker := range trial.Blockers {
		text += "  " + blocker + "\n"
	}
	if trial.Report != nil {
		whole, err := survey.ConfigMap(ctx, b.from, trial.Report.Namespace, trial.Report.Name)
		switch {
		case apierrors.IsForbidden(err):
			b.progress.say(fmt.Sprintf("the whole report is in ConfigMap %s/%s, which you may not read", trial.Report.Namespace, trial.Report.Name))
		case err != nil:
			return "", err
		case whole["report.txt"] != "":
			text = whole["report.txt"]
		}
	}
	return visibleLines(strings.TrimRight(text, "\n")) + "\n", nil
}
