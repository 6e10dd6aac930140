package assembly

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"time"

	"k8s.io/utils/clock"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/builder/backend"
	"github.com/layerwright/layerwright/builder/engine/report"
	"github.com/layerwright/layerwright/internal/fault"
	"github.com/layerwright/layerwright/internal/registry"
	"github.com/layerwright/layerwright/internal/registry/dockerconfig"
	"github.com/layerwright/layerwright/internal/registry/mirrors"
)

// Command is the command line of both steps.
type Command struct {
	Options
	// PullCredentials and PushCredentials are folders with secrets. They may be missing.
	PullCredentials, PushCredentials string
	// Registries is registries.conf of the pool. It may be missing.
	Registries string
	// Report is the file for the report.
	Report string
}

// patience is how long preflight asks registries that do not answer.
const patience = 30 * time.Second

// Main does a step and leaves its report. It returns the exit code.
func (c *Command) Main(ctx context.Context, step backend.Step, out io.Writer) int {
	c.Clock, c.Expected = clock.RealClock{}, os.Getenv(backend.ExpectedVariable)
	said := &backend.Report{Step: step}
	started := c.Clock.Now()
	if step == backend.Preflight {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, patience)
		defer cancel()
	}
	err := c.run(ctx, step, said)
	said.Took = c.Clock.Since(started).Milliseconds()
	if err != nil {
		said.Failure = report.FailureOf(err)
	}
	if step == backend.Preflight && err != nil && said.Failure.Class != fault.Terminal { // the build asks for itself
		said.Notes, said.Failure = []string{"preflight could not ask: " + said.Failure.Message}, nil
		_, _ = fmt.Fprintln(out, said.Notes[0])
	}
	if said.Failure != nil {
		_, _ = fmt.Fprintf(out, "%s failed after %s: %s\n", step, said.Duration().Round(time.Millisecond), said.Failure.Message)
	} else {
		_, _ = fmt.Fprintf(out, "%s took %s %s\n", step, said.Duration().Round(time.Millisecond), said.Image)
	}
	if err := report.Write(c.Report, said); err != nil {
		_, _ = fmt.Fprintln(out, err)
		return backend.ExitInfrastructure
	}
	return report.ExitCode(said.Failure)
}

func (c *Command) run(ctx context.Context, step backend.Step, said *backend.Report) (err error) {
	options, err := c.registries()
	if err != nil {
		return err
	}
	if c.Pull, err = connect(c.PullCredentials, options); err != nil {
		return err
	}
	if c.Pull, err = c.throughMirrors(); err != nil {
		return err
	}
	if c.Push, err = connect(c.PushCredentials, options); err != nil {
		return err
	}
	if step == backend.Preflight {
		return Preflight(ctx, &c.Options)
	}
	said.Image, err = Assemble(ctx, &c.Options)
	return err
}

// registries are what the instructions allow registries.
func (c *Command) registries() (options registry.Options, err error) {
	all, err := c.instructions()
	for i := range all {
		options.PlainHTTP = append(options.PlainHTTP, all[i].PlainHTTP...)
		options.Pointers.PrivateStorage = append(options.Pointers.PrivateStorage, all[i].PrivateStorage...)
	}
	return options, err
}

// throughMirrors is the client that reads as the pool's nodes and the build do.
func (c *Command) throughMirrors() (*registry.Client, error) {
	text, err := os.ReadFile(c.Registries)
	if errors.Is(err, fs.ErrNotExist) {
		return c.Pull, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading registries.conf of the pool: %w", err)
	}
	rules, err := mirrors.ParseConf(text)
	if err != nil {
		return nil, fault.NewTerminal(mcfgv1.ReasonInvalid, fmt.Errorf("reading registries.conf of the pool: %w", err))
	}
	return c.Pull.Through(mirrors.Table{rules}), nil
}

func connect(folder string, options registry.Options) (*registry.Client, error) {
	store, err := dockerconfig.ReadFolder(folder)
	if err != nil {
		return nil, err
	}
	if store != nil {
		options.Keychain = store
	}
	return registry.New(options), nil
}
