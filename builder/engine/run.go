//go:build cgo && containers_image_openpgp && exclude_graphdriver_btrfs

package engine

import (
	"fmt"
	"io"
	"runtime/debug"
	"time"

	"k8s.io/utils/clock"

	"github.com/layerwright/layerwright/builder/backend"
	"github.com/layerwright/layerwright/builder/engine/folders"
	"github.com/layerwright/layerwright/builder/engine/report"
)

// Options are what a step needs beside its instructions.
type Options struct {
	Paths folders.Paths
	// Stdout receives progress, and what RUN lines write.
	Stdout io.Writer
	// Patience is how long a registry may send and take nothing before the attempt counts as
	// failed; zero is 5 minutes.
	Patience time.Duration
	// Pause is the time before the second attempt at a registry; it doubles with each; zero is 2
	// seconds.
	Pause time.Duration
	// Grace is how long the step may take to end after it was told to; zero is 20 seconds, less
	// than the 30 that a pod has by default, so that there is time for a report.
	Grace time.Duration
	// Clock is for durations; nil is the real one.
	Clock clock.WithTicker
}

// Defaults of Options.
const (
	defaultPatience = 5 * time.Minute
	defaultPause    = 2 * time.Second
	defaultGrace    = 20 * time.Second
)

// WithDefaults has a value for all that may be left out.
func (o Options) WithDefaults() Options {
	if o.Patience == 0 {
		o.Patience = defaultPatience
	}
	if o.Pause == 0 {
		o.Pause = defaultPause
	}
	if o.Grace == 0 {
		o.Grace = defaultGrace
	}
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	if o.Stdout == nil {
		o.Stdout = io.Discard
	}
	return o
}

// run is one step being carried out.
type run struct {
	Options
	step         backend.Step
	instructions *backend.Instructions
	output       *report.Output
	report       *backend.Report
	secrets      report.Secrets
}

// recovered makes a panic an error. It is to be deferred.
func (r *run) recovered(err *error) {
	if value := recover(); value != nil {
		people := r.output.Lines()
		_, _ = fmt.Fprintf(people, "panic: %v\n%s\n", value, debug.Stack())
		*err = report.Panicked(value)
	}
}

// note adds a fact to the report.
func (r *run) note(text string) { r.report.Notes = append(r.report.Notes, text) }
