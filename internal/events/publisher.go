package events

import (
	"strings"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/layerwright/layerwright/internal/fault"
)

// Event is what is told about an object.
type Event struct {
	// Type is Normal or Warning.
	Type string
	// Reason is one CamelCase word that tools filter by.
	Reason string
	// Action is what the controller did, in one CamelCase word.
	Action string
	// Note is for people.
	Note string
}

// Publisher publishes events. The zero Publisher publishes nowhere.
type Publisher struct {
	recorder Recorder
}

// Recorder is the method of client-go's events.EventRecorder, whose package brings much else.
type Recorder interface {
	Eventf(regarding, related runtime.Object, eventType, reason, action, note string, args ...any)
}

// NewPublisher makes a Publisher that uses a recorder, such as that of a manager.
func NewPublisher(recorder Recorder) Publisher { return Publisher{recorder: recorder} }

// Publish publishes an event about an object. It does not wait, and an event that gets lost is no
// error.
func (p Publisher) Publish(about runtime.Object, e Event) {
	if p.recorder != nil {
		p.recorder.Eventf(about, nil, e.Type, e.Reason, e.Action, "%s", note(e.Note))
	}
}

// maxNote is the length in bytes that the API allows.
const maxNote = 1024

// note makes text fit for an event: without secrets of URLs, printable, and cut by bytes, where
// conditions are cut by runes.
func note(text string) string {
	text = fault.Clean(text)
	if len(text) <= maxNote {
		return text
	}
	const ellipsis = " ..."
	end := maxNote - len(ellipsis)
	for !utf8.RuneStart(text[end]) {
		end--
	}
	return strings.TrimSpace(text[:end]) + ellipsis
}
