package builds

import (
	"time"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/internal/status"
)

// shown is what a build's conditions say now. The stage is what was done so far; it is the one
// thing that a reconcile takes from there, and each step can be done twice.
func shown(build *mcfgv1.MachineOSBuild) status.Build {
	show := status.Build{Stage: status.BuildStageOf(build.Status.Conditions), Generation: build.Generation}
	switch show.Stage {
	case mcfgv1.BuildStagePending:
		show.Reason = mcfgv1.ReasonPending
	case mcfgv1.BuildStagePrepared:
		show.Reason, show.Message = mcfgv1.ReasonPrepared, "its content is about to be built"
	case mcfgv1.BuildStageBuilding:
		show.Reason, show.Message = mcfgv1.ReasonBuilding, "the image is being made"
	default:
	}
	return show
}

// setStatus computes what a reconcile that ended with err says of a build.
func (s *scope) setStatus(err error) {
	now := status.NotBefore(s.options.Clock.Now(), s.build.Status.Conditions)
	show := s.show.WithError(err)
	st := &s.build.Status
	times := status.BuildTimes{Start: st.BuildStart, End: st.BuildEnd}
	if show.Stage >= mcfgv1.BuildStageBuilding {
		begin := now
		if !s.began.IsZero() && s.began.Before(now) {
			begin = s.began
		}
		times = times.Started(begin)
	}
	if show.Stage.IsFinal() {
		times = times.Ended(now)
		st.Duration = times.End.Sub(times.Start.Time).Round(time.Second).String()
	}
	st.BuildStart, st.BuildEnd = times.Start, times.End
	conditions := s.build.GetConditions()
	status.SetBuild(&conditions, now, show)
	s.build.SetConditions(conditions)
}
