package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/cmd/layerwright/survey"
	"github.com/layerwright/layerwright/internal/command"
	"github.com/layerwright/layerwright/view"
)

// clusterStreams are the streams of a cluster.
type clusterStreams struct {
	Streams  []clusterStream                `json:"streams"`
	Unusable []mcfgv1.UnusableOSImageStream `json:"unusable,omitempty"`
	// Says is why the sources of streams could not be read; empty where they could.
	Says string `json:"says,omitempty"`
}

// clusterStream is a stream, and Pools are those that are on it.
type clusterStream struct {
	mcfgv1.OSImageStreamSet

	Default bool     `json:"default,omitempty"`
	Pools   []string `json:"pools,omitempty"`
}

// readStreams reads the streams of a cluster.
func readStreams(ctx context.Context, from client.Reader) (*clusterStreams, *mcfgv1.OSImageStream, error) {
	object := &mcfgv1.OSImageStream{}
	err := from.Get(ctx, client.ObjectKey{Name: mcfgv1.OSImageStreamName}, object)
	switch {
	case apierrors.IsForbidden(err):
		return nil, nil, &survey.DeniedError{Resources: []string{"machineconfiguration.openshift.io/v1 osimagestreams"}}
	case apierrors.IsNotFound(err), meta.IsNoMatchError(err):
		return nil, nil, fmt.Errorf("the cluster has no OSImageStream %s: its controller makes it, and without a source there are no streams; docs/streams.md has the sources", mcfgv1.OSImageStreamName)
	case err != nil:
		return nil, nil, fmt.Errorf("reading OSImageStream %s: %w", mcfgv1.OSImageStreamName, err)
	}
	var pools mcfgv1.MachineConfigPoolList
	if err := from.List(ctx, &pools); apierrors.IsForbidden(err) {
		return nil, nil, &survey.DeniedError{Resources: []string{"machineconfiguration.openshift.io/v1 machineconfigpools"}}
	} else if err != nil {
		return nil, nil, fmt.Errorf("listing machineconfigpools: %w", err)
	}
	found := &clusterStreams{Streams: []clusterStream{}, Unusable: object.Status.UnusableStreams}
	if !meta.IsStatusConditionTrue(object.Status.Conditions, mcfgv1.ConditionReady) {
		found.Says = saidOf(object.Status.Conditions)
	}
	known := map[string]bool{}
	for _, set := range object.Status.AvailableStreams {
		known[set.Name] = true
		found.Streams = append(found.Streams, clusterStream{set, set.Name == object.Status.DefaultStream, poolsOn(pools.Items, set.Name)})
	}
	for i := range pools.Items {
		if name := pools.Items[i].Status.OSImageStream.Name; name != "" && !known[name] {
			known[name] = true
			found.Streams = append(found.Streams, clusterStream{mcfgv1.OSImageStreamSet{Name: name, Lifecycle: "Removed"}, false, poolsOn(pools.Items, name)})
		}
	}
	return found, object, nil
}

// poolsOn are the names of the pools that are on a stream.
func poolsOn(pools []mcfgv1.MachineConfigPool, stream string) []string {
	var on []mcfgv1.MachineConfigPool
	for i := range pools {
		if pools[i].Status.OSImageStream.Name == stream {
			on = append(on, pools[i])
		}
	}
	return poolNames(on)
}

// text is for people.
func (s *clusterStreams) text(w io.Writer) error {
	var out strings.Builder
	t := newTable(&out, "STREAM", "LIFECYCLE", "POOLS", "OS IMAGE", "EXTENSIONS")
	for i := range s.Streams {
		stream := &s.Streams[i]
		name, lifecycle := stream.Name, string(cmp.Or(stream.Lifecycle, mcfgv1.StreamSupported))
		if stream.Default {
			name += " (default)"
		}
		if until := stream.EndOfLifeDate; until != "" {
			lifecycle += " until " + until
		}
		t.row(name, lifecycle, strings.Join(stream.Pools, ", "), shortImage(stream.OSImage), shortImage(stream.OSExtensionsImage))
	}
	t.end()
	for _, u := range s.Unusable {
		_, _ = fmt.Fprintf(&out, "%s can't be used: %s: %s\n", view.Visible(u.Name), view.Visible(u.Reason), view.Visible(u.Message))
	}
	if s.Says != "" {
		_, _ = fmt.Fprintf(&out, "The sources of streams: %s\n", view.Visible(s.Says))
	}
	_, err := io.WriteString(w, out.String())
	return err
}

func shortImage(image mcfgv1.ImageDigestFormat) string { return cmp.Or(image.Short(), string(image)) }

// plainTable has columns as wide as they need to be.
type plainTable struct{ *tabwriter.Writer }

func newTable(to io.Writer, columns ...string) plainTable {
	t := plainTable{tabwriter.NewWriter(to, 0, 0, 2, ' ', 0)} //nolint:mnd // the gap
	t.row(columns...)
	return t
}

// row writes texts that objects may have.
func (t plainTable) row(cells ...string) {
	for i := range cells {
		cells[i] = cmp.Or(strings.TrimSpace(view.Visible(cells[i])), "-")
	}
	_, _ = fmt.Fprintln(t, strings.Join(cells, "\t")) // it is kept until the end
}

// end writes the table; its writer takes everything.
func (t plainTable) end() { _ = t.Flush() }

// onCluster prints the streams of the cluster of the kubeconfig.
func (o *streamsOptions) onCluster(ctx context.Context, stdout io.Writer) error {
	from, err := o.cluster.client()
	if err != nil {
		return fmt.Errorf("no source was named, which means those of a cluster: %w", err)
	}
	found, object, err := readStreams(ctx, from)
	if err != nil {
		return err
	}
	return o.printCluster(found, object, stdout)
}

func (o *streamsOptions) printCluster(found *clusterStreams, object *mcfgv1.OSImageStream, stdout io.Writer) error {
	switch o.format.Value {
	case "json":
		return printJSON(stdout, found)
	case "yaml":
		return printYAML(stdout, found)
	case "text":
		return found.text(stdout)
	default: // one of the images
		return o.print(object, stdout)
	}
}

func newBootImagesCommand() *cobra.Command {
	var cluster clusterFlags
	format := command.Choice{Value: "text", Allowed: []string{"text", "json"}}
	cmd := &cobra.Command{
		Use:   "boot-images",
		Short: "Show which boot image each machine resource has, and why not another one",
		Long: `Shows the machine resources whose boot images Layerwright looks after: the boot image that new machines start from, its version and
stream, and what the controller says of it. It reads BootImageHistories, which a resource has from its first update on, and the
MachineConfiguration, which names what was skipped.`,
		Example: `  # Which boot images do new machines start from?
  layerwright boot-images

  # Which resources do not have the one that they should have?
  layerwright boot-images -o json | jq -r '.resources[] | select(.ready | not) | .name + ": " + .says'`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return cluster.run(func(from client.Client) error {
				found, err := readBootImages(cmd.Context(), from)
				if err != nil {
					return err
				}
				if format.Value == "json" {
					return printJSON(cmd.OutOrStdout(), found)
				}
				return found.text(cmd.OutOrStdout())
			})
		},
	}
	cmd.Flags().SortFlags = false
	cmd.Flags().VarP(&format, "output", "o", "how to print: text for people, json for programs")
	cluster = newClusterFlags(cmd)
	return cmd
}

// bootImages are those of a cluster.
type bootImages struct {
	Resources []bootImage `json:"resources"`
	// Says is what the MachineConfiguration says of all of them.
	Says []string `json:"says,omitempty"`
}

// bootImage is that of a machine resource.
type bootImage struct {
	Namespace string `json:"namespace"`
	// Resource is its kind.
	Resource string `json:"resource"`
	Name     string `json:"name"`
	// Image is the boot image as the platform names it.
	Image   string      `json:"image"`
	Version string      `json:"version"`
	Stream  string      `json:"stream,omitempty"`
	Updated metav1.Time `json:"updated"`
	// Ready reports whether it is the one that the resource should have, and Says why not.
	Ready bool   `json:"ready"`
	Says  string `json:"says,omitempty"`
}

func readBootImages(ctx context.Context, from client.Reader) (*bootImages, error) {
	histories, machines, err := survey.BootImages(ctx, from)
	if err != nil {
		return nil, err
	}
	found := &bootImages{Resources: []bootImage{}}
	for i := range histories {
		h := &histories[i]
		about := h.Spec.MachineResourceReference
		b := bootImage{
			Namespace: h.Namespace, Resource: about.Resource, Name: about.Name,
			Ready: meta.IsStatusConditionTrue(h.Status.Conditions, mcfgv1.ConditionReady), Says: saidOf(h.Status.Conditions),
		}
		if n := len(h.Status.Details); n > 0 {
			newest := &h.Status.Details[n-1]
			b.Image, b.Version, b.Stream, b.Updated = newest.Image, newest.BootImageVersion, newest.Stream, newest.UpdateTime
		}
		found.Resources = append(found.Resources, b)
	}
	for i := range machines {
		for _, c := range machines[i].Status.Conditions {
			if strings.HasPrefix(c.Type, "BootImage") && c.Message != "" {
				found.Says = append(found.Says, c.Type+" is "+string(c.Status)+": "+c.Message)
			}
		}
	}
	return found, nil
}

// text is for people.
func (b *bootImages) text(w io.Writer) error {
	var out strings.Builder
	if len(b.Resources) > 0 {
		t := newTable(&out, "RESOURCE", "VERSION", "STREAM", "READY", "IMAGE", "MESSAGE")
		for i := range b.Resources {
			r := &b.Resources[i]
			ready := "no"
			if r.Ready {
				ready = "yes"
			}
			t.row(r.Resource+" "+r.Namespace+"/"+r.Name, r.Version, r.Stream, ready, r.Image, r.Says)
		}
		t.end()
	} else {
		out.WriteString("no machine resource has had its boot image updated\n")
	}
	for _, text := range b.Says {
		out.WriteString(view.Visible(text) + "\n")
	}
	_, err := io.WriteString(w, out.String())
	return err
}
