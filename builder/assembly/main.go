package assembly

import (
	"context"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"k8s.io/utils/clock"

	"github.com/layerwright/layerwright/builder/backend"
	"github.com/layerwright/layerwright/builder/engine/report"
	"github.com/layerwright/layerwright/internal/registry"
	"github.com/layerwright/layerwright/internal/registry/dockerconfig"
)

// Command is the command line of both steps.
type Command struct {
	Options
	// PullCredentials and PushCredentials are folders with secrets. They may be missing.
	PullCredentials, PushCredentials string
	// Report is the file for the report.
	Report string
}

// Main does a step and leaves its report. It returns the exit code.
func (c *Command) Main(ctx context.Context, step backend.Step, out io.Writer) int {
	c.Clock, c.Expected = clock.RealClock{}, os.Getenv(backend.ExpectedVariable)
	said := &backend.Report{Step: step}
	started := c.Clock.Now()
	err := c.run(ctx, step, said)
	said.Took = c.Clock.Since(started).Milliseconds()
	if err != nil {
		said.Failure = report.FailureOf(err)
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
	plain, err := c.plainHTTP()
	if err != nil {
		return err
	}
	if c.Pull, err = connect(c.PullCredentials, plain); err != nil {
		return err
	}
	if c.Push, err = connect(c.PushCredentials, plain); err != nil {
		return err
	}
	if step == backend.Preflight {
		return Preflight(ctx, &c.Options)
	}
	said.Image, err = Assemble(ctx, &c.Options)
	return err
}

// plainHTTP are the registries that the instructions allow without TLS.
func (c *Command) plainHTTP() (hosts []string, err error) {
	all, err := c.instructions()
	for i := range all {
		hosts = append(hosts, all[i].PlainHTTP...)
	}
	return hosts, err
}

func connect(folder string, plainHTTP []string) (*registry.Client, error) {
	store, err := dockerconfig.ReadFolder(folder)
	if err != nil {
		return nil, err
	}
	var keychain authn.Keychain
	if store != nil {
		keychain = store
	}
	return registry.New(registry.Options{Keychain: keychain, PlainHTTP: plainHTTP}), nil
}
