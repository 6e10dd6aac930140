//go:build !client

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/layerwright/layerwright/internal/inwork"
	"github.com/layerwright/layerwright/pools"
)

const clusterExample = `  # Run the controller against the cluster of your kubeconfig, for development
  layerwright controller --leader-elect=false --metrics-bind-address=0 --log-format=text

`

// clusterCommands are what runs in the cluster, and in the program of its image only.
func clusterCommands() []*cobra.Command { return []*cobra.Command{newControllerCommand()} }

func newControllerCommand() *cobra.Command {
	options := defaultControllerOptions()
	cmd := &cobra.Command{
		Use:   "controller",
		Short: "Run the controllers until the process is told to stop",
		Long: `Runs Layerwright's controllers in one process.

One instance works at a time: instances compete for a Lease, and the holder gives it back when it is told to stop, so that
the next one takes over without waiting for it to expire. Metrics are served over TLS and only to clients that the API
server authenticates and allows to "get" the path /metrics. /healthz says that the process is alive, /readyz that its
caches have synced and that the API server answers.

CPU and memory follow the container: GOMAXPROCS from its CPU limit, GOMEMLIMIT from the environment.`,
		Example: `  # In a pod: namespace and credentials come from the pod itself
  layerwright controller

  # On your machine, against the cluster of a kubeconfig, with readable debug logs
  layerwright controller --kubeconfig ~/.kube/config --leader-elect=false \
    --metrics-bind-address=0 --log-format=text --log-level=debug

  # Metrics with a certificate of your own (tls.crt and tls.key), read again whenever it is renewed
  layerwright controller --metrics-cert-dir /etc/layerwright/metrics-tls`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := options.complete(os.Getenv, os.ReadFile); err != nil {
				return err
			}
			if err := startController(cmd.Context(), options, cmd.ErrOrStderr()); err != nil {
				return &failedError{err}
			}
			return nil
		},
	}
	cmd.Flags().SortFlags = false
	options.addFlags(cmd.Flags())
	return cmd
}

// startController runs the controller with what the process has: its standard error, its
// credentials.
func startController(ctx context.Context, options *controllerOptions, stderr io.Writer) error {
	config, err := restConfig(options.kubeconfig)
	if err != nil {
		return fmt.Errorf("finding the cluster: %w", err)
	}
	logger := options.log.NewLogger(stderr)
	if err := options.log.Install(logger); err != nil {
		return err
	}
	if options.baseImageCacheDir != "" { // the only folder that outlives a kill
		if options.inWork, err = inwork.Open(filepath.Join(options.baseImageCacheDir, "in-work")); err != nil {
			logger.Error(err, "What kills the controller will not be found")
		}
	}
	options.backlog = pools.NewBacklog(clock.RealClock{})
	err = runController(ctrl.LoggerInto(ctx, logger), config, options, controllerParts(options)...)
	return errors.Join(err, options.inWork.Close())
}
