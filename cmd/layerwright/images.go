package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/builder/retention"
	"github.com/layerwright/layerwright/cmd/layerwright/inventory"
	"github.com/layerwright/layerwright/cmd/layerwright/survey"
	"github.com/layerwright/layerwright/internal/command"
	"github.com/layerwright/layerwright/internal/registry"
	"github.com/layerwright/layerwright/rollout/plan"
	"github.com/layerwright/layerwright/view"
)

// listPatience is how long a registry may take that can be done without.
const listPatience = 30 * time.Second

// imagesOptions are the flags of the images command.
type imagesOptions struct {
	cluster       clusterFlags
	registry      registryFlags
	pool          string
	prune, dryRun bool
	output        command.Choice
}

func newImagesCommand() *cobra.Command {
	o := &imagesOptions{output: command.Choice{Value: "text", Allowed: []string{"text", "wide", "json"}}}
	cmd := &cobra.Command{
		Use:   "images POOL",
		Short: "List the images of a pool: what they are, what a node pulls, and who runs them",
		Long: `Lists the MachineOSImages of a pool, the newest first, and what else the registry has under tags of the pool.

PULL is what a node pulls that runs the image which the most nodes of the pool run now: the layers that this image does not have.
The last line names it. SIZE and PULL are as the registry has them, compressed; of several architectures they are those of the largest.
SIGNED and ATTESTED are "yes", or the reason why not. NODES is how many nodes of the pool run the image.

The registry is asked from this machine, for tags and manifests alone, with the credentials of "docker login" or "podman login"
(REGISTRY_AUTH_FILE names another file). Where it can't be reached, the table has what the cluster knows, and "-" for the rest.

With --prune --dry-run it says which builds, with tag and image, the controller would remove by spec.retention of the MachineOSConfig
now, and why. It takes the right to list the kinds of Layerwright and nodes.`,
		Example: `  layerwright images worker
  layerwright images worker --prune --dry-run

  # Which images does no node run?
  layerwright images worker -o json | jq -r '.images[] | select(.nodes == 0).image'`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.pool = args[0]
			if err := o.check(); err != nil {
				return err
			}
			return o.cluster.run(func(from client.Client) error {
				return o.run(cmd.Context(), from, cmd.OutOrStdout(), cmd.ErrOrStderr())
			})
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.BoolVar(&o.prune, "prune", false, "with --dry-run: say what retention would remove")
	flags.BoolVar(&o.dryRun, "dry-run", false, "with --prune: remove nothing")
	flags.VarP(&o.output, "output", "o", "how to print: text or wide for people, json for programs")
	o.registry.add(flags)
	o.cluster = newClusterFlags(cmd)
	cmd.ValidArgsFunction = o.cluster.completePools
	return cmd
}

func (o *imagesOptions) check() error {
	if o.prune && !o.dryRun {
		return errors.New("--prune: the controller removes images, by spec.retention of the MachineOSConfig, and this command does not; " +
			"add --dry-run to see what it would remove")
	}
	if o.dryRun && !o.prune {
		return errors.New("--dry-run: it belongs to --prune; without that nothing is removed anyway")
	}
	return nil
}

func (o *imagesOptions) run(ctx context.Context, from client.Reader, out, notes io.Writer) error {
	read, _, err := surveyPool(ctx, from, *o.cluster.Namespace, o.pool, notes)
	if err == nil { // an image that no node runs may be deleted by who reads that
		err = read.Need("machineosimages", "machineosconfigs", "machineosbuilds", "nodes")
	}
	if err != nil {
		return err
	}
	if o.prune {
		return o.printPrune(ctx, from, &read.Objects, out)
	}
	members := inventory.Members(&read.Objects, o.pool)
	if err := addOSImages(ctx, from, members); err != nil {
		noteTo(notes, err.Error())
	}
	images, err := o.registry.client()
	if err != nil {
		return err
	}
	listed := inventory.Of(&read.Objects, o.pool, members)
	readRegistry(ctx, listed, images, notes)
	if o.output.Value == "json" {
		return printJSON(out, listed)
	}
	return o.print(listed, out)
}

// surveyPool reads a cluster that has a pool.
func surveyPool(ctx context.Context, from client.Reader, namespace, name string, notes io.Writer) (*survey.Survey, *mcfgv1.MachineConfigPool, error) {
	read, err := survey.Read(ctx, from, namespace)
	if err != nil {
		return nil, nil, err
	}
	pool, err := poolNamed(read.Objects.Pools, name)
	if err != nil {
		return nil, nil, err
	}
	noteTo(notes, read.Notes...)
	return read, pool, nil
}

// noteTo says beside the output what it lacks.
func noteTo(notes io.Writer, texts ...string) {
	for _, text := range texts {
		_, _ = fmt.Fprintln(notes, "layerwright: "+oneLine(text))
	}
}

// addOSImages finds the image that nodes run which have none of their own: that of their
// configuration.
func addOSImages(ctx context.Context, from client.Reader, members []plan.Node) error {
	known := map[string]mcfgv1.ImageDigestFormat{"": ""}
	for i := range members {
		n := &members[i]
		if n.RunsImage != "" {
			continue
		}
		image, is := known[n.CurrentConfig]
		if !is {
			config := &mcfgv1.MachineConfig{}
			err := from.Get(ctx, client.ObjectKey{Name: n.CurrentConfig}, config)
			if err != nil && !apierrors.IsNotFound(err) {
				return fmt.Errorf("which OS image nodes without an image of the pool run is not known: reading MachineConfig %s: %w", n.CurrentConfig, err)
			}
			image = mcfgv1.ImageDigestFormat(mcfgv1.WithoutTag(config.Spec.OSImageURL))
			known[n.CurrentConfig] = image
		}
		n.RunsImage = image
	}
	return nil
}

// readRegistry adds what the registry says, if it does.
func readRegistry(ctx context.Context, listed *inventory.Inventory, images *registry.Client, notes io.Writer) {
	ctx, cancel := context.WithTimeout(ctx, listPatience)
	defer cancel()
	problems, err := listed.Read(ctx, images)
	if err != nil {
		problems = []string{fmt.Sprintf("the registry was not read, so that tags and what a node pulls may be missing: %v", err)}
	}
	noteTo(notes, problems...)
}

func (o *imagesOptions) print(listed *inventory.Inventory, out io.Writer) error {
	style, _ := styleOf(out)
	short := func(text string) string { return text[:min(len(text), len("0123456789ab"))] }
	if o.output.Value == "wide" {
		style.Width, short = 0, func(text string) string { return text }
	}
	var rows [][]string
	for i := range listed.Images {
		image := &listed.Images[i]
		tags := make([]string, len(image.Tags))
		for j, tag := range image.Tags {
			if tags[j] = tag; o.output.Value != "wide" && image.BuildKey != "" {
				tags[j] = strings.ReplaceAll(tag, image.BuildKey, short(image.BuildKey)+"…")
			}
		}
		rows = append(rows, []string{
			image.Image.Short(), dash(strings.Join(tags, ",")), dash(image.Base.Short()), dash(image.Stream), dash(short(image.BuildKey)),
			dash(image.Signed), dash(image.Attested), size(image.Size), size(image.Pull), strconv.Itoa(image.Nodes), image.Quarantine,
		})
	}
	columns := []string{"IMAGE", "TAGS", "BASE", "STREAM", "KEY", "SIGNED", "ATTESTED", "SIZE", "PULL", "NODES", "QUARANTINE"}
	if err := view.Table(out, "Images of pool "+listed.Pool+" in "+cmp.Or(listed.Repository, "no repository of its own"), columns, rows, style.Width); err != nil {
		return err
	}
	last := "PULL is not known: no node of the pool says which image it runs"
	if listed.ComparedWith != "" {
		last = "PULL is for a node that runs " + cmp.Or(listed.ComparedWith.Short(), string(listed.ComparedWith)) + ", as the most nodes do"
	}
	if len(rows) == 0 {
		last = "pool " + listed.Pool + " has no images"
	}
	_, err := fmt.Fprintln(out, view.Visible(last))
	return err
}

// dash stands for what is not known.
func dash(text string) string { return cmp.Or(text, "-") }

func size(bytes *int64) string {
	if bytes == nil {
		return "-"
	}
	return humanize.Bytes(uint64(max(*bytes, 0)))
}

// pruned is what --prune --dry-run prints for programs.
type pruned struct {
	Pool     string              `json:"pool"`
	Waits    string              `json:"waits,omitempty"`
	Removals []retention.Removal `json:"removals"`
}

func (o *imagesOptions) printPrune(ctx context.Context, from client.Reader, objects *view.Objects, out io.Writer) error {
	config := inventory.ConfigOf(objects, o.pool)
	if config == nil {
		return fmt.Errorf("pool %s has no MachineOSConfig, and so no builds that retention could remove", o.pool)
	}
	references, err := retention.References(ctx, from, "")
	if err != nil {
		return err
	}
	result := pruned{Pool: o.pool, Removals: []retention.Removal{}}
	removals, waits := retention.Preview(config, objects.Builds, references)
	result.Waits, result.Removals = waits, append(result.Removals, removals...)
	if o.output.Value == "json" {
		return printJSON(out, result)
	}
	if len(removals) == 0 {
		_, err := fmt.Fprintf(out, "the controller removes nothing of pool %s now: %s\n", o.pool, view.Visible(cmp.Or(waits, "retention keeps all of its builds")))
		return err
	}
	for _, r := range removals {
		what := r.Tag
		if r.Image != "" {
			what += " (" + r.Image.Short() + ")"
		}
		text := fmt.Sprintf("MachineOSBuild %s and %s: %s", r.Build, what, r.Reason)
		if r.Stays != "" {
			text = fmt.Sprintf("MachineOSBuild %s, and not %s, since %s: %s", r.Build, what, r.Stays, r.Reason)
		}
		if _, err := fmt.Fprintln(out, view.Visible(text)); err != nil {
			return err
		}
	}
	return nil
}
