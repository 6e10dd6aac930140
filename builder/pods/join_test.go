package pods

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/builder/backend"
	"github.com/layerwright/layerwright/internal/fault"
)

// TestJoin has what the architectures of a build make together.
func TestJoin(t *testing.T) {
	t.Parallel()
	amd, arm := mcfgv1.ArchitectureAMD64, mcfgv1.ArchitectureARM64
	one, both := []mcfgv1.Architecture{amd}, []mcfgv1.Architecture{amd, arm}
	is := func(architecture mcfgv1.Architecture, phase backend.Phase) ArchitectureState {
		o := ArchitectureState{Architecture: architecture, Phase: phase, Isolation: "Capabilities"}
		switch phase {
		case backend.Succeeded:
			o.Image, o.Builder, o.Ended = "x@sha256:"+architecture.OCI(), builderImage, t0.Add(time.Minute)
		case backend.Failed:
			o.Failure, o.Ended = backend.NewFailure(fault.Terminal, mcfgv1.ReasonBuildFailed, "line 7"), t0.Add(2*time.Minute)
		case backend.Running:
			o.Message, o.After = "step build", 5*time.Second
		case backend.Pending, backend.Absent:
		}
		return o
	}
	waiting := func(architecture mcfgv1.Architecture) ArchitectureState {
		o := is(architecture, backend.Pending)
		o.Wait(mcfgv1.ReasonWaiting, "no node")
		return o
	}
	retrying := func(architecture mcfgv1.Architecture) ArchitectureState {
		o := is(architecture, backend.Running)
		o.Failure = backend.NewFailure(fault.Transient, mcfgv1.ReasonRetryingBuild, "it was killed")
		return o
	}
	build := func(architecture mcfgv1.Architecture, state mcfgv1.ArchitectureBuildState, message string) mcfgv1.ArchitectureBuild {
		b := mcfgv1.ArchitectureBuild{Architecture: architecture, State: state, Message: message}
		if state == mcfgv1.ArchitectureSucceeded {
			b.DigestedImagePushSpec = mcfgv1.ImageDigestFormat("x@sha256:" + architecture.OCI())
		}
		return b
	}
	for name, tt := range map[string]struct {
		ones    []ArchitectureState
		all     []mcfgv1.Architecture
		phase   backend.Phase
		failure *backend.Failure
		message string
		after   time.Duration
		builds  []mcfgv1.ArchitectureBuild
	}{
		"nothing is there":         {nil, both, backend.Absent, nil, "", 0, nil},
		"one of two is not there":  {[]ArchitectureState{is(amd, backend.Running)}, both, backend.Absent, nil, "", 0, nil},
		"one of one runs":          {[]ArchitectureState{is(amd, backend.Running)}, one, backend.Running, nil, "step build", 5 * time.Second, nil},
		"one of one has succeeded": {[]ArchitectureState{is(amd, backend.Succeeded)}, one, backend.Succeeded, nil, "", 0, nil},
		"one of one failed":        {[]ArchitectureState{is(amd, backend.Failed)}, one, backend.Failed, &backend.Failure{Class: fault.Terminal, Reason: mcfgv1.ReasonBuildFailed, Message: "line 7"}, "", 0, nil},
		"all wait": {
			[]ArchitectureState{waiting(amd), waiting(arm)},
			both, backend.Pending,
			&backend.Failure{Class: fault.Waiting, Reason: mcfgv1.ReasonWaiting, Message: "no node", Architecture: amd}, "", WhileWaiting,
			[]mcfgv1.ArchitectureBuild{build(amd, mcfgv1.ArchitecturePending, "no node"), build(arm, mcfgv1.ArchitecturePending, "no node")},
		},
		"one is tried again, one waits": {
			[]ArchitectureState{retrying(amd), waiting(arm)},
			both, backend.Running,
			&backend.Failure{Class: fault.Waiting, Reason: mcfgv1.ReasonWaiting, Message: "no node", Architecture: arm}, "amd64: step build", 5 * time.Second,
			[]mcfgv1.ArchitectureBuild{build(amd, mcfgv1.ArchitectureBuilding, "it was killed"), build(arm, mcfgv1.ArchitecturePending, "no node")},
		},
		"one has succeeded, one waits to run": {
			[]ArchitectureState{is(amd, backend.Succeeded), is(arm, backend.Pending)},
			both, backend.Running, nil, "", 0,
			[]mcfgv1.ArchitectureBuild{build(amd, mcfgv1.ArchitectureSucceeded, ""), build(arm, mcfgv1.ArchitecturePending, "")},
		},
		"both have succeeded": {
			[]ArchitectureState{is(amd, backend.Succeeded), is(arm, backend.Succeeded)},
			both, backend.Succeeded, nil, "", 0,
			[]mcfgv1.ArchitectureBuild{build(amd, mcfgv1.ArchitectureSucceeded, ""), build(arm, mcfgv1.ArchitectureSucceeded, "")},
		},
		"one waits, one failed": {
			[]ArchitectureState{waiting(amd), is(arm, backend.Failed)},
			both, backend.Failed,
			&backend.Failure{Class: fault.Terminal, Reason: mcfgv1.ReasonBuildFailed, Message: "line 7", Architecture: arm}, "", 0,
			[]mcfgv1.ArchitectureBuild{
				build(amd, mcfgv1.ArchitectureFailed, "it was ended because the build for another architecture failed"), build(arm, mcfgv1.ArchitectureFailed, "line 7"),
			},
		},
		"one failed, and the other was ended for it": {
			[]ArchitectureState{is(arm, backend.Failed)},
			both, backend.Failed,
			&backend.Failure{Class: fault.Terminal, Reason: mcfgv1.ReasonBuildFailed, Message: "line 7", Architecture: arm}, "", 0,
			[]mcfgv1.ArchitectureBuild{build(arm, mcfgv1.ArchitectureFailed, "line 7")},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			state := Join(tt.ones, tt.all)
			assert.Equal(t, tt.phase, state.Phase)
			assert.Equal(t, tt.failure, state.Failure)
			assert.Equal(t, tt.message, state.Message)
			assert.Equal(t, tt.after, state.After)
			assert.Equal(t, tt.builds, state.Architectures)
			hasEnded := tt.phase == backend.Succeeded || tt.phase == backend.Failed
			assert.Equal(t, hasEnded, !state.Ended.IsZero())
			isOne := tt.phase == backend.Succeeded && len(tt.all) == 1
			assert.Equal(t, isOne, state.Image != "", "of several, each has its own")
			assert.Equal(t, tt.phase == backend.Succeeded, state.BuilderImage == builderImage)
		})
	}
}

func TestJoinedParts(t *testing.T) {
	t.Parallel()
	ones := []ArchitectureState{
		{Architecture: mcfgv1.ArchitectureAMD64, Phase: backend.Running, Isolation: "Capabilities", Related: []string{"trust", "b"}, Started: t0.Add(time.Minute), After: time.Minute},
		{Architecture: mcfgv1.ArchitectureARM64, Phase: backend.Running, Isolation: "Capabilities", Related: []string{"a", "trust"}, Started: t0, After: time.Second, IsIncomplete: true},
	}
	state := Join(ones, []mcfgv1.Architecture{mcfgv1.ArchitectureAMD64, mcfgv1.ArchitectureARM64})
	assert.Equal(t, []string{"a", "b", "trust"}, state.Related, "what both have is named once")
	assert.Equal(t, []string{"amd64: isolation: Capabilities", "arm64: isolation: Capabilities"}, state.Notes)
	assert.Equal(t, t0, state.Started, "when the first began")
	assert.Equal(t, time.Second, state.After, "what comes first")
	assert.True(t, state.IsIncomplete)
}
