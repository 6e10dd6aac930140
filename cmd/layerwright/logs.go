package main

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/cmd/layerwright/buildlog"
	"github.com/layerwright/layerwright/cmd/layerwright/survey"
	"github.com/layerwright/layerwright/view"
)

func newLogsCommand() *cobra.Command {
	var cluster clusterFlags
	follow := false
	cmd := &cobra.Command{
		Use:   "logs POOL|BUILD",
		Short: "Show what a build prints, step by step",
		Long: `Shows what the pods of a build print, each line after the name of its step: those of a Job or of a PipelineRun, and those of each
architecture. A pool means its newest build. Where the pods are gone, it shows what the build kept of it.

It needs the right to list pods and to read their logs in the namespace of Layerwright.`,
		Example: `  # Follow the build of the workers' image
  layerwright logs worker -f

  # Why did this build fail?
  layerwright logs worker-0123456789abcdef0123456789abcdef`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := showLogs(cmd.Context(), cluster, args[0], follow, cmd.OutOrStdout()); err != nil {
				return &failedError{err}
			}
			return nil
		},
	}
	cmd.Flags().SortFlags = false
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "go on until the build ends")
	cluster = newClusterFlags(cmd)
	cmd.ValidArgsFunction = cluster.completePools
	return cmd
}

func showLogs(ctx context.Context, cluster clusterFlags, name string, follow bool, out io.Writer) error {
	from, err := cluster.client()
	if err != nil {
		return err
	}
	build, err := survey.Build(ctx, from, name)
	if err != nil {
		return err
	}
	config, err := cluster.config()
	if err != nil {
		return err
	}
	pods, err := corev1client.NewForConfig(config)
	if err != nil {
		return err
	}
	f := &buildlog.Follower{Pods: pods.Pods(*cluster.Namespace), Clock: clock.RealClock{}, Out: out}
	if follow {
		f.IsEnded = func(ctx context.Context) (bool, error) {
			err := from.Get(ctx, client.ObjectKeyFromObject(build), build)
			return build.Status.BuildEnd != nil || apierrors.IsNotFound(err), client.IgnoreNotFound(err)
		}
	}
	count, err := f.Run(ctx, build.Name)
	select {
	case <-ctx.Done(): // the user has seen enough
		return nil
	default:
	}
	if err != nil || count > 0 {
		return err
	}
	_, err = fmt.Fprintf(out, "build %s has no pods that printed anything; it says: %s\n", build.Name, view.Visible(saidOf(build.Status.Conditions)))
	return err
}

// saidOf is what an object says of how it is.
func saidOf(conditions []metav1.Condition) string {
	for _, condition := range []string{mcfgv1.ConditionStalled, mcfgv1.ConditionReconciling, mcfgv1.ConditionReady} {
		if c := meta.FindStatusCondition(conditions, condition); c != nil && (c.Status == "True" || condition == mcfgv1.ConditionReady) {
			return strings.TrimSuffix(c.Reason+": "+c.Message, ": ")
		}
	}
	return "nothing yet"
}
