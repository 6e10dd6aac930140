package plan_test

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/builder/plan"
)

var now = time.Date(2026, 8, 1, 12, 0, 0, 0, time.UTC)

// The stages that decisions tell apart; active is one of several.
const (
	active      = mcfgv1.BuildStagePending
	succeeded   = mcfgv1.BuildStageSucceeded
	failed      = mcfgv1.BuildStageFailed
	interrupted = mcfgv1.BuildStageInterrupted
)

// state is one in which configuration is to be appended: the changes make it another one.
func state(changes ...func(*plan.State)) *plan.State {
	s := &plan.State{
		Now: now, Pool: plan.PoolFacts{Exists: true, Config: "rendered-worker-1"},
		Wanted: &plan.Wanted{Build: "worker-b"}, Access: "secret/1",
	}
	for _, change := range changes {
		change(s)
	}
	return s
}

func with(b plan.Existing) func(*plan.State) {
	return func(s *plan.State) { s.Builds = append(s.Builds, b) }
}

func build(name string, stage mcfgv1.BuildStage, changes ...func(*plan.Existing)) plan.Existing {
	b := plan.Existing{Name: name, Stage: stage, Access: "secret/1", Ended: now.Add(-time.Minute)}
	for _, change := range changes {
		change(&b)
	}
	return b
}

func because(reason string) func(*plan.Existing) {
	return func(b *plan.Existing) { b.Reason, b.Message = reason, "it says so" }
}

func within(limit time.Duration) func(*plan.Existing) {
	return func(b *plan.Existing) { b.Timeout = limit }
}

func marked(b *plan.Existing)   { b.Rebuild = true }
func deleting(b *plan.Existing) { b.Deleting = true }
func inRegistry(s *plan.State)  { s.InRegistry = true }
func rebuild(s *plan.State)     { s.Rebuild = true }
func content(s *plan.State)     { s.Wanted.HasContent = true }
func backend(s *plan.State)     { s.Backend = true }
func denied(s *plan.State) {
	s.Problem = &plan.Problem{Reason: mcfgv1.ReasonPushDenied, Message: "may not"}
}

func waiting(s *plan.State) {
	s.Problem = &plan.Problem{Reason: mcfgv1.ReasonWaitingForSecret, Message: "no secret", Waits: true}
}
func undescribed(s *plan.State) { s.Wanted = nil }

func TestDecide(t *testing.T) {
	t.Parallel()
	type want struct {
		action            plan.Action
		reason            string
		interrupt, remove []string
		cause             mcfgv1.BuildInput
		acknowledge       bool
		after             time.Duration
	}
	tests := map[string]struct {
		state *plan.State
		want  want
	}{
		"a MachineOSConfig that goes ends its builds": {
			state(func(s *plan.State) { s.Deleting = true }, with(build("worker-b", active)), with(build("worker-a", succeeded))),
			want{action: plan.Stop, reason: plan.ReasonDeleting, interrupt: []string{"worker-b"}},
		},
		"no pool": {state(func(s *plan.State) { s.Pool = plan.PoolFacts{} }), want{action: plan.Wait, reason: "WaitingForPool"}},
		"a pool without configuration": {
			state(func(s *plan.State) { s.Pool.Config = "" }), want{action: plan.Wait, reason: "WaitingForPool"},
		},
		"a pool that can't be rendered": {
			state(func(s *plan.State) { s.Pool.Degraded = "bad file" }, with(build("worker-a", active))),
			want{action: plan.Wait, reason: "WaitingForPool"},
		},
		"the wanted image is unknown, and active builds go on": {
			state(undescribed, denied, with(build("worker-a", active))), want{action: plan.Stop, reason: "PushDenied"},
		},
		"no one can tell yet":                           {state(undescribed, waiting), want{action: plan.Wait, reason: "WaitingForSecret"}},
		"no one can tell, and no one says why":          {state(undescribed), want{action: plan.Wait, reason: "Preparing"}},
		"configuration alone is appended":               {state(), want{action: plan.Append, reason: "Preparing"}},
		"the registry has the image":                    {state(inRegistry), want{action: plan.Reuse, reason: "Reused"}},
		"the registry has it, and may not be pushed to": {state(inRegistry, denied), want{action: plan.Reuse, reason: "Reused"}},
		"it can't be made":                              {state(denied), want{action: plan.Stop, reason: "PushDenied"}},
		"it can't be made yet":                          {state(waiting), want{action: plan.Wait, reason: "WaitingForSecret"}},
		"content is built":                              {state(content, backend), want{action: plan.Build, reason: "Preparing"}},
		"content without a builder":                     {state(content), want{action: plan.Stop, reason: "BuilderNotAvailable"}},
		"content that has been built needs no builder": {
			state(content, func(s *plan.State) { s.HasContentImage = true }), want{action: plan.Append, reason: "Preparing"},
		},
		"content that the registry has with its configuration": {state(content, inRegistry), want{action: plan.Reuse, reason: "Reused"}},
		"another build is superseded": {
			state(with(build("worker-a", active)), with(build("worker-c", active)), with(build("worker-d", failed)), with(build("worker-e", active, deleting))),
			want{action: plan.Append, reason: "Preparing", interrupt: []string{"worker-a", "worker-c"}},
		},
		"another build is superseded before the new one can be made": {
			state(content, with(build("worker-a", active))),
			want{action: plan.Stop, reason: "BuilderNotAvailable", interrupt: []string{"worker-a"}},
		},
		"there was the image once": {
			state(func(s *plan.State) { s.HadImage = true }), want{action: plan.Append, reason: "Preparing", cause: mcfgv1.BuildInputImageMissing},
		},
		"there was a build once, and the image is there": {
			state(inRegistry, func(s *plan.State) { s.HadImage = true }), want{action: plan.Reuse, reason: "Reused"},
		},
		"the wanted build has begun": {
			state(with(build("worker-b", active, because("Building")))), want{action: plan.Wait, reason: "Building"},
		},
		"the wanted build has not been looked at": {state(with(build("worker-b", active))), want{action: plan.Wait, reason: "Pending"}},
		"the wanted build goes on although it could not be begun now": {
			state(denied, with(build("worker-b", active, because("Retrying")))), want{action: plan.Wait, reason: "Retrying"},
		},
		"the wanted build has succeeded": {
			state(inRegistry, with(build("worker-b", succeeded))), want{action: plan.Nothing, reason: "Succeeded"},
		},
		"the wanted build has succeeded, whatever fails now": {
			state(inRegistry, denied, content, with(build("worker-b", succeeded))), want{action: plan.Nothing, reason: "Succeeded"},
		},
		"back to an image that there was before": {
			state(inRegistry, with(build("worker-b", succeeded)), with(build("worker-c", active))),
			want{action: plan.Nothing, reason: "Succeeded", interrupt: []string{"worker-c"}},
		},
		"the image is gone": {
			state(with(build("worker-b", succeeded))), want{action: plan.Wait, reason: "Preparing", remove: []string{"worker-b"}},
		},
		"the image is gone and can't be made": {
			state(denied, with(build("worker-b", succeeded))), want{action: plan.Stop, reason: "PushDenied"},
		},
		"a build that is being removed": {
			state(with(build("worker-b", succeeded, deleting))), want{action: plan.Wait, reason: "Preparing"},
		},
		"a superseded build is wanted again": {
			state(with(build("worker-b", interrupted, because("Superseded")))),
			want{action: plan.Wait, reason: "Preparing", remove: []string{"worker-b"}},
		},
		"a failed build stays failed": {
			state(with(build("worker-b", failed, because("InvalidContainerfile"))), func(s *plan.State) { s.Access = "secret/2" }),
			want{action: plan.Stop, reason: "InvalidContainerfile"},
		},
		"a build that was denied stays failed for a while": {
			state(with(build("worker-b", failed, because("PushDenied")))),
			want{action: plan.Stop, reason: "PushDenied", after: plan.RetryAfter - time.Minute},
		},
		"builds again when an attempt gets more time": {
			state(with(build("worker-b", failed, because("TimedOut"), within(time.Hour))), func(s *plan.State) { s.Timeout = 2 * time.Hour }),
			want{action: plan.Wait, reason: "Preparing", remove: []string{"worker-b"}},
		},
		"does not build again when an attempt gets less time": {
			state(with(build("worker-b", failed, because("TimedOut"), within(time.Hour))), func(s *plan.State) { s.Timeout = time.Minute }),
			want{action: plan.Stop, reason: "TimedOut", after: plan.RetryAfter - time.Minute},
		},
		"more time helps only what timed out": {
			state(with(build("worker-b", failed, because("PushDenied"), within(time.Hour))), func(s *plan.State) { s.Timeout = 2 * time.Hour }),
			want{action: plan.Stop, reason: "PushDenied", after: plan.RetryAfter - time.Minute},
		},
		"how long an attempt had is not known": {
			state(with(build("worker-b", failed, because("TimedOut"))), func(s *plan.State) { s.Timeout = 2 * time.Hour }),
			want{action: plan.Stop, reason: "TimedOut", after: plan.RetryAfter - time.Minute},
		},
		"a build that was denied is made again with other credentials": {
			state(with(build("worker-b", failed, because("PushDenied"))), func(s *plan.State) { s.Access = "secret/2" }),
			want{action: plan.Wait, reason: "Preparing", remove: []string{"worker-b"}},
		},
		"a build that was denied is made again after a while": {
			state(with(build("worker-b", failed, because("ImageNotFound"))), func(s *plan.State) { s.Now = now.Add(plan.RetryAfter) }),
			want{action: plan.Wait, reason: "Preparing", remove: []string{"worker-b"}},
		},
		"a build that a person cancelled waits until it is asked for": {
			state(with(build("worker-b", interrupted, because("Interrupted")))), want{action: plan.Stop, reason: "Interrupted"},
		},
		"a build that a person cancelled is asked for": {
			state(rebuild, with(build("worker-b", interrupted, because("Interrupted")))), want{action: plan.Wait, reason: "Preparing", remove: []string{"worker-b"}},
		},
		"what failed again and again waits longer": {
			state(with(build("worker-b", failed, because("RetryLimitReached"))), func(s *plan.State) { s.Retries = 2 }),
			want{action: plan.Stop, reason: "RetryLimitReached", after: 4*plan.RetryAfter - time.Minute},
		},
		"no longer than to the next day": {
			state(with(build("worker-b", failed, because("TimedOut"))), func(s *plan.State) { s.Retries = 1000 }),
			want{action: plan.Stop, reason: "TimedOut", after: 16*time.Hour - time.Minute},
		},
		"what RUN lines can't cause does not": {
			state(with(build("worker-b", failed, because("PushDenied"))), func(s *plan.State) { s.Retries = 2 }),
			want{action: plan.Stop, reason: "PushDenied", after: plan.RetryAfter - time.Minute},
		},
		"a denied build is not made again while preflight says no": {
			state(denied, with(build("worker-b", failed, because("PushDenied"))), func(s *plan.State) { s.Access = "secret/2" }),
			want{action: plan.Stop, reason: "PushDenied"},
		},
		"a rebuild of nothing": {
			state(rebuild), want{action: plan.Append, reason: "Preparing", cause: mcfgv1.BuildInputRebuildRequested},
		},
		"a rebuild of an image without a build reuses nothing": {
			state(rebuild, inRegistry), want{action: plan.Append, reason: "Preparing", cause: mcfgv1.BuildInputRebuildRequested},
		},
		"a rebuild makes room": {
			state(rebuild, inRegistry, with(build("worker-b", succeeded))), want{action: plan.Wait, reason: "Preparing", remove: []string{"worker-b"}},
		},
		"a rebuild of a failed build": {
			state(rebuild, with(build("worker-b", failed, because("BuildFailed")))), want{action: plan.Wait, reason: "Preparing", remove: []string{"worker-b"}},
		},
		"an impossible rebuild leaves the build and the request": {
			state(rebuild, waiting, inRegistry, with(build("worker-b", succeeded))), want{action: plan.Wait, reason: "WaitingForSecret"},
		},
		"a rebuild while it is removed": {
			state(rebuild, with(build("worker-b", succeeded, deleting))), want{action: plan.Wait, reason: "Preparing"},
		},
		"a rebuild that has begun is taken down": {
			state(rebuild, with(build("worker-b", active, marked))), want{action: plan.Wait, reason: "Pending", acknowledge: true},
		},
		"a rebuild that ended before its request was removed": {
			state(rebuild, inRegistry, with(build("worker-b", succeeded, marked))), want{action: plan.Nothing, reason: "Succeeded", acknowledge: true},
		},
		"a rebuild that is asked for during a build waits for its end": {
			state(rebuild, with(build("worker-b", active, because("Building")))), want{action: plan.Wait, reason: "Building"},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := plan.Decide(tt.state)
			assert.Equal(t, tt.want, want{d.Action, d.Reason, d.Interrupt, d.Remove, d.Cause, d.Acknowledge, d.After})
			if d.Action == plan.Stop || d.Action == plan.Append || d.Action == plan.Build || d.Action == plan.Reuse {
				assert.NotEmpty(t, d.Message)
			}
		})
	}
}

// TestDecideAlwaysEnds follows decisions from every state: what they ask for is done, and it has to
// come to rest.
func TestDecideAlwaysEnds(t *testing.T) {
	t.Parallel()
	bools := []bool{false, true}
	for _, stage := range []mcfgv1.BuildStage{-1, active, succeeded, failed, interrupted} {
		for i := range 1 << 7 {
			bit := func(n int) bool { return bools[i>>n&1] }
			s := state()
			s.InRegistry, s.Rebuild, s.Wanted.HasContent, s.Backend = bit(0), bit(1), bit(2), bit(3)
			if bit(4) {
				denied(s)
			}
			if stage >= 0 {
				b := build("worker-b", stage, because("PushDenied"))
				b.Rebuild = bit(5)
				s.Builds = append(s.Builds, b)
			}
			if bit(6) {
				s.Builds = append(s.Builds, build("worker-a", active))
			}
			made := follow(t, s)
			require.LessOrEqual(t, made, 1, "%+v", s)
			active := slices.DeleteFunc(slices.Clone(s.Builds), func(b plan.Existing) bool { return b.Stage.IsFinal() })
			require.LessOrEqual(t, len(active), 1, "one active build at most: %+v", s)
		}
	}
}

// follow does what decisions ask for until they ask for nothing, and counts the builds made.
func follow(t *testing.T, s *plan.State) (made int) {
	t.Helper()
	for range 10 {
		d := plan.Decide(s)
		did := false
		for i := range s.Builds {
			if slices.Contains(d.Interrupt, s.Builds[i].Name) {
				s.Builds[i].Stage, did = interrupted, true
			}
		}
		s.Builds = slices.DeleteFunc(s.Builds, func(b plan.Existing) bool {
			did = did || slices.Contains(d.Remove, b.Name)
			return slices.Contains(d.Remove, b.Name)
		})
		if d.Acknowledge {
			s.Rebuild, did = false, true
		}
		switch d.Action {
		case plan.Reuse, plan.Append, plan.Build:
			s.Builds = append(s.Builds, plan.Existing{Name: d.Build, Rebuild: d.Cause == mcfgv1.BuildInputRebuildRequested})
			made, did = made+1, true
		case plan.Nothing, plan.Wait, plan.Stop:
		}
		if !did {
			return made
		}
	}
	require.Fail(t, "it never ends", "%+v", s)
	return made
}

func TestRetain(t *testing.T) {
	t.Parallel()
	at := func(minute int, name string, stage mcfgv1.BuildStage, image string) plan.Existing {
		return plan.Existing{Name: name, Stage: stage, Created: now.Add(time.Duration(minute) * time.Minute), Image: image}
	}
	five := []plan.Existing{
		at(1, "a", succeeded, "r@1"), at(2, "b", succeeded, "r@2"), at(3, "c", succeeded, "r@3"),
		at(4, "d", succeeded, "r@4"), at(5, "e", succeeded, "r@5"),
	}
	tests := map[string]struct {
		builds     []plan.Existing
		wanted     string
		references []string
		keep       plan.Retention
		want       []string
	}{
		"none":                           {keep: plan.DefaultRetention},
		"the newest three":               {builds: five, wanted: "e", keep: plan.DefaultRetention, want: []string{"b", "a"}},
		"the newest stays in any case":   {builds: five, want: []string{"d", "c", "b", "a"}},
		"what a node uses stays":         {builds: five, wanted: "e", references: []string{"r@1"}, keep: plan.DefaultRetention, want: []string{"b"}},
		"the wanted one stays, also old": {builds: five, wanted: "a", keep: plan.Retention{Successful: 1}, want: []string{"d", "c", "b"}},
		"in one second, the last by name is the newest": {
			builds: []plan.Existing{at(1, "a", succeeded, "r@1"), at(1, "b", succeeded, "r@2")}, keep: plan.Retention{Successful: 1}, want: []string{"a"},
		},
		"failed ones are counted apart": {
			builds: append(slices.Clone(five[3:]), at(6, "f", failed, ""), at(7, "g", interrupted, ""), at(8, "h", failed, "")),
			keep:   plan.DefaultRetention, want: []string{"g", "f"},
		},
		"a failed build that is wanted stays": {
			builds: []plan.Existing{at(1, "a", failed, ""), at(2, "b", failed, "")}, wanted: "a", want: []string{"b"},
		},
		"active ones and those that go count as nothing": {
			builds: []plan.Existing{
				at(9, "x", active, ""),
				{Name: "y", Stage: succeeded, Created: now.Add(time.Hour), Image: "r@9", Deleting: true},
				at(1, "a", succeeded, "r@1"),
			},
			keep: plan.Retention{Successful: 1},
		},
		"no image is no reference": {builds: five[:2], references: []string{""}, keep: plan.Retention{Successful: 1}, want: []string{"a"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			references := map[string]bool{}
			for _, r := range tt.references {
				references[r] = true
			}
			before := slices.Clone(tt.builds)
			assert.Equal(t, tt.want, plan.Retain(tt.builds, tt.wanted, references, tt.keep))
			assert.Equal(t, before, tt.builds, "the list stays as it is")
		})
	}
}

func TestQueue(t *testing.T) {
	t.Parallel()
	waiting := []plan.Existing{{Name: "c", Created: now.Add(time.Minute)}, {Name: "b", Created: now}, {Name: "a", Created: now}}
	tests := map[string]struct {
		name    string
		limit   int
		running []string
		want    string
	}{
		"there is room":             {"a", 1, nil, ""},
		"room for more than one":    {"c", 4, []string{"x"}, ""},
		"the next":                  {"a", 1, []string{"x"}, "it waits for a slot: 1 build running, this one is next; at most 1 run at a time"},
		"the last":                  {"c", 2, []string{"x", "y"}, "it waits for a slot: 2 builds running and 2 before it; at most 2 run at a time"},
		"one that is not in a line": {"z", 1, []string{"x"}, ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			assert.Equal(t, tt.want, plan.Queue(tt.name, tt.limit, tt.running, waiting))
		})
	}
}

func TestFailureMessagesEndWithARemedy(t *testing.T) {
	t.Parallel()
	const rebuild = "annotate the MachineOSConfig with machineconfiguration.openshift.io/rebuild"
	const correct = "correct what failed, which starts a new build; if the cause was elsewhere, fix that, then, " + rebuild
	for name, tt := range map[string]struct{ reason, message, want string }{
		"a step of the build": {mcfgv1.ReasonBuildFailed, "exit status 1", `build "worker-b" failed: exit status 1; ` + correct},
		"a RUN line with output": {
			mcfgv1.ReasonBuildFailed, "exit status 1\nerror: no package", "build \"worker-b\" failed: exit status 1\nerror: no package\n" + correct,
		},
		"the registry": {mcfgv1.ReasonImageNotFound, "no such image", `build "worker-b" failed: no such image; once the cause is gone, ` + rebuild},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := state(with(build("worker-b", failed, func(b *plan.Existing) { b.Reason, b.Message = tt.reason, tt.message })))
			assert.Equal(t, tt.want, plan.Decide(s).Message)
		})
	}
}

func TestHowAnImageIsMade(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		making plan.ImagePlanInput
		want   plan.Action
	}{
		"configuration alone":                   {plan.ImagePlanInput{}, plan.Append},
		"the registry has the image":            {plan.ImagePlanInput{InRegistry: true, HasContent: true}, plan.Reuse},
		"a rebuild takes nothing":               {plan.ImagePlanInput{InRegistry: true, PreBuilt: "i", Rebuild: true}, plan.Append},
		"the installer's image":                 {plan.ImagePlanInput{PreBuilt: "i", HasContent: true}, plan.Reuse},
		"content that was built":                {plan.ImagePlanInput{HasContent: true, HasContentImage: true}, plan.Append},
		"content that has to be built":          {plan.ImagePlanInput{HasContent: true, Backend: true}, plan.Build},
		"content that nothing here could build": {plan.ImagePlanInput{HasContent: true}, plan.Stop},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			step := plan.Choose(&tt.making)
			assert.Equal(t, tt.want, step.Action)
			assert.NotEmpty(t, step.Reason)
			assert.NotEmpty(t, step.Message)
		})
	}
}
