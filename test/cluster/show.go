package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/layerwright/layerwright/test/cluster/daemon"
	"github.com/layerwright/layerwright/test/cluster/progress"
	"github.com/layerwright/layerwright/test/cluster/stack"
)

// errUnhealthy makes status fail after it has said why.
var errUnhealthy = errors.New("the cluster is not healthy")

func (p *program) statusCommand() *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show the cluster's parts; exit with 1 if something is wrong",
		Args:  cobra.NoArgs,
		RunE: p.onStack(func(cmd *cobra.Command, s *stack.Stack, _ []string) error {
			status, err := s.Status(cmd.Context())
			if err != nil {
				return err
			}
			switch output {
			case "json":
				err = json.NewEncoder(cmd.OutOrStdout()).Encode(status)
			case "text":
				err = printStatus(cmd, status)
			default:
				return fmt.Errorf("--output %q: use text or json", output)
			}
			if err == nil && len(status.Problems) > 0 {
				err = errUnhealthy
			}
			return err
		}),
	}
	cmd.Flags().StringVarP(&output, "output", "o", "text", "text or json")
	return cmd
}

func printStatus(cmd *cobra.Command, status *stack.Status) error {
	w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 8, 2, ' ', 0)
	fmt.Fprintln(w, "PROCESS\tPID\tSTATE\tAGE")
	for _, p := range status.Processes {
		state := "running"
		if !p.Alive {
			state = "dead"
		}
		fmt.Fprintf(w, "%s\t%d\t%s\t%s\n", p.Name, p.Pid, state, time.Since(p.Started).Round(time.Second))
	}
	if len(status.Nodes) > 0 {
		fmt.Fprintln(w, "\nNODE\tREADY")
		for _, n := range status.Nodes {
			fmt.Fprintf(w, "%s\t%t\n", n.Name, n.Ready)
		}
	}
	if err := w.Flush(); err != nil {
		return err
	}
	cmd.Printf("\nKubeconfig: %s\n", status.Kubeconfig)
	if status.Registry != "" {
		cmd.Printf("Registry:   %s (CA %s)\n", status.Registry, status.RegistryCA)
	}
	for _, problem := range status.Problems {
		cmd.Printf("\nPROBLEM: %s\n", problem)
	}
	return nil
}

// allLines is more than any log has.
const allLines = 1 << 30

func (p *program) logsCommand() *cobra.Command {
	var follow bool
	var tail int
	cmd := &cobra.Command{
		Use:   "logs [PROCESS]",
		Short: "Print what a process of the cluster has printed; list the processes if none is named",
		Args:  cobra.MaximumNArgs(1),
		RunE: p.onStack(func(cmd *cobra.Command, s *stack.Stack, args []string) error {
			logs, err := s.LogFiles()
			if err != nil {
				return err
			}
			names := slices.Sorted(maps.Keys(logs))
			if len(args) == 0 {
				cmd.Println(strings.Join(names, "\n"))
				return nil
			}
			file, ok := logs[args[0]]
			if !ok {
				return fmt.Errorf("the cluster has no process %q: there are %s", args[0], strings.Join(names, ", "))
			}
			return printLog(cmd, file, tail, follow)
		}),
	}
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "keep printing until interrupted")
	cmd.Flags().IntVar(&tail, "tail", 100, "how many of the last lines to print; -1 for all")
	return cmd
}

func printLog(cmd *cobra.Command, file string, tail int, follow bool) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	lines := strings.SplitAfter(string(text), "\n")
	if tail < 0 {
		tail = allLines
	}
	// The last element is what follows the last line's end, mostly nothing.
	cmd.Print(strings.Join(lines[max(0, len(lines)-1-tail):], ""))
	if !follow {
		return nil
	}
	// That it is interrupted is how following ends.
	return ignoreCanceled(daemon.Follow(cmd.Context(), file, int64(len(text)), func(line []byte) bool {
		cmd.Println(string(line))
		return true
	}))
}

func (p *program) loadCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "load ARCHIVE",
		Short:   "Load an image archive (tar, docker or OCI) into every node",
		Example: "  podman save localhost/my/image:1 > image.tar && cluster load image.tar",
		Args:    cobra.ExactArgs(1),
		RunE: p.onStack(func(cmd *cobra.Command, s *stack.Stack, args []string) error {
			printer := progress.New(cmd.ErrOrStderr())
			added, err := s.Load(cmd.Context(), args[0], printer)
			printer.Close()
			if err != nil {
				return err
			}
			for _, image := range added {
				cmd.Println(image)
			}
			return nil
		}),
	}
}

func (p *program) envCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "env",
		Short: "Print shell commands that point kubectl and this shell at the cluster",
		Args:  cobra.NoArgs,
		RunE: p.onStack(func(cmd *cobra.Command, s *stack.Stack, _ []string) error {
			variables, err := s.Environment(cmd.Context())
			if err != nil {
				return err
			}
			for _, variable := range variables {
				name, value, _ := strings.Cut(variable, "=")
				cmd.Printf("export %s='%s'\n", name, strings.ReplaceAll(value, "'", `'\''`))
			}
			return nil
		}),
	}
}
