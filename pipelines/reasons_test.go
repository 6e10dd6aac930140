package pipelines

import (
	"testing"

	"github.com/stretchr/testify/assert"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/builder/backend"
	"github.com/layerwright/layerwright/internal/fault"
)

// TestMeaningOfReasons has reasons of runs and of tasks, which mean the same in both.
func TestMeaningOfReasons(t *testing.T) {
	t.Parallel()
	for reason, want := range map[string]*backend.Failure{
		"PipelineRunTimeout":       {Class: fault.Transient, Reason: mcfgv1.ReasonTimedOut, Message: "it; raise spec.buildTimeout of the MachineOSConfig, or find out what takes so long"},
		"TaskRunTimeout":           {Class: fault.Transient, Reason: mcfgv1.ReasonTimedOut, Message: "it; raise spec.buildTimeout of the MachineOSConfig, or find out what takes so long"},
		"CouldntGetTask":           {Class: fault.Terminal, Reason: mcfgv1.ReasonInvalid, Message: "it; correct the Pipeline or its Tasks"},
		"TaskRunValidationFailed":  {Class: fault.Terminal, Reason: mcfgv1.ReasonInvalid, Message: "it; correct the Pipeline or its Tasks"},
		"TaskRunResolutionFailed":  {Class: fault.Terminal, Reason: mcfgv1.ReasonInvalid, Message: "it; correct the Pipeline or its Tasks"},
		"PipelineRunCouldntCancel": {Class: fault.Transient, Reason: mcfgv1.ReasonRetryingBuild, Message: "it"},
		"PodEvicted":               {Class: fault.Transient, Reason: mcfgv1.ReasonRetryingBuild, Message: "it"},
		"TaskRunImagePullFailed":   {Class: fault.Transient, Reason: mcfgv1.ReasonRetryingBuild, Message: "it"},
		"OfATektonToCome":          {Class: fault.Transient, Reason: mcfgv1.ReasonRetryingBuild, Message: "it"},
	} {
		assert.Equal(t, want, meaningOf(reason, "it"), reason)
	}
}
