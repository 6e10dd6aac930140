package main

import (
	"context"
	"errors"
	"io"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/layerwright/layerwright/cmd/layerwright/offline"
	"github.com/layerwright/layerwright/trials/trial"
)

// trialOptions are the flags of the trial command: those of render, but for what only a rendered
// image has, and the stream.
type trialOptions struct {
	*renderOptions

	stream string
}

func newTrialCommand() *cobra.Command {
	options := &trialOptions{renderOptions: newRenderOptions()}
	cmd := &cobra.Command{
		Use:   "trial -f FILE --stream NAME",
		Short: "Say what a pool's move to another stream would change, and what is in its way, without a cluster",
		Long: `Reads objects from files as "render" does, renders the pool's MachineConfigs for another stream, and compares the OS images
of the two streams in their registry: packages, kernels, the configuration in the image, and what is known to break, each with the
object, the line and what to do. Nothing is built, and nothing is written anywhere.

Of each image the layers are read once; what is known of it is kept. In a cluster, the annotation
machineconfiguration.openshift.io/try-stream on a MachineOSConfig gives the same report, and makes the image too.`,
		Example: `  # What would the move of the workers to rhel-10 change?
  kubectl get machineconfigs,machineconfigpools,machineosconfigs,osimagestreams -o yaml |
    layerwright trial -f - --pool worker --stream rhel-10

  # Fail in a pipeline if something is in its way
  layerwright trial -f cluster.yaml --stream rhel-10 -o json | jq -e '.blockers | not'`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := options.check(); err != nil {
				return err
			}
			if options.stream == "" {
				return errors.New("no stream: name the one that the pool might move to with --stream")
			}
			if err := options.try(cmd.Context(), cmd.InOrStdin(), cmd.OutOrStdout(), cmd.ErrOrStderr()); err != nil {
				return &failedError{err}
			}
			return nil
		},
	}
	cmd.Flags().SortFlags = false
	options.addTrialFlags(cmd.Flags())
	return cmd
}

func (o *trialOptions) addTrialFlags(flags *pflag.FlagSet) {
	o.addFilename(flags)
	flags.StringVar(&o.stream, "stream", "", "stream that the pool might move to, one of those of the OSImageStream")
	o.addImage(flags, "pool that might move", "OS image that the pool has now")
	o.addReading(flags, "OS images")
}

func (o *trialOptions) try(ctx context.Context, stdin io.Reader, stdout, stderr io.Writer) error {
	options, err := o.complete(stdin, stderr)
	if err != nil {
		return err
	}
	images, known := options.Indexer.(trial.Images)
	if !known {
		return errors.New("what reads images here cannot tell their packages")
	}
	report, err := offline.Trial(ctx, *options, images, o.stream)
	if err != nil {
		return err
	}
	if o.format.Value == "json" {
		return printJSON(stdout, report)
	}
	_, err = io.WriteString(stdout, report.Text())
	return err
}
