package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	mcfgv1alpha1 "github.com/layerwright/layerwright/api/machineconfiguration/v1alpha1"
	"github.com/layerwright/layerwright/cmd/layerwright/survey"
	"github.com/layerwright/layerwright/images/owner"
	"github.com/layerwright/layerwright/internal/command"
	"github.com/layerwright/layerwright/view"
)

// newest is the value of --to that ends a choice.
const newest = "newest"

// rolloutRequest is what a user asks of the rollout of a pool.
type rolloutRequest struct {
	pool          string
	pause, resume bool
	undo          bool
	to            string
	// windows reports whether ignoreWindows was given.
	windows       bool
	ignoreWindows string
	dryRun        bool
	plan          rolloutPlan
	// planned is the pool of which a plan was made; nil where none was.
	planned *mcfgv1.MachineConfigPool
}

func newRolloutCommand() *cobra.Command {
	var cluster clusterFlags
	half := len(view.Issues()) / 2 //nolint:mnd // the names fill two lines
	r := &rolloutRequest{plan: rolloutPlan{format: command.Choice{Value: "text", Allowed: []string{"text", "json"}}}}
	cmd := &cobra.Command{
		Use:   "rollout POOL",
		Short: "Foresee the rollout of a pool, pause or resume it, go back to an image, or leave windows aside",
		Long: `Changes the MachineConfigPool, which is all that it does; the controller moves the nodes. It takes the right to patch
machineconfigpools, and for images to list machineosimages. "layerwright status POOL --watch" shows what follows.

--plan changes nothing. It says which nodes would change after which, when at the earliest, and what is in the way or may harm what
runs. Each such issue has a name:
  ` + strings.Join(view.Issues()[:half], ", ") + `,
  ` + strings.Join(view.Issues()[half:], ", ") + `
It exits with 0 if there is none, or --accept names all that there are, and with 3 otherwise. With --resume it resumes the pool in the
first case only. It is what is known now: pods move, and nodes fail. It takes the right to list pods and poddisruptionbudgets of all
namespaces, and to get machineconfigs.`,
		Example: `  # What would it do, and what is in its way?
  layerwright rollout worker --plan

  # Change several things, and let nodes follow when nothing but this is in the way
  layerwright rollout worker --pause
  kubectl apply -f machineconfigs/
  layerwright build worker
  layerwright rollout worker --resume --accept SingleReplica

  # No further node changes, and go on
  layerwright rollout worker --pause
  layerwright rollout worker --resume

  # Back to the image before, and forward again
  layerwright rollout worker --undo
  layerwright rollout worker --to newest

  # Now, and not in the window
  layerwright rollout worker --ignore-windows CVE-2026-1234`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			r.pool = args[0]
			r.windows = cmd.Flags().Changed("ignore-windows")
			if err := r.check(); err != nil {
				return err
			}
			return cluster.run(func(to client.Client) error {
				if r.plans() {
					if err := r.foresee(cmd.Context(), cluster, to, cmd.OutOrStdout()); err != nil || !r.resume {
						return err
					}
				}
				return r.apply(cmd.Context(), to, cmd.OutOrStdout())
			})
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.BoolVar(&r.plan.asked, "plan", false, "say which nodes would change when, and what is in the way")
	flags.StringSliceVar(&r.plan.accepted, "accept", nil, "names of issues that are no reason not to go on")
	flags.BoolVar(&r.pause, "pause", false, "let no further node stage or change; those that have begun finish")
	flags.BoolVar(&r.resume, "resume", false, "end a pause, or go on with a rollout that was halted")
	flags.BoolVar(&r.undo, "undo", false, "have nodes run the image before the one that they should have now")
	flags.StringVar(&r.to, "to", "", `MachineOSImage that nodes should run, or "newest" for the newest again`)
	flags.StringVar(&r.ignoreWindows, "ignore-windows", "", "reason for which nodes change outside of windows; empty ends that")
	flags.BoolVar(&r.dryRun, "dry-run", false, "have the API server check the change, and make none")
	flags.VarP(&r.plan.format, "output", "o", "how to print the plan")
	cmd.MarkFlagsMutuallyExclusive("pause", "resume")
	cmd.MarkFlagsMutuallyExclusive("undo", "to")
	cluster = newClusterFlags(cmd)
	cmd.ValidArgsFunction = cluster.completePools
	return cmd
}

// check reports whether there is something to do.
func (r *rolloutRequest) check() error {
	if r.plans() {
		return r.checkPlan()
	}
	if r.plan.accepted != nil {
		return errors.New("--accept goes with --plan or --resume")
	}
	if !r.pause && !r.resume && !r.undo && r.to == "" && !r.windows {
		return errors.New(`nothing to do: give --plan, --pause, --resume, --undo, --to or --ignore-windows; "layerwright status" shows how the rollout is`)
	}
	return nil
}

// apply changes the pool.
func (r *rolloutRequest) apply(ctx context.Context, c client.Client, out io.Writer) error {
	pool := r.planned // and no later one, of which the plan may not be true
	if pool == nil {
		var err error
		if pool, err = getPool(ctx, c, r.pool); err != nil {
			return err
		}
	}
	var images mcfgv1alpha1.MachineOSImageList
	if r.undo || r.to != "" {
		if err := c.List(ctx, &images); err != nil {
			return fmt.Errorf("listing machineosimages: %w", err)
		}
	}
	change, said, err := r.change(pool, images.Items)
	if err != nil {
		return err
	}
	if change != nil {
		if r.dryRun {
			said = append(said, "nothing was changed, since this was a dry run")
		}
		if err := change.apply(ctx, c, pool, r.dryRun); err != nil {
			return err
		}
	}
	for _, line := range said {
		if _, err := fmt.Fprintf(out, "pool %s: %s\n", r.pool, view.Visible(line)); err != nil {
			return err
		}
	}
	return nil
}

// getPool reads a pool.
func getPool(ctx context.Context, c client.Reader, name string) (*mcfgv1.MachineConfigPool, error) {
	pool := &mcfgv1.MachineConfigPool{}
	err := c.Get(ctx, client.ObjectKey{Name: name}, pool)
	if err == nil {
		return pool, nil
	}
	if meta.IsNoMatchError(err) {
		return nil, &survey.NotInstalledError{}
	}
	if !apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("reading pool %s: %w", name, err)
	}
	var pools mcfgv1.MachineConfigPoolList
	if err := c.List(ctx, &pools); err != nil {
		if apierrors.IsNotFound(err) { // there is no such kind
			return nil, &survey.NotInstalledError{}
		}
		return nil, fmt.Errorf("listing machineconfigpools: %w", err)
	}
	return nil, &unknownPoolError{name, poolNames(pools.Items)}
}

// poolChange is a merge patch of a pool.
type poolChange struct {
	Metadata struct {
		// ResourceVersion makes the change one of what was read.
		ResourceVersion string             `json:"resourceVersion"`
		Annotations     map[string]*string `json:"annotations,omitempty"`
	} `json:"metadata"`
	Spec map[string]any `json:"spec,omitempty"`
}

// apply makes the change, or only has the API server check it.
func (c *poolChange) apply(ctx context.Context, to client.Client, pool *mcfgv1.MachineConfigPool, dryRun bool) error {
	patch, err := json.Marshal(c)
	if err != nil {
		return err
	}
	var options []client.PatchOption
	if dryRun {
		options = append(options, client.DryRunAll)
	}
	err = to.Patch(ctx, pool, client.RawPatch(types.MergePatchType, patch), options...)
	if apierrors.IsConflict(err) {
		return fmt.Errorf("pool %s was not changed, since it has changed after it was read: run the command again", pool.Name)
	}
	if err != nil {
		return fmt.Errorf("changing pool %s: %w", pool.Name, err)
	}
	return nil
}

// change is what to change, nil for nothing, and what to say of it.
func (r *rolloutRequest) change(pool *mcfgv1.MachineConfigPool, images []mcfgv1alpha1.MachineOSImage) (*poolChange, []string, error) {
	c := &poolChange{Spec: map[string]any{}}
	c.Metadata.ResourceVersion, c.Metadata.Annotations = pool.ResourceVersion, map[string]*string{}
	said := r.changePause(pool, c)
	if r.undo || r.to != "" {
		wanted, err := r.image(pool, images)
		if err != nil {
			return nil, nil, err
		}
		c.Spec["machineOSImage"] = wanted
		if wanted == nil {
			said = append(said, "nodes should run the newest image")
		} else {
			said = append(said, fmt.Sprintf("nodes should run MachineOSImage %s, and stay at it; --to newest ends that", *wanted))
		}
	}
	said = append(said, r.changeWindows(pool, c)...)
	if len(c.Spec) == 0 && len(c.Metadata.Annotations) == 0 {
		return nil, said, nil
	}
	return c, said, nil
}

func (r *rolloutRequest) changePause(pool *mcfgv1.MachineConfigPool, c *poolChange) (said []string) {
	if r.pause && pool.Spec.Paused {
		return []string{"it is paused already"}
	}
	if r.pause {
		c.Spec["paused"] = true
		return []string{"paused: no further node stages or changes"}
	}
	if r.resume && pool.Spec.Paused {
		c.Spec["paused"] = false
		said = append(said, "no longer paused")
	}
	if r.resume && (isRolloutHalted(pool) || r.to != "") {
		c.Metadata.Annotations[mcfgv1.AnnotationResumeRollout] = new("")
		said = append(said, "goes on although it was halted")
	}
	if r.resume && said == nil {
		said = []string{"there is nothing to resume: it is neither paused nor halted"}
	}
	return said
}

func (r *rolloutRequest) changeWindows(pool *mcfgv1.MachineConfigPool, c *poolChange) []string {
	_, ignores := pool.Annotations[mcfgv1.AnnotationIgnoreWindows]
	switch {
	case !r.windows:
		return nil
	case r.ignoreWindows != "":
		c.Metadata.Annotations[mcfgv1.AnnotationIgnoreWindows] = &r.ignoreWindows
		return []string{`nodes change outside of windows; --ignore-windows "" ends that`}
	case ignores:
		c.Metadata.Annotations[mcfgv1.AnnotationIgnoreWindows] = nil
		return []string{"nodes change within windows alone"}
	default:
		return []string{"nodes change within windows alone already"}
	}
}

func isRolloutHalted(pool *mcfgv1.MachineConfigPool) bool {
	return slices.ContainsFunc(pool.Status.Conditions, func(c mcfgv1.MachineConfigPoolCondition) bool {
		return c.Type == mcfgv1.PoolRolloutDegraded && c.Status == corev1.ConditionTrue && c.Reason == mcfgv1.ReasonRolloutHalted
	})
}

// image is the one that nodes should run; nil for the newest.
func (r *rolloutRequest) image(pool *mcfgv1.MachineConfigPool, images []mcfgv1alpha1.MachineOSImage) (*string, error) {
	if r.to == newest {
		return nil, nil //nolint:nilnil // the newest has no name here
	}
	own := owner.ImagesOf(images, pool.Name)
	var known []string
	for _, image := range own {
		known = append(known, image.Name)
	}
	at := 0 // that which nodes should have now
	if name := pool.Spec.MachineOSImage; r.undo && name != "" {
		at = slices.Index(known, name)
	} else if target := pool.Status.Rollout; r.undo && target != nil && target.TargetImagePullSpec != "" {
		at = slices.IndexFunc(own, func(i *mcfgv1alpha1.MachineOSImage) bool { return i.Spec.PullSpec == target.TargetImagePullSpec })
	}
	if r.to != "" {
		at = slices.Index(known, r.to)
	}
	if at < 0 || len(known) == 0 {
		return nil, fmt.Errorf("pool %s has no MachineOSImage %q; its images, the newest first: %s", pool.Name, cmp.Or(r.to, pool.Spec.MachineOSImage, "of its target"), cmp.Or(strings.Join(known, ", "), "none"))
	}
	if r.to != "" {
		if q := own[at].Quarantined(); q != nil && !r.resume {
			return nil, fmt.Errorf("MachineOSImage %s is in quarantine: %s: %s; to try it again, add --resume", r.to, q.Reason, q.Message)
		}
		return &known[at], nil
	}
	for _, before := range own[at+1:] {
		if before.Quarantined() == nil && meta.IsStatusConditionTrue(before.Status.Conditions, mcfgv1.ConditionReady) {
			return &before.Name, nil
		}
	}
	return nil, fmt.Errorf("pool %s has no image before %s that is Ready and not in quarantine; its images, the newest first: %s", pool.Name, known[at], strings.Join(known, ", "))
}
