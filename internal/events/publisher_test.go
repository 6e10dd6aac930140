package events

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/events"
)

func TestPublish(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		event Event
		want  string
	}{
		"generated": {RenderedConfigGenerated("rendered-a-1", 3), "Normal RenderedConfigGenerated Render rendered-a-1 successfully generated from 3 MachineConfigs"},
		"first":     {RenderedConfigChanged("", "b"), "Normal RenderedConfigChanged Render The pool's configuration is b"},
		"changed":   {RenderedConfigChanged("a", "b"), "Normal RenderedConfigChanged Render The pool's configuration changed from a to b"},
		"repaired": {
			RenderedConfigRepaired("a"),
			"Warning RenderedConfigRepaired Render a was edited and has been restored: do not edit rendered MachineConfigs, write another MachineConfig that the pool selects",
		},
		"degraded":           {RenderDegraded("InvalidMachineConfig", "line 3"), "Warning InvalidMachineConfig Render line 3"},
		"a verb in a note":   {RenderDegraded("InvalidMachineConfig", "100%s"), "Warning InvalidMachineConfig Render 100%s"},
		"a secret in a note": {RenderDegraded("X", "http://a:b@c"), "Warning X Render http://REDACTED@c"},
		"recovered":          {RenderRecovered(), "Normal RenderRecovered Render The pool's MachineConfigs can be rendered again"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			recorder := events.NewFakeRecorder(1)
			recorder.Verbose = true
			NewPublisher(recorder).Publish(&corev1.Node{}, tt.event)
			assert.Equal(t, tt.want, strings.TrimSpace(<-recorder.Events))
		})
	}
}

func TestPublishNowhere(t *testing.T) {
	t.Parallel()
	assert.NotPanics(t, func() { Publisher{}.Publish(&corev1.Node{}, RenderRecovered()) })
}

func TestNotesFitTheAPI(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"short": "a", "exactly": strings.Repeat("a", maxNote), "long": strings.Repeat("a", 5000), "long in runes of two bytes": strings.Repeat("ä", 900),
		"long in runes of four bytes": "x" + strings.Repeat("\U0001F600", 900),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := note(text)
			assert.LessOrEqual(t, len(got), maxNote)
			assert.Greater(t, len(got)+len(text), min(len(text), maxNote-8)+len(text)-1, "no more is cut than has to be")
			assert.True(t, utf8.ValidString(got))
		})
	}
}

func TestBuildEvents(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		event Event
		want  string
	}{
		{BuildStarted(""), "Normal BuildStarted Build The build has begun"},
		{BuildStarted("file /etc/a changed"), "Normal BuildStarted Build The build has begun: file /etc/a changed"},
		{BuildCompleted("r/a@sha256:1", "appended"), "Normal BuildCompleted Build The image is r/a@sha256:1: appended"},
		{BuildFailed("PushDenied", "may not"), "Warning BuildFailed Build PushDenied: may not"},
		{BuildInterrupted("superseded"), "Normal BuildInterrupted Build superseded"},
		{BuildDeleted("b", "old"), "Normal BuildDeleted Build Build b is removed: old"},
		{ImageKept("r/a@sha256:1"), "Normal ImageKept Build The image r/a@sha256:1 stays in the registry: it is in use"},
		{ImageNotDeleted("r/a@sha256:1", "403"), "Warning ImageNotDeleted Build The image r/a@sha256:1 may still be in the registry, remove it there: 403"},
		{
			PoolTagNotMoved("worker", "r/a@sha256:1", "403"),
			`Warning PoolTagNotMoved Build The tag "worker" could not be moved to the image r/a@sha256:1: 403; it is tried again, and nodes do not need the tag`,
		},
		{RebuildRequested("b"), "Normal RebuildRequested Build The image is built again, as the annotation requests: build b"},
		{ConfigReconcileFailed("Invalid", "x"), "Warning ConfigReconcileFailed Build Invalid: x"},
		{ConfigReconciled(), "Normal ConfigReconciled Build The problem is solved"},
	} {
		t.Run(tt.event.Reason, func(t *testing.T) {
			t.Parallel()
			recorder := events.NewFakeRecorder(1)
			recorder.Verbose = true
			NewPublisher(recorder).Publish(&corev1.Node{}, tt.event)
			assert.Equal(t, tt.want, strings.TrimSpace(<-recorder.Events))
		})
	}
}
