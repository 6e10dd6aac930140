package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/layerwright/layerwright/view"
)

// Exit codes, as the package comment promises them.
const (
	exitOK = iota
	exitFailure
	exitUsage
	exitHeld
	exitDegraded
	exitTimedOut
)

// failedError marks an error of the work itself; every other error that reaches execute is about
// the command line.
type failedError struct{ err error }

func (e *failedError) Error() string { return e.err.Error() }
func (e *failedError) Unwrap() error { return e.err }
func (*failedError) exitCode() int   { return exitFailure }

// failed is the error of a command's work, with its own exit code where it has one.
func failed(err error) error {
	var ended interface{ exitCode() int }
	if err == nil || errors.As(err, &ended) {
		return err
	}
	return &failedError{err}
}

// execute runs one command line and returns the process's exit code. An error becomes exactly one
// line on stderr.
func execute(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	root := newRootCommand()
	root.SetArgs(append([]string{}, args...)) // never nil: cobra would read os.Args instead
	root.SetOut(stdout)
	root.SetErr(stderr)

	err := root.ExecuteContext(ctx)
	if err == nil {
		return exitOK
	}
	text := err.Error()
	if apierrors.IsForbidden(err) && strings.Contains(text, " cannot ") { // as the API server says it of rights
		text += "; an administrator gives the right with a ClusterRole"
	}
	_, _ = fmt.Fprintf(stderr, "layerwright: %s\n", oneLine(text))
	var ended interface{ exitCode() int }
	if errors.As(err, &ended) {
		return ended.exitCode()
	}
	return exitUsage
}

func oneLine(message string) string {
	return view.Visible(strings.Join(strings.FieldsFunc(message, func(r rune) bool { return r == '\n' || r == '\r' }), "; "))
}

// newRootCommand has all commands; with the build tag "client", those that need no cluster.
func newRootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "layerwright",
		Short: "Builds and rolls out layered operating-system images from inside a Kubernetes cluster",
		Long: `Layerwright joins a pool's base image, its MachineConfigs and your Containerfile into one signed
operating-system image, and moves the pool's nodes to it one safe step at a time.

The controller is what runs in the cluster; deploy/ holds the manifests that start it. What is about files needs no cluster, nor do
"build" and "streams" where files or images are named; the other commands use your kubeconfig.`,
		Example: clusterExample + `  # How are all pools, and what do they wait for?
  layerwright status

  # Say which image a folder of MachineConfigs means, without a cluster
  layerwright render -f machineconfigs/

  # Say which build this is
  layerwright version`,
		SilenceErrors: true,
		SilenceUsage:  true,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	if plugin, is := strings.CutPrefix(filepath.Base(os.Args[0]), "kubectl-"); is {
		root.Annotations = map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl " + strings.TrimSuffix(plugin, ".exe")}
	}
	root.Args = knownCommand
	root.CompletionOptions.HiddenDefaultCmd = true // archives of releases have what it prints
	root.AddCommand(clusterCommands()...)
	for _, g := range commandGroups() {
		root.AddGroup(&cobra.Group{ID: g.title, Title: g.title})
		for _, command := range g.commands {
			command.GroupID = g.title
			root.AddCommand(command)
		}
	}
	root.AddCommand(newVersionCommand())
	completeChoices(root)
	return root
}

// commandGroup are commands under one title of the help.
type commandGroup struct {
	title    string
	commands []*cobra.Command
}

func commandGroups() []commandGroup {
	return []commandGroup{
		{"Commands that show how a cluster is:", []*cobra.Command{
			newStatusCommand(), newLogsCommand(), newImagesCommand(), newExplainCommand(), newDiffCommand(), newVerifyCommand(),
			newBootImagesCommand(), newStreamsCommand(), newCheckCommand(), newReportCommand(),
		}},
		{"Commands that steer it:", []*cobra.Command{newBuildCommand(), newRolloutCommand(), newMigrateCommand()}},
		{"Commands for files:", []*cobra.Command{newRenderCommand(), newLintCommand(), newTrialCommand(), newExportCommand()}},
	}
}

// knownCommand says which commands there are when the first word is none of them.
func knownCommand(root *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	var known []string
	for _, c := range root.Commands() {
		if c.IsAvailableCommand() {
			known = append(known, c.Name())
		}
	}
	return fmt.Errorf("unknown command %q: the commands are %s", args[0], strings.Join(known, ", "))
}
