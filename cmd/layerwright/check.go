package main

import (
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/utils/clock"

	"github.com/layerwright/layerwright/check"
	"github.com/layerwright/layerwright/internal/command"
	"github.com/layerwright/layerwright/view"
)

// toMendError is the end of a check that found something to mend.
type toMendError struct{ count int }

func (e *toMendError) Error() string { return fmt.Sprintf("%d to mend", e.count) }
func (*toMendError) exitCode() int   { return exitHeld }

func newCheckCommand() *cobra.Command {
	withPods, timeout := false, 2*time.Minute
	output := command.Choice{Value: "text", Allowed: []string{"text", "json"}}
	var cluster clusterFlags
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Say what a cluster lacks for Layerwright, before and after it is installed",
		Long: `Reads from the cluster of your kubeconfig what Layerwright needs: the API server's version, who owns the kinds, Pod Security,
admission policies, agents, user namespaces, network plugin, Tekton, clocks, and what the controller says of each
MachineOSConfig. Nothing is changed. Each finding says what it is, why it matters, and the command that mends it.

With --pods it starts pods of the builder's image in that namespace, one on each of at most 20 nodes that take builds and two
beside them, and removes them: whether pods may push to the registries of MachineOSConfigs, whether user namespaces work, whether NetworkPolicies are
enforced, and what nodes' clocks say. The pods have no rights, no token and no capability, and those on nodes read push secrets.

Exit codes: 0 if nothing has to be mended, 3 if something has to, 1 if the cluster could not be read, 2 if the command line is wrong.
What your rights don't show is "unknown", and doesn't fail.`,
		Example: `  layerwright check
  layerwright check --pods
  layerwright check -o json | jq -r '.[] | select(.state == "mend").run'`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			config, err := cluster.impatient()
			if err != nil {
				return &failedError{err}
			}
			facts, err := check.Gather(cmd.Context(), config, *cluster.Namespace, clock.RealClock{})
			if err != nil {
				return &failedError{err}
			}
			if withPods {
				if err := check.GatherPods(cmd.Context(), config, facts, clock.RealClock{}, timeout); err != nil {
					return &failedError{err}
				}
			}
			return reportFindings(cmd.OutOrStdout(), check.Of(facts), output.Value)
		},
	}
	cmd.Flags().SortFlags = false
	cmd.Flags().BoolVar(&withPods, "pods", withPods, "start pods for some seconds, which try what builds need")
	cmd.Flags().DurationVar(&timeout, "timeout", timeout, "how long the two pods may take to listen, and then the others to ask; pods that take longer are given up")
	cmd.Flags().VarP(&output, "output", "o", "how to print: text for people, json for programs")
	cluster = newClusterFlags(cmd)
	return cmd
}

func reportFindings(w io.Writer, findings []check.Finding, format string) error {
	findings = slices.Clone(findings)
	for i, f := range findings {
		findings[i].What, findings[i].Why, findings[i].Run = view.Visible(f.What), view.Visible(f.Why), view.Visible(f.Run)
	}
	printed := printFindings
	if format == "json" {
		printed = func(w io.Writer, findings []check.Finding) error { return printJSON(w, findings) }
	}
	if err := printed(w, findings); err != nil {
		return &failedError{err}
	}
	toMend := slices.DeleteFunc(slices.Clone(findings), func(f check.Finding) bool { return f.State != check.Mend })
	if len(toMend) > 0 {
		return &toMendError{len(toMend)}
	}
	return nil
}

func printFindings(w io.Writer, findings []check.Finding) error {
	for _, f := range findings {
		if _, err := fmt.Fprintf(w, "%-8s %-20s %s\n", f.State, f.Check, f.What); err != nil {
			return err
		}
		for _, line := range []struct{ name, text string }{{"why", f.Why}, {"run", f.Run}} {
			if line.text == "" {
				continue
			}
			if _, err := fmt.Fprintf(w, "%14s: %s\n", line.name, line.text); err != nil {
				return err
			}
		}
	}
	return nil
}
