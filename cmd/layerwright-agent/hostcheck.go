package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/layerwright/layerwright/internal/command"
	"github.com/layerwright/layerwright/internal/version"
	"github.com/layerwright/layerwright/rollout/agent/hostcheck"
	"github.com/layerwright/layerwright/rollout/host"
)

// errMend means that a host needs something mended, which its report says.
var errMend = errors.New("something of the host has to be mended")

func newHostCheckCommand() *cobra.Command {
	root, disruptive := defaultHostRoot, false
	output := command.Choice{Value: "text", Allowed: []string{"text", "json"}}
	cmd := &cobra.Command{
		Use:   "host-check",
		Short: "Reports whether a host can do what the agent needs",
		Long: `host-check asks the host for each thing that the agent needs, and writes a line for each: ok, limited (the agent works
without it), mend (it can't work), or not done. It needs no cluster, and changes nothing.

With --disruptive it also stages what runs, changes kernel arguments there and back, locks and unlocks, and removes
what it has staged. It never reboots. Meanwhile ostree's lock keeps a reboot from booting what is staged. Where
something is staged already, it does nothing of this. Don't let anything else update the host meanwhile.

The report has versions, the name of the image that runs, and what programs of the host say. It has no value of a kernel argument.

Exit codes: 0 nothing has to be mended, 1 the host could not be asked, 2 the command line was wrong, 3 something has to
be mended.`,
		Example: `  # On a host, as root
  podman run --rm --privileged --pid=host --network=host -v /:/host:rslave ghcr.io/layerwright/layerwright-agent host-check

  # In the agent's pod of a node, for an issue
  kubectl -n layerwright exec PODNAME -- /usr/bin/layerwright-agent host-check -o json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkHostRoot(root); err != nil {
				return err
			}
			report, err := hostcheck.Run(cmd.Context(), hostcheck.Options{
				Root: root, Run: host.In(root), Detect: host.NewDetector(root).Detect, Version: version.Current().Version, Disruptive: disruptive,
			})
			if err == nil {
				err = writeReport(cmd.OutOrStdout(), report, output.Value)
			}
			switch {
			case err != nil:
				return &failedError{err}
			case report.ToMend() > 0:
				return errMend
			default:
				return nil
			}
		},
	}
	cmd.Flags().SortFlags = false
	addHostRoot(cmd.Flags(), &root)
	cmd.Flags().BoolVar(&disruptive, "disruptive", disruptive, "also stage what runs, change its kernel arguments, lock it, and take all of it back")
	cmd.Flags().VarP(&output, "output", "o", "how to print: text for people, json for programs and issues")
	return cmd
}

func writeReport(to io.Writer, report *hostcheck.Report, format string) error {
	if format == "text" {
		return report.WriteText(to)
	}
	content, err := json.MarshalIndent(report, "", "  ")
	if err != nil {
		return fmt.Errorf("writing the report: %w", err)
	}
	_, err = fmt.Fprintf(to, "%s\n", content)
	return err
}
