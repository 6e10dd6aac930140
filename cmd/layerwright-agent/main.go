package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/layerwright/layerwright/internal/version"
)

// Exit codes, as the package comment promises them.
const (
	exitOK = iota
	exitFailure
	exitUsage
	exitMend
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // from here on a second signal ends the process at once
	os.Exit(execute(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// failedError marks an error of the work itself; every other error that reaches execute is about
// the command line.
type failedError struct{ err error }

func (e *failedError) Error() string { return e.err.Error() }
func (e *failedError) Unwrap() error { return e.err }

// execute runs one command line and returns the process's exit code. An error becomes exactly one
// line on stderr.
func execute(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	root := newRootCommand()
	root.SetArgs(append([]string{}, args...)) // never nil: cobra would read os.Args instead
	root.SetOut(stdout)
	root.SetErr(stderr)
	err := root.ExecuteContext(ctx)
	switch {
	case err == nil:
		return exitOK
	case errors.Is(err, errMend): // the report has said it
		return exitMend
	}
	_, _ = fmt.Fprintf(stderr, "layerwright-agent: %s\n", strings.Join(strings.Fields(err.Error()), " "))
	var failed *failedError
	if errors.As(err, &failed) {
		return exitFailure
	}
	return exitUsage
}

func newRootCommand() *cobra.Command {
	options := defaultOptions()
	root := &cobra.Command{
		Use:   "layerwright-agent",
		Short: "Brings one node to the image and configuration that the cluster asks for",
		Long: `layerwright-agent runs on every node, as a DaemonSet. It reads from its Node which image and which configuration
the node should have, and gets there one step at a time: stage the image, ask for a drain, apply what no image
carries, reboot, verify. bootc or rpm-ostree of the host do the work on the host's deployments.

It may be killed at any moment: a journal below ` + "/var/lib/layerwright/agent" + ` of the host says where it was.
It changes its own Node's annotations and its own MachineConfigNode's status, and nothing else in the cluster.

Metrics, /healthz and /readyz are for the node itself: they are on loopback.`,
		Example: `  # In a pod: the name of the node comes from the pod, and the host's root is mounted at /host
  layerwright-agent --node-name "$NODE_NAME"

  # On a host, as root, with readable debug logs
  layerwright-agent --node-name worker-1 --host-root / --kubeconfig agent.kubeconfig --log-format=text --log-level=debug`,
		Version:       version.Current().Version,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := options.complete(os.Getenv); err != nil {
				return err
			}
			if err := start(cmd.Context(), options, cmd.ErrOrStderr()); err != nil {
				return &failedError{err}
			}
			return nil
		},
	}
	root.CompletionOptions.DisableDefaultCmd = true // it is started by manifests, not typed by people
	root.Flags().SortFlags = false
	options.addFlags(root.Flags())
	root.AddCommand(newHostCheckCommand())
	return root
}
