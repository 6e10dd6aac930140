package status

import (
	"cmp"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/internal/fault"
)

// The published condition types of a MachineOSBuild.
const (
	BuildPrepared    = mcfgv1.BuildPrepared
	BuildBuilding    = mcfgv1.BuildBuilding
	BuildFailed      = mcfgv1.BuildFailed
	BuildInterrupted = mcfgv1.BuildInterrupted
	BuildSucceeded   = mcfgv1.BuildSucceeded
)

// MaxBuildConditions is the number of conditions that the published API allows on a MachineOSBuild.
// The five above, Ready, Reconciling and Stalled are exactly as many: no other type fits.
const MaxBuildConditions = 8

// buildTypes gives the condition of each stage, in the order of the stages and of the list.
func buildTypes() []string {
	return []string{BuildPrepared, BuildBuilding, BuildFailed, BuildInterrupted, BuildSucceeded}
}

// FinalBuildTypes are the condition types of which one that is True freezes all conditions of a
// build, for Freezing.
func FinalBuildTypes() []string { return []string{BuildFailed, BuildInterrupted, BuildSucceeded} }

// Build is what the conditions of a MachineOSBuild say together.
type Build struct {
	// Stage is the one that was observed.
	Stage mcfgv1.BuildStage
	// Reason and Message explain it; the reason is the stage's own name if left out.
	Reason, Message string
	// Generation is that of the object.
	Generation int64
}

// WithError is the build after a reconcile that ended with err: a Terminal error fails the build
// for good, a Waiting one explains what the stage waits for, a Transient one says Retrying. A build
// in a final stage has nothing to add.
func (b Build) WithError(err error) Build {
	if err == nil || isUninformative(err) || b.Stage.IsFinal() {
		return b
	}
	b.Message = fault.Message(err)
	switch fault.ClassOf(err) {
	case fault.Terminal:
		b.Stage, b.Reason = mcfgv1.BuildStageFailed, fault.Reason(err)
	case fault.Waiting:
		b.Reason = cmp.Or(fault.Reason(err), ReasonWaiting)
	default:
		b.Reason = ReasonRetrying
	}
	return b
}

// BuildStageOf reads the stage back from conditions.
func BuildStageOf(conditions []metav1.Condition) mcfgv1.BuildStage {
	stage := mcfgv1.BuildStagePending
	for i, t := range buildTypes() {
		if IsTrue(conditions, t) {
			stage = max(stage, mcfgv1.BuildStage(i+1))
		}
	}
	return stage
}

// SetBuild writes all conditions of a MachineOSBuild and reports whether that changed anything.
// Exactly the condition of the stage is True, as published; before the first stage all are Unknown.
// Conditions of a final stage are never touched again, and a stage before the present one changes
// only reason and message. The reason of Ready is the name of the stage, which kubectl get shows as
// the build's state. Other condition types are dropped: there is no room for them.
func SetBuild(conditions *[]metav1.Condition, now time.Time, b Build) bool {
	present := BuildStageOf(*conditions)
	if present.IsFinal() {
		return false
	}
	b.Stage = max(b.Stage, present)
	out := slices.Clone(*conditions)
	for i, t := range buildTypes() {
		Set(&out, now, b.condition(t, mcfgv1.BuildStage(i+1)))
	}
	SetSummary(&out, now, b.Generation, b.summary())
	Find(out, Ready).Reason = b.state()
	out = arrange(out, append(buildTypes(), Ready, Reconciling, Stalled))
	changed := !slices.Equal(out, *conditions)
	*conditions = out
	return changed
}

// condition is the condition of one type, which shows the given stage.
func (b Build) condition(conditionType string, stage mcfgv1.BuildStage) metav1.Condition {
	c := metav1.Condition{Type: conditionType, Status: b.status(stage), Reason: reasonOf(b.Stage), ObservedGeneration: b.Generation}
	switch {
	case stage == max(b.Stage, mcfgv1.BuildStagePrepared): // the one that has come, or that everything waits for
		c.Reason, c.Message = b.reason(), b.Message
	case c.Status == metav1.ConditionFalse && (stage == mcfgv1.BuildStageFailed || stage == mcfgv1.BuildStageInterrupted): // which tell of trouble
		c.Reason = mcfgv1.ReasonAsExpected
	}
	return c
}

// status is the status of the condition that shows the given stage.
func (b Build) status(stage mcfgv1.BuildStage) metav1.ConditionStatus {
	if b.Stage == mcfgv1.BuildStagePending {
		return metav1.ConditionUnknown
	}
	if b.Stage == stage {
		return metav1.ConditionTrue
	}
	return metav1.ConditionFalse
}

// isUnseen reports whether nothing is known of the build at all.
func (b Build) isUnseen() bool { return b.Stage == mcfgv1.BuildStagePending && b.Reason == "" }

// state is the reason of Ready, which kubectl get shows as the build's state: the stage, while the
// condition of the stage and Reconciling or Stalled have the reason.
func (b Build) state() string {
	if b.Stage == mcfgv1.BuildStagePending && !b.isUnseen() {
		return "Pending"
	}
	return reasonOf(b.Stage)
}

func (b Build) summary() Summary {
	s := Summary{State: StateReconciling, Reason: b.reason(), Message: b.Message}
	switch {
	case b.isUnseen():
		s.State = StateNotYetObserved
	case b.Stage == mcfgv1.BuildStageFailed, b.Stage == mcfgv1.BuildStageInterrupted:
		s.State = StateStalled
	case b.Stage == mcfgv1.BuildStageSucceeded:
		s.State = StateReady
	}
	return s
}

func (b Build) reason() string { return cmp.Or(b.Reason, reasonOf(b.Stage)) }

func reasonOf(s mcfgv1.BuildStage) string {
	if types := buildTypes(); s > mcfgv1.BuildStagePending && int(s) <= len(types) {
		return types[s-1]
	}
	return ReasonNotYetObserved
}

// arrange is the conditions of the given types, in their order.
func arrange(conditions []metav1.Condition, types []string) []metav1.Condition {
	out := make([]metav1.Condition, 0, len(types))
	for _, t := range types {
		if c := Find(conditions, t); c != nil {
			out = append(out, *c)
		}
	}
	return out
}
