package main

import (
	"context"
	"fmt"
	"io"

	openshiftv1 "github.com/openshift/api/operator/v1"
	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	mcfgv1alpha1 "github.com/layerwright/layerwright/api/machineconfiguration/v1alpha1"
	"github.com/layerwright/layerwright/builder/plan"
	"github.com/layerwright/layerwright/cmd/layerwright/difference"
	"github.com/layerwright/layerwright/cmd/layerwright/explanation"
	"github.com/layerwright/layerwright/cmd/layerwright/inventory"
	"github.com/layerwright/layerwright/images/owner"
	"github.com/layerwright/layerwright/internal/command"
	"github.com/layerwright/layerwright/machineconfigs"
	"github.com/layerwright/layerwright/nodes"
	"github.com/layerwright/layerwright/osimage/baseimage"
	"github.com/layerwright/layerwright/streams/compare"
	"github.com/layerwright/layerwright/view"
)

// asked is the side of a diff that is what the configuration of a pool asks for now.
const asked = "asked"

// diffOptions are the flags of the diff command.
type diffOptions struct {
	cluster  clusterFlags
	registry registryFlags
	pool     string
	// a and b are the two sides; empty for what most nodes run, and for what they should have.
	a, b     string
	packages bool
	cacheDir string
	output   command.Choice
}

func newDiffCommand() *cobra.Command {
	o := &diffOptions{output: command.Choice{Value: "text", Allowed: []string{"text", "json"}}}
	cmd := &cobra.Command{
		Use:   "diff POOL [A B]",
		Short: "Compare two images of a pool, and say what the change would do to a node",
		Long: `Compares the inputs, the configuration and the packages of two images of a pool: files, units, kernel arguments, extensions, SSH keys.
A and B are MachineOSImages, by their name or the first six characters or more of their digest, or "asked" for what the configuration
of the pool asks for now. Without them it compares the image that the most nodes run with what they should have.

What it says about a node holds where nothing was edited there; the node's agent finds out what is so when it has staged the image.
What can't be compared, such as a rendered MachineConfig that is gone, is listed.

With --packages it reads the package databases of both images in their registry, if their content differs. That takes all of their
layers, once; what is known of them is kept. It takes the right to list the kinds of Layerwright and nodes, and to get machineconfigs.`,
		Example: `  # What would the rollout change?
  layerwright diff worker

  # What has changed from one image to another, with packages?
  layerwright diff worker 111111111111 222222222222 --packages`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 && len(args) != 3 { //nolint:mnd // a pool, and two sides
				return fmt.Errorf("it takes a pool, or a pool and two images; there are %d arguments", len(args))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if o.pool = args[0]; len(args) > 1 {
				o.a, o.b = args[1], args[2]
			}
			return o.cluster.run(func(from client.Client) error {
				return o.run(cmd.Context(), from, cmd.OutOrStdout(), cmd.ErrOrStderr())
			})
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.BoolVar(&o.packages, "packages", false, "read the packages of both images, which takes their layers")
	flags.VarP(&o.output, "output", "o", "how to print: text for people, json for programs")
	o.registry.add(flags)
	flags.StringVar(&o.cacheDir, "image-cache-dir", "", "folder that keeps what is known of images (default: layerwright/base-images in your cache folder)")
	o.cluster = newClusterFlags(cmd)
	cmd.ValidArgsFunction = o.cluster.completePools
	return cmd
}

func (o *diffOptions) run(ctx context.Context, from client.Reader, out, notes io.Writer) error {
	read, pool, err := surveyPool(ctx, from, *o.cluster.Namespace, o.pool, notes)
	if err == nil {
		err = read.Need("machineosimages", "machineosconfigs", "nodes")
	}
	if err != nil {
		return err
	}
	known := &read.Objects
	members := inventory.Members(known, o.pool)
	if err := addOSImages(ctx, from, members); err != nil {
		noteTo(notes, err.Error())
	}
	find := &sides{from: from, objects: known, pool: pool, listed: inventory.Of(known, o.pool, members)}
	a, err := find.side(ctx, o.a, find.running)
	if err != nil {
		return err
	}
	b, err := find.side(ctx, o.b, find.target)
	if err != nil {
		return err
	}
	policies := &openshiftv1.NodeDisruptionPolicyConfig{}
	if len(known.Machines) > 0 {
		policies = &known.Machines[0].Spec.NodeDisruptionPolicy
	}
	d := difference.Of(o.pool, *a, *b, policies)
	if d.SamePackages == "" {
		o.comparePackages(ctx, d, notes)
	}
	if o.output.Value == "json" {
		return printJSON(out, d)
	}
	_, err = io.WriteString(out, d.Text())
	return err
}

// sides finds the two sides of a diff.
type sides struct {
	from    client.Reader
	objects *view.Objects
	pool    *mcfgv1.MachineConfigPool
	listed  *inventory.Inventory
}

// side is the one of a name, or the standard one.
func (s *sides) side(ctx context.Context, name string, standard func() (*difference.Side, error)) (*difference.Side, error) {
	var side *difference.Side
	var err error
	switch name {
	case "":
		side, err = standard()
	case asked:
		side = s.asked()
	default:
		side, err = s.named(name)
	}
	if err != nil || side.MachineConfig == "" {
		return side, err
	}
	config := &mcfgv1.MachineConfig{}
	err = s.from.Get(ctx, client.ObjectKey{Name: side.MachineConfig}, config)
	if apierrors.IsNotFound(err) || apierrors.IsForbidden(err) {
		return side, nil // which the difference says
	}
	if err != nil {
		return nil, fmt.Errorf("reading MachineConfig %s: %w", side.MachineConfig, err)
	}
	if side.Config, err = machineconfigs.Parse(config); err != nil {
		return nil, fmt.Errorf("reading MachineConfig %s: %w", side.MachineConfig, err)
	}
	return side, nil
}

// named is an image of the pool.
func (s *sides) named(name string) (*difference.Side, error) {
	var known []string
	for i := range s.listed.Images {
		known = append(known, s.listed.Images[i].Name)
	}
	for i := range s.objects.Images {
		if image := &s.objects.Images[i]; image.Spec.MachineConfigPool == s.pool.Name && explanation.IsNamed(image, name) {
			return s.of(image), nil
		}
	}
	return nil, fmt.Errorf("pool %s has no MachineOSImage %q; its images, the newest first: %v, or %q", s.pool.Name, name, known, asked)
}

// of is an image that has an object.
func (s *sides) of(image *mcfgv1alpha1.MachineOSImage) *difference.Side {
	side := &difference.Side{
		Name: image.Name, Image: image.Spec.PullSpec, Base: image.Spec.BaseOSImagePullSpec, MachineConfig: image.Configuration(),
	}
	addBuild(side, owner.BuildOf(s.objects.Builds, image))
	return side
}

// addBuild adds what a build was asked to make; nil is none.
func addBuild(side *difference.Side, build *mcfgv1.MachineOSBuild) {
	if build == nil {
		return
	}
	side.Stream, side.Base = build.Asked().OSImageStream, build.Asked().BaseImage
	side.Record, _ = plan.RecordOf(build) // one that can't be read is said to be unknown
}

// running is the image that the most nodes run.
func (s *sides) running() (*difference.Side, error) {
	image := s.listed.ComparedWith
	if image == "" {
		return nil, fmt.Errorf("no node of pool %s says which image it runs: name two images, of %q and those of \"layerwright images %s\"", s.pool.Name, asked, s.pool.Name)
	}
	return s.byPullSpec(image, "what most nodes run", ""), nil
}

// target is what the nodes should have.
func (s *sides) target() (*difference.Side, error) {
	t := nodes.TargetOf(s.pool, s.objects.Images)
	if r := s.pool.Status.Rollout; r != nil && r.TargetImagePullSpec != "" {
		t = nodes.Target{Config: r.TargetConfiguration, Image: string(r.TargetImagePullSpec)}
	}
	if t.Image == "" {
		return s.asked(), nil
	}
	return s.byPullSpec(mcfgv1.ImageDigestFormat(t.Image), "what they should have", t.Config), nil
}

// byPullSpec is an image that may have no object, such as an OS image.
func (s *sides) byPullSpec(pinned mcfgv1.ImageDigestFormat, name, config string) *difference.Side {
	for i := range s.objects.Images {
		if image := &s.objects.Images[i]; image.Spec.PullSpec == pinned && image.Spec.MachineConfigPool == s.pool.Name {
			side := s.of(image)
			if config != "" {
				side.MachineConfig = config
			}
			return side
		}
	}
	return &difference.Side{Name: name, Image: pinned, Base: pinned, MachineConfig: config}
}

// asked is what the configuration of the pool asks for now.
func (s *sides) asked() *difference.Side {
	side := &difference.Side{Name: asked, MachineConfig: s.pool.Spec.Configuration.Name}
	config := inventory.ConfigOf(s.objects, s.pool.Name)
	if config == nil || config.Status.MachineOSBuild == nil {
		return side
	}
	for i := range s.objects.Builds {
		if b := &s.objects.Builds[i]; b.Name == config.Status.MachineOSBuild.Name {
			side.Image = b.Status.DigestedImagePushSpec
			addBuild(side, b)
		}
	}
	return side
}

// comparePackages reads and compares the packages, or says why not.
func (o *diffOptions) comparePackages(ctx context.Context, d *difference.Difference, notes io.Writer) {
	unknown := func(why string) { d.Unknown = append(d.Unknown, "packages: "+why) }
	switch {
	case d.From.Image == "" || d.To.Image == "":
		unknown("there is no image yet to read them in")
		return
	case !o.packages:
		unknown("--packages reads and compares them")
		return
	}
	before, err := o.packagesOf(ctx, d.From.Image, notes)
	if err == nil {
		var after []compare.Package
		if after, err = o.packagesOf(ctx, d.To.Image, notes); err == nil {
			d.Packages = compare.Packages(before, after)
			return
		}
	}
	unknown(err.Error())
}

// packagesOf reads the packages of an image.
func (o *diffOptions) packagesOf(ctx context.Context, pinned mcfgv1.ImageDigestFormat, notes io.Writer) ([]compare.Package, error) {
	images, err := o.registry.client()
	if err != nil {
		return nil, err
	}
	cacheDir, err := cacheDirOf(o.cacheDir)
	if err != nil {
		return nil, err
	}
	loader := baseimage.New(baseimage.Options{CacheDir: cacheDir, Progress: printProgress(notes)})
	image, err := images.Open(ctx, string(pinned))
	if err != nil {
		return nil, err
	}
	index, err := loader.Index(ctx, image)
	if err != nil {
		return nil, fmt.Errorf("reading image %s: %w", pinned.Short(), err)
	}
	list, err := loader.Packages(ctx, image, index)
	if err != nil {
		return nil, fmt.Errorf("reading image %s: %w", pinned.Short(), err)
	}
	if len(list.Databases) == 0 {
		return nil, fmt.Errorf("image %s has no package database of a kind that is known", pinned.Short())
	}
	var packages []compare.Package
	for _, p := range list.Packages {
		packages = append(packages, compare.Package{Type: p.Type, Name: p.Name, Version: p.Version, Arch: p.Arch})
	}
	return packages, nil
}
