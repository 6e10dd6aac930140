package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/cmd/layerwright/explanation"
	"github.com/layerwright/layerwright/cmd/layerwright/survey"
	"github.com/layerwright/layerwright/cmd/layerwright/verdict"
	"github.com/layerwright/layerwright/internal/command"
	"github.com/layerwright/layerwright/internal/registry/credentials"
	"github.com/layerwright/layerwright/trust"
	"github.com/layerwright/layerwright/view"
)

// verifyOptions are the flags of the verify command.
type verifyOptions struct {
	cluster           clusterFlags
	registry          registryFlags
	image             string
	pool, policy, key string
	output            command.Choice
}

func newVerifyCommand() *cobra.Command {
	o := &verifyOptions{output: command.Choice{Value: "text", Allowed: []string{"text", "json"}}}
	cmd := &cobra.Command{
		Use:   "verify IMAGE",
		Short: "Verify the signature of an image, as the nodes of a pool do, or with a key",
		Long: `Verifies that an image is signed by someone whom the nodes of a pool trust: by the signature policy (/etc/containers/policy.json) in
the MachineConfig that the pool asks for now. --trust-policy takes a file with a trust policy instead, and what that asks for of
the provenance; --key a file with public keys, such as cosign.pub. Then no cluster is needed, unless the image is named by an object.

IMAGE is a pull spec, or the name of a MachineOSImage, or the first six characters or more of its digest. Without --pool, it is the pool
of that MachineOSImage, or the one whose MachineOSConfig pushes to the repository.

It says too whether provenance and SBOM are attached and signed by the same. The image and all that an index lists have to be signed.

Exit codes: 0 if the image is trusted, 4 if it is not, with the reason, 1 if that can't be found out now, 2 if the command line is
wrong. Where the nodes ask for no signature, the image is not trusted: nothing was verified.`,
		Example: `  # Would the workers take this image?
  layerwright verify registry.example.com/os/worker@sha256:9c5f... --pool worker

  # Is the image signed that is to be rolled out?
  layerwright verify worker-9c5f0d1c2f1a

  # In a pipeline, without a cluster
  layerwright verify registry.example.com/os/hotfix:latest --key cosign.pub`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.image = args[0]
			return o.run(cmd.Context(), func() (client.Reader, error) { return o.cluster.client() }, cmd.OutOrStdout(), clock.RealClock{}.Now())
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringVar(&o.pool, "pool", "", "pool whose nodes are to take the image (default: that of the image)")
	flags.StringVar(&o.policy, "trust-policy", "", "file with a trust policy, such as policy.yaml of the ConfigMap layerwright-trust-policy")
	flags.StringVar(&o.key, "key", "", "file with public keys in PEM of which one has to have signed the image")
	cmd.MarkFlagsMutuallyExclusive("pool", "trust-policy", "key")
	flags.VarP(&o.output, "output", "o", "how to print: text for people, json for programs")
	o.registry.add(flags)
	o.cluster = newClusterFlags(cmd)
	return cmd
}

// run verifies and prints the verdict. Its end is the exit code.
func (o *verifyOptions) run(ctx context.Context, cluster func() (client.Reader, error), out io.Writer, now time.Time) error {
	v, err := o.judge(ctx, cluster, now)
	if err == nil {
		err = o.print(v, out)
	}
	if err != nil {
		return &failedError{err}
	}
	if !v.Trusted {
		return &endError{exitDegraded, "not trusted: " + v.Reason}
	}
	return nil
}

func (o *verifyOptions) judge(ctx context.Context, cluster func() (client.Reader, error), now time.Time) (*verdict.Verdict, error) {
	var from client.Reader
	var read *survey.Survey
	isNamed := !strings.Contains(o.image, "/")
	if isNamed || o.key == "" && o.policy == "" {
		var err error
		if from, err = cluster(); err != nil {
			return nil, err
		}
		if read, err = survey.Read(ctx, from, *o.cluster.Namespace); err != nil {
			return nil, err
		}
	}
	image := o.image
	if isNamed {
		if err := read.Need("machineosimages"); err != nil {
			return nil, err
		}
		found, err := pinnedOf(&read.Objects, o.image)
		if err != nil {
			return nil, err
		}
		image = found
	}
	images, err := o.registry.client()
	if err != nil {
		return nil, err
	}
	resolved, err := images.Resolve(ctx, image)
	if err != nil {
		return nil, err
	}
	repository, err := trust.RepositoryOf(image)
	if err != nil {
		return nil, err
	}
	pinned := repository + "@" + resolved.Digest.String()
	source, err := o.source(ctx, from, read, mcfgv1.ImageDigestFormat(resolved.Image), pinned)
	if err != nil {
		return nil, err
	}
	return verdict.Judge(ctx, images, pinned, source, now)
}

// pinnedOf is the image of a MachineOSImage that is named in short.
func pinnedOf(o *view.Objects, name string) (string, error) {
	for i := range o.Images {
		if explanation.IsNamed(&o.Images[i], name) {
			return string(o.Images[i].Spec.PullSpec), nil
		}
	}
	return "", fmt.Errorf("there is no MachineOSImage %q; name one, the first six characters or more of its digest, or a pull spec with its registry "+
		"(kubectl get machineosimages)", name)
}

// source is who is trusted.
func (o *verifyOptions) source(ctx context.Context, from client.Reader, read *survey.Survey, image mcfgv1.ImageDigestFormat, pinned string) (verdict.Source, error) {
	repository, _, _ := strings.Cut(pinned, "@")
	file := o.key + o.policy // one of them at most
	if file != "" {
		text, err := os.ReadFile(file) //nolint:gosec // the user names the file
		switch {
		case err != nil:
			return verdict.Source{}, fmt.Errorf("reading who is trusted: %w", err)
		case o.key != "":
			return verdict.FromKeys(file, text)
		default:
			return verdict.FromPolicy(file, text, repository)
		}
	}
	name := o.pool
	if name == "" {
		name = poolOf(&read.Objects, image, repository)
	}
	if err := read.Need("machineosimages", "machineosconfigs"); name == "" && err != nil {
		return verdict.Source{}, fmt.Errorf("whose the image is is not known: %w; --pool names the pool", err)
	}
	if name == "" {
		return verdict.Source{}, fmt.Errorf("no pool has the image, or pushes to the repository %q: say who is trusted with --pool, --trust-policy or --key", repository)
	}
	pool, err := poolNamed(read.Objects.Pools, name)
	if err != nil {
		return verdict.Source{}, err
	}
	config := pool.Spec.Configuration.Name
	rendered := &mcfgv1.MachineConfig{}
	switch err := from.Get(ctx, client.ObjectKey{Name: config}, rendered); {
	case config == "" || apierrors.IsNotFound(err):
		return verdict.Source{}, fmt.Errorf("pool %s has no rendered MachineConfig that says whom its nodes trust; \"layerwright status %s\" says more", name, name)
	case apierrors.IsForbidden(err):
		return verdict.Source{}, errors.New("you may not get machineconfigs, which say whom nodes trust; an administrator gives the right, or name who is trusted with --key")
	case err != nil:
		return verdict.Source{}, fmt.Errorf("reading MachineConfig %s: %w", config, err)
	}
	return verdict.FromNodes(name, rendered, pinned)
}

// poolOf is the pool that an image is of; empty where that is not known.
func poolOf(o *view.Objects, image mcfgv1.ImageDigestFormat, repository string) string {
	for i := range o.Images {
		if o.Images[i].Spec.PullSpec == image {
			return o.Images[i].Spec.MachineConfigPool
		}
	}
	for i := range o.Configs {
		its, err := credentials.Repository(o.Configs[i].Spec.RenderedImagePushSpec)
		if err != nil {
			continue
		}
		if its, err = trust.RepositoryOf(its); err == nil && its == repository {
			return o.Configs[i].Spec.MachineConfigPool.Name
		}
	}
	return ""
}

func (o *verifyOptions) print(v *verdict.Verdict, out io.Writer) error {
	if o.output.Value == "json" {
		return printJSON(out, v)
	}
	w := tabwriter.NewWriter(out, 0, 0, len("  "), ' ', 0)
	line := func(name, text string) { _, _ = fmt.Fprintf(w, "%s\t%s\n", name, view.Visible(text)) } // Flush has the error
	line("image", v.Image)
	line("by", v.By)
	signed := "by " + v.KeyID
	if !v.Trusted {
		signed = "not trusted"
	}
	line("signed", signed)
	for _, s := range v.Statements {
		said := "signed by the same"
		if !s.Trusted {
			said = "no: " + s.Reason
		}
		line(s.Name, said)
	}
	return w.Flush()
}
