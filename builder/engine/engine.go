//go:build cgo && containers_image_openpgp && exclude_graphdriver_btrfs

package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"

	"go.podman.io/storage/pkg/unshare"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/builder/backend"
	"github.com/layerwright/layerwright/builder/engine/report"
)

// Run carries out a step and leaves its report, whatever happens. It returns the exit code of the
// process. The process must have been prepared with Prepare.
func Run(ctx context.Context, step backend.Step, options Options) int {
	options.Paths = options.Paths.Of(step)
	r := &run{Options: options.WithDefaults(), step: step, report: &backend.Report{Step: step}}
	r.secrets = r.Paths.Secrets()
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
	if r.Paths, err = r.Paths.Verified(os.Getenv(backend.ExpectedVariable)); err != nil {
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
