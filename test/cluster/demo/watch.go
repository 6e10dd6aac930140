package demo

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/test/cluster/await"
	"github.com/layerwright/layerwright/test/cluster/progress"
	"github.com/layerwright/layerwright/view"
)

const (
	// patience is how long a pool or an image may take. They take seconds; reading a base image for
	// the first time from a busy disk takes the longest.
	patience = 5 * time.Minute
	// stalledPatience is how long an object may say that nothing happens until you act. It may
	// still speak of what was before.
	stalledPatience = 30 * time.Second
	// textWidth is how wide the text is that says why a wait did not end.
	textWidth = 120
)

// StuckError means that an object did not become what it should, with what the objects around it
// say.
type StuckError struct {
	// What is the thing that was waited for.
	What string
	// Says are lines of what the objects say, and Advice the commands that tell more.
	Says, Advice []string
	cause        error
}

func (e *StuckError) Error() string {
	lines := []string{fmt.Sprintf("waiting for %s: %v", e.What, e.cause)}
	for _, line := range e.Says {
		lines = append(lines, "  "+line)
	}
	return strings.Join(append(lines, e.Advice...), "\n")
}

func (e *StuckError) Unwrap() error { return e.cause }

// errStalled ends a wait that only a person can end.
var errStalled = errors.New("it is stalled, nothing happens until you act")

// wait watches objects, shows what they say, and knows when to give up.
type wait struct {
	step  *progress.Step
	limit time.Duration
	stall *time.Timer
	end   context.CancelCauseFunc
}

// waiting bounds a wait.
func (s *story) waiting(ctx context.Context, step *progress.Step) (context.Context, *wait, func()) {
	ctx, cancel := context.WithTimeout(ctx, s.patience)
	ctx, end := context.WithCancelCause(ctx)
	w := &wait{step: step, limit: s.stalledPatience, end: end}
	return ctx, w, func() {
		w.calm()
		end(nil)
		cancel()
	}
}

// see shows what an object says, and returns it.
func (w *wait) see(conditions []metav1.Condition) string {
	said := summary(conditions)
	w.step.Detail("%s", said)
	if !meta.IsStatusConditionTrue(conditions, mcfgv1.ConditionStalled) {
		w.calm()
	} else if w.stall == nil {
		w.stall = time.AfterFunc(w.limit, func() { w.end(errStalled) })
	}
	return said
}

func (w *wait) calm() {
	if w.stall != nil {
		w.stall.Stop()
		w.stall = nil
	}
}

// summary is the one thing that an object says about itself.
func summary(conditions []metav1.Condition) string {
	ready := meta.FindStatusCondition(conditions, mcfgv1.ConditionReady)
	if ready == nil {
		return "it says nothing yet"
	}
	return strings.TrimSuffix(ready.Reason+": "+ready.Message, ": ")
}

// rendered waits until the pool's configuration has a file with this content, and returns its name.
func (s *story) rendered(ctx context.Context, step *progress.Step, source string) (name string, err error) {
	ctx, w, done := s.waiting(ctx, step)
	defer done()
	target := await.Target{Client: s.objects.RESTClient(), Resource: "machineconfigpools", Name: poolName}
	err = await.Object(ctx, target, &mcfgv1.MachineConfigPool{}, func(pool *mcfgv1.MachineConfigPool) (bool, string) {
		said := w.see(pool.GetConditions())
		name = pool.Spec.Configuration.Name
		if name == "" {
			return false, said
		}
		rendered, err := s.objects.MachineConfigs().Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			w.end(err)
			return false, said
		}
		return strings.Contains(string(rendered.Spec.Config.Raw), source), said
	})
	return name, s.explain(ctx, "the configuration of MachineConfigPool "+poolName, err)
}

// made is an image that the MachineOSConfig names, and the build that it comes from.
type made struct {
	pullSpec string
	top      *top
	build    *mcfgv1.MachineOSBuild
	at       time.Time
}

// image waits until the MachineOSConfig is Ready with an image whose /etc/motd has this content,
// and that has the package if it is asked for.
func (s *story) image(ctx context.Context, step *progress.Step, motd string) (*made, error) {
	ctx, w, done := s.waiting(ctx, step)
	defer done()
	found := &made{}
	target := await.Target{Client: s.objects.RESTClient(), Resource: "machineosconfigs", Name: configName}
	err := await.Object(ctx, target, &mcfgv1.MachineOSConfig{}, func(config *mcfgv1.MachineOSConfig) (bool, string) {
		said := w.see(config.Status.Conditions)
		s.steps.see(said, time.Now())
		pullSpec := string(config.Status.CurrentImagePullSpec)
		if pullSpec == "" || !meta.IsStatusConditionTrue(config.Status.Conditions, mcfgv1.ConditionReady) || config.Status.MachineOSBuild == nil {
			return false, said
		}
		if pullSpec != found.pullSpec {
			*found = made{pullSpec: pullSpec, at: time.Now()}
			var err error
			if found.top, err = s.images.top(ctx, pullSpec, s.base); err != nil {
				w.end(err)
				return false, said
			}
		}
		if found.top == nil || found.top.contents[motdPath] != motd || found.top.has(programPath) != (s.content != "") {
			return false, "its image is still the one before"
		}
		var err error
		if found.build, err = s.objects.MachineOSBuilds().Get(ctx, config.Status.MachineOSBuild.Name, metav1.GetOptions{}); err != nil {
			w.end(err)
			return false, said
		}
		return true, said
	})
	return found, s.explain(ctx, "the image of MachineOSConfig "+configName, err)
}

// explain adds to an error what the objects say, unless the run itself was ended.
func (s *story) explain(ctx context.Context, what string, err error) error {
	if err == nil || errors.Is(err, context.Canceled) {
		return err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	return &StuckError{What: what, Says: s.says(ctx), Advice: s.advice(), cause: err}
}

// says is what pool, MachineOSConfig and its builds say, as far as they can be read.
func (s *story) says(ctx context.Context) []string {
	var o view.Objects
	if pool, err := s.objects.MachineConfigPools().Get(ctx, poolName, metav1.GetOptions{}); err == nil {
		o.Pools = append(o.Pools, *pool)
	}
	if config, err := s.objects.MachineOSConfigs().Get(ctx, configName, metav1.GetOptions{}); err == nil {
		o.Configs = append(o.Configs, *config)
	}
	if builds, err := s.objects.MachineOSBuilds().List(ctx, metav1.ListOptions{}); err == nil {
		o.Builds = builds.Items
	}
	var text strings.Builder
	_ = view.Text(&text, view.Of(&o), view.Style{Now: time.Now(), Width: textWidth}) // a Builder takes all
	return strings.Split(strings.TrimSpace(text.String()), "\n")
}

// finalMessage is what a build says of how it ended.
func finalMessage(build *mcfgv1.MachineOSBuild) string {
	if c := meta.FindStatusCondition(build.Status.Conditions, mcfgv1.BuildSucceeded); c != nil {
		return c.Message
	}
	return summary(build.Status.Conditions)
}
