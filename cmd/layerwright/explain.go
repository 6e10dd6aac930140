package main

import (
	"context"
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/builder/pods"
	"github.com/layerwright/layerwright/cmd/layerwright/explanation"
	"github.com/layerwright/layerwright/cmd/layerwright/survey"
	"github.com/layerwright/layerwright/internal/command"
	"github.com/layerwright/layerwright/internal/names"
	"github.com/layerwright/layerwright/view"
)

func newExplainCommand() *cobra.Command {
	var cluster clusterFlags
	output := command.Choice{Value: "text", Allowed: []string{"text", "json"}}
	cmd := &cobra.Command{
		Use:   "explain BUILD|IMAGE|POOL",
		Short: "Say what a build was made for, how, what it cost, and what came of it",
		Long: `Says which inputs of an image differ from the build before, how it was made (reused, appended or built), how long that took and how
much was moved, whether the image is signed and attested, and of a build that failed what to do.

It takes the name of a MachineOSBuild, that of a pool, which means its newest build, or an image: the name of its MachineOSImage, its
pull spec, or the first six characters or more of its digest, as "layerwright status" shows them.

It takes the right to list the kinds of Layerwright. The time of each step of a build is known as long as its pods are there, and takes
the right to list pods in the namespace of Layerwright.`,
		Example: `  # Why was there a build, and what did it cost?
  layerwright explain worker

  # Where does the image come from that this node runs?
  layerwright explain 222222222222`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return cluster.run(func(from client.Client) error { return explain(cmd, from, *cluster.Namespace, args[0], output.Value) })
		},
	}
	cmd.Flags().SortFlags = false
	cmd.Flags().VarP(&output, "output", "o", "how to print: text for people, json for programs")
	cluster = newClusterFlags(cmd)
	cmd.ValidArgsFunction = cluster.completePools
	return cmd
}

func explain(cmd *cobra.Command, from client.Reader, namespace, name, output string) error {
	ctx, out, notes := cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr()
	read, err := survey.Read(ctx, from, namespace)
	if err != nil {
		return err
	}
	noteTo(notes, read.Notes...)
	build, image := explanation.Find(&read.Objects, name)
	if build == nil && image == nil {
		if err := read.Need("machineosbuilds", "machineosimages"); err != nil {
			return err
		}
		return nothingOf(&read.Objects, name)
	}
	var steps []explanation.Step
	if build != nil && build.Asked().Action != mcfgv1.BuildActionReuse && build.Asked().Action != mcfgv1.BuildActionAppend {
		if steps, err = stepsOf(ctx, from, namespace, build.Name); err != nil {
			noteTo(notes, err.Error())
		}
	}
	said := explanation.Of(&read.Objects, build, image, steps)
	if output == "json" {
		return printJSON(out, said)
	}
	_, err = io.WriteString(out, said.Text())
	return err
}

// stepsOf are the steps of a build, as far as its pods are there.
func stepsOf(ctx context.Context, from client.Reader, namespace, build string) ([]explanation.Step, error) {
	var list corev1.PodList
	err := from.List(ctx, &list, client.InNamespace(namespace), client.MatchingLabels{mcfgv1.LabelMachineOSBuild: names.BuildLabel(build)})
	if err != nil {
		return nil, fmt.Errorf("the times of its steps are not known: listing the pods of build %s in namespace %s: %w", build, namespace, err)
	}
	var steps []explanation.Step
	for i := range list.Items {
		pod := &list.Items[i]
		for _, report := range pods.ReportsOf(pod) {
			steps = append(steps, explanation.Step{
				Architecture: pod.Spec.NodeSelector[corev1.LabelArchStable], Step: report.Step, Milliseconds: report.Took, Bytes: report.Bytes, Layers: report.Layers,
			})
		}
	}
	return steps, nil
}

// nothingOf says that there is nothing of a name, and what is named most like it.
func nothingOf(o *view.Objects, name string) error {
	known := poolNames(o.Pools)
	if slices.Contains(known, name) {
		return fmt.Errorf("pool %s has no build: it has no MachineOSConfig, or that has not asked for one yet; \"layerwright status %s\" says more", name, name)
	}
	for i := range o.Builds {
		known = append(known, o.Builds[i].Name)
	}
	for i := range o.Images {
		known = append(known, o.Images[i].Name)
	}
	if len(known) == 0 {
		return fmt.Errorf("there is no build, image or pool %q; there is none at all", name)
	}
	return fmt.Errorf("there is no build, image or pool %q; do you mean %q?", name, nearest(name, known))
}
