//go:build cgo && containers_image_openpgp && exclude_graphdriver_btrfs

package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"time"

	"go.podman.io/storage/pkg/unshare"
	"k8s.io/utils/clock"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/builder/backend"
	"github.com/layerwright/layerwright/builder/engine/report"
)

// Paths are where a step finds things, and where it leaves them.
type Paths struct {
	// Instructions is the file with the Instructions.
	Instructions string
	// Context is the folder with the files that the Containerfile copies. It may be missing.
	Context string
	// Credentials is the folder with the secret. It is missing where registries are used
	// anonymously.
	Credentials string
	// BaseCredentials is the folder with the pull secret in Push. It may be missing.
	BaseCredentials string
	// Inputs is the folder with a folder for each input. It may be missing.
	Inputs string
	// Trust is the folder with additional certificate authorities. It may be missing.
	Trust string
	// Registries and Policy are files of the pool's configuration. They may be missing.
	Registries, Policy string
	// Work is the folder with the store, which Fetch, Build and Export share.
	Work string
	// Fetched is the folder that Fetch writes for Push.
	Fetched string
	// Layout is the folder that Export writes for Push.
	Layout string
	// Report is the file for the Report.
	Report string
}

// DefaultPaths are those of the contract with the backends.
func DefaultPaths() Paths {
	return Paths{
		Instructions:    backend.InstructionsFile,
		Context:         backend.ContextDir,
		Credentials:     backend.CredentialsDir,
		BaseCredentials: backend.BaseCredentialsDir,
		Inputs:          backend.InputsDir,
		Trust:           backend.TrustDir,
		Registries:      backend.RegistriesFile,
		Policy:          backend.PolicyFile,
		Work:            backend.WorkDir,
		Fetched:         backend.FetchedDir,
		Layout:          backend.LayoutDir,
		Report:          backend.ReportFile,
	}
}

// store, runtime and temporary are the folders of the store: what lasts, what is about mounts, and
// what is thrown away.
func (p Paths) store() string     { return filepath.Join(p.Work, "storage") }
func (p Paths) runtime() string   { return filepath.Join(p.Work, "run") }
func (p Paths) temporary() string { return filepath.Join(p.Work, "tmp") }

// blobs is the folder that remembers which registry has which layer. It is written in Fetch and
// read in Push. RUN lines cannot write there: they could name another layer of the registry, which
// the push secret may mount.
func (p Paths) blobs() string { return filepath.Join(p.Fetched, "blobs") }

// of are the paths of a step. Push does not see the store: it works in the folder that only Fetch
// and Push have.
func (p Paths) of(step backend.Step) Paths {
	if step == backend.Push {
		p.Work = p.Fetched
	}
	return p
}

// Options are what a step needs beside its instructions.
type Options struct {
	Paths Paths
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

func (o Options) withDefaults() Options {
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

// Run carries out a step and leaves its report, whatever happens. It returns the exit code of the
// process. The process must have been prepared with Prepare.
func Run(ctx context.Context, step backend.Step, options Options) int {
	options.Paths = options.Paths.of(step)
	r := &run{Options: options.withDefaults(), step: step, report: &backend.Report{Step: step}}
	r.secrets = r.Paths.secrets()
	r.output = report.NewOutput(r.secrets.Writer(r.Stdout), step, r.Clock)
	started := r.Clock.Now()
	err := r.carryOut(ctx)
	r.report.Took = r.Clock.Since(started).Milliseconds()
	if err != nil {
		r.report.Failure = r.secrets.FailureOf(r.interrupted(ctx, err))
	}
	people := r.output.Lines()
	_, _ = fmt.Fprintln(people, summary(r.report))
	if err := report.Write(r.Paths.Report, r.report); err != nil {
		_, _ = fmt.Fprintln(people, err)
		return backend.ExitInfrastructure
	}
	return report.ExitCode(r.report.Failure)
}

// interrupted prefers the end of the step to whatever failed because of it.
func (r *run) interrupted(ctx context.Context, err error) error {
	if ctx.Err() == nil {
		return err
	}
	return report.NewInterrupted(r.output.Now(), fmt.Errorf("%w while it was in step %s", context.Cause(ctx), r.step))
}

// summary is for whoever reads the log.
func summary(r *backend.Report) string {
	if f := r.Failure; f != nil {
		return fmt.Sprintf("%s failed after %s (%s, %s): %s", r.Step, r.Duration(), f.Class, f.Reason, f.Message)
	}
	return strings.TrimSpace(fmt.Sprintf("%s took %s: %d layers, %d bytes %s", r.Step, r.Duration(), r.Layers, r.Bytes, r.Image))
}

// carryOut is the step itself. A panic is an error like others, with its stack in the log.
func (r *run) carryOut(ctx context.Context) (err error) {
	defer r.recovered(&err)
	if unshare.IsRootless() {
		r.note("runs in a user namespace")
	}
	if r.Paths, err = r.Paths.verified(os.Getenv(backend.ExpectedVariable)); err != nil {
		return err
	}
	if r.instructions, err = readInstructions(r.Paths.Instructions); err != nil {
		return err
	}
	switch r.step { //nolint:exhaustive // the others need nothing here
	case backend.Fetch:
		return r.fetch(ctx)
	case backend.Build:
		return r.build(ctx)
	case backend.Export:
		return r.export(ctx)
	case backend.Push:
		return r.push(ctx)
	}
	return report.NewAdmin(mcfgv1.ReasonInvalid, fmt.Errorf("there is no step %q", r.step))
}

// recovered makes a panic an error. It is to be deferred.
func (r *run) recovered(err *error) {
	if value := recover(); value != nil {
		people := r.output.Lines()
		_, _ = fmt.Fprintf(people, "panic: %v\n%s\n", value, debug.Stack())
		*err = report.Panicked(value)
	}
}

// makeFolders makes what is thrown away anew, and what lasts where it is missing.
func (p Paths) makeFolders(step backend.Step) error {
	if step == backend.Fetch {
		if err := p.forgetOldStore(); err != nil {
			return err
		}
	}
	old := []string{p.temporary()}
	if step == backend.Export { // RUN lines could write what Build knew of mounts
		old = append(old, p.runtime())
	}
	for _, dir := range old {
		if err := os.RemoveAll(dir); err != nil {
			return fmt.Errorf("emptying the folder for temporary files: %w", err)
		}
	}
	folders := []string{p.temporary()}
	switch step { //nolint:exhaustive // the others need nothing here
	case backend.Fetch:
		folders = append(folders, p.store(), p.runtime(), p.blobs())
	case backend.Build:
		folders = append(folders, p.store(), p.runtime())
	case backend.Export:
		folders = append(folders, p.store(), p.runtime(), p.Layout)
	case backend.Push:
		folders = append(folders, p.blobs())
	}
	for _, dir := range folders {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return fmt.Errorf("making a folder of step %s: %w", step, err)
		}
	}
	return nil
}

func readInstructions(file string) (*backend.Instructions, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("reading the instructions: %w", err)
	}
	instructions := &backend.Instructions{}
	if err := json.Unmarshal(text, instructions); err != nil {
		return nil, report.NewAdmin(mcfgv1.ReasonInvalid, fmt.Errorf("reading the instructions: %w", err))
	}
	if instructions.Containerfile == "" || instructions.Target == "" {
		return nil, report.NewAdmin(mcfgv1.ReasonInvalid, errors.New("reading the instructions: containerfile or target is missing"))
	}
	return instructions, nil
}
