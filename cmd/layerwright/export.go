package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/cmd/layerwright/export"
	"github.com/layerwright/layerwright/cmd/layerwright/offline"
	"github.com/layerwright/layerwright/cmd/layerwright/survey"
	"github.com/layerwright/layerwright/internal/command"
	"github.com/layerwright/layerwright/internal/manifests"
	"github.com/layerwright/layerwright/machineconfigs"
	"github.com/layerwright/layerwright/view"
)

// exportOptions are the flags of the export command.
type exportOptions struct {
	render  renderOptions
	cluster clusterFlags
	pool    string
	form    command.Choice
}

func newExportCommand() *cobra.Command {
	o := &exportOptions{
		render: *newRenderOptions(),
		form:   command.Choice{Value: "yaml", Allowed: []string{"yaml", "ignition", "containerfile", "configmaps", "podman", "pod"}},
	}
	cmd := &cobra.Command{
		Use:   "export POOL",
		Short: "Print what a pool has, for other tools: MachineConfigs, Ignition, Containerfile, ConfigMaps, a shell in its image",
		Long: `Prints what a cluster has of a pool in the terms of other tools:

  yaml           the MachineConfigs that the pool joins, as objects to apply elsewhere or to give to "layerwright render -f -"
  ignition       the Ignition configuration that they are together: that of the rendered MachineConfig
  containerfile  what a build runs for the image that is asked for now, by architecture; it reads the base image from its registry
  configmaps     the files and units as ConfigMaps with annotations for bootc; what ConfigMaps can't say is named on standard error
  podman         the command that opens a shell in the image that nodes should run
  pod            the same as a pod that does not run as root: kubectl apply -f - && kubectl -n layerwright attach -it shell-POOL

MachineConfigs may hold secrets, and so may all but the last two.`,
		Example: `  # Change a pool's configuration in another cluster, or look at it without one
  layerwright export worker | kubectl --context other apply -f -
  layerwright export worker | layerwright render -f - --pool worker --base quay.io/fedora/fedora-coreos:stable

  # What is in the image?
  $(layerwright export worker -o podman)`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.pool = args[0]
			return o.cluster.run(func(from client.Client) error {
				return o.run(cmd.Context(), from, cmd.OutOrStdout(), cmd.ErrOrStderr())
			})
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.VarP(&o.form, "output", "o", "what to print: yaml, ignition, containerfile, configmaps, podman or pod")
	flags.StringVar(&o.render.registryCA, "registry-ca", "", "file with certificates (PEM) of registries that the system does not know, for containerfile")
	flags.StringVar(&o.render.cacheDir, "cache-dir", "", "folder that keeps what is known of base images (default: layerwright/base-images in your cache folder)")
	o.cluster = newClusterFlags(cmd)
	cmd.ValidArgsFunction = o.cluster.completePools
	return cmd
}

func (o *exportOptions) run(ctx context.Context, from client.Reader, stdout, stderr io.Writer) error {
	c, err := readCluster(ctx, from, *o.cluster.Namespace, o.pool)
	if err != nil {
		return err
	}
	switch o.form.Value {
	case "yaml":
		selected, err := c.Selected(o.pool)
		if err != nil {
			return err
		}
		if len(selected) == 0 {
			return fmt.Errorf("pool %s joins no MachineConfig: see its spec.machineConfigSelector", o.pool)
		}
		return printObjects(stdout, selected...)
	case "containerfile":
		return o.printContainerfiles(ctx, c, stdout, stderr)
	case "podman", "pod":
		return o.printShell(c, stdout)
	}
	rendered, err := renderedOf(ctx, from, c.Pool(o.pool))
	if err != nil {
		return err
	}
	if o.form.Value == "ignition" {
		var config any
		if err := json.Unmarshal(rendered.Spec.Config.Raw, &config); err != nil {
			return fmt.Errorf("MachineConfig %s, spec.config: %w", rendered.Name, err)
		}
		return printJSON(stdout, config)
	}
	config, err := machineconfigs.Parse(rendered)
	if err != nil {
		return err
	}
	configMaps, left, err := export.ConfigMaps(o.pool, *o.cluster.Namespace, config)
	if err != nil {
		return fmt.Errorf("MachineConfig %s: %w", rendered.Name, err)
	}
	for _, what := range left {
		_, _ = fmt.Fprintln(stderr, "layerwright: not in the ConfigMaps: "+view.Visible(what))
	}
	return printObjects(stdout, configMaps...)
}

// renderedOf is the MachineConfig that a pool's nodes should have.
func renderedOf(ctx context.Context, from client.Reader, pool *mcfgv1.MachineConfigPool) (*mcfgv1.MachineConfig, error) {
	rendered := &mcfgv1.MachineConfig{}
	name := pool.Spec.Configuration.Name
	if name == "" {
		return nil, fmt.Errorf(`pool %s has no rendered MachineConfig yet: "layerwright status %s" says why`, pool.Name, pool.Name)
	}
	if err := from.Get(ctx, client.ObjectKey{Name: name}, rendered); err != nil {
		return nil, fmt.Errorf("reading MachineConfig %s: %w", name, err)
	}
	return rendered, nil
}

// printContainerfiles prints what a build runs.
func (o *exportOptions) printContainerfiles(ctx context.Context, c *offline.Cluster, stdout, stderr io.Writer) error {
	options, err := o.render.options(c, stderr)
	if err != nil {
		return err
	}
	options.Pool = o.pool
	result, err := offline.Render(ctx, *options)
	if err != nil {
		return err
	}
	printed := false
	for i := range result.Platforms {
		p := &result.Platforms[i]
		if p.Containerfile == nil {
			continue
		}
		printed = true
		text := p.Containerfile.Text
		if _, isTerminal := styleOf(stdout); isTerminal {
			text = visibleLines(text)
		}
		if _, err := fmt.Fprintf(stdout, "# %s\n%s", p.Architecture, text); err != nil {
			return err
		}
	}
	if !printed {
		_, _ = fmt.Fprintf(stderr, "layerwright: nothing is built for pool %s: its configuration is appended to the base image\n", o.pool)
	}
	return nil
}

// visibleLines is a text of several lines that controls no terminal.
func visibleLines(text string) string {
	lines := strings.Split(text, "\n")
	for i := range lines {
		lines[i] = view.Visible(lines[i])
	}
	return strings.Join(lines, "\n")
}

// printShell prints how to enter the image that nodes should run.
func (o *exportOptions) printShell(c *offline.Cluster, stdout io.Writer) error {
	pool, config := c.Pool(o.pool), c.OSConfig(o.pool)
	var image string
	if pool.Status.Rollout != nil {
		image = string(pool.Status.Rollout.TargetImagePullSpec)
	}
	var secrets []corev1.LocalObjectReference
	if config != nil {
		image = cmp.Or(image, string(config.Status.CurrentImagePullSpec))
		if config.Spec.CurrentImagePullSecret != nil {
			secrets = []corev1.LocalObjectReference{{Name: config.Spec.CurrentImagePullSecret.Name}}
		}
	}
	if image == "" {
		return fmt.Errorf(`pool %s has no image yet: "layerwright status %s" says why`, o.pool, o.pool)
	}
	if o.form.Value == "podman" {
		line, err := export.Podman(image)
		if err == nil {
			_, err = fmt.Fprintln(stdout, line)
		}
		return err
	}
	pod, err := export.Pod(o.pool, *o.cluster.Namespace, image, secrets...)
	if err != nil {
		return err
	}
	return printObjects(stdout, pod)
}

// readCluster reads what the image of a pool is described from.
func readCluster(ctx context.Context, from client.Reader, namespace, pool string) (*offline.Cluster, error) {
	set := &manifests.Set{}
	var pools mcfgv1.MachineConfigPoolList
	var configs mcfgv1.MachineConfigList
	var osConfigs mcfgv1.MachineOSConfigList
	var streams mcfgv1.OSImageStreamList
	for _, kind := range []struct {
		name string
		list client.ObjectList
	}{{"machineconfigpools", &pools}, {"machineconfigs", &configs}, {"machineosconfigs", &osConfigs}, {"osimagestreams", &streams}} {
		if err := from.List(ctx, kind.list); err != nil {
			return nil, fmt.Errorf("listing %s: %w", kind.name, err)
		}
		if err := meta.EachListItem(kind.list, func(object runtime.Object) error {
			set.Objects = append(set.Objects, object.(client.Object)) //nolint:forcetypeassert // its kind is one of these
			return nil
		}); err != nil {
			return nil, err
		}
	}
	if _, err := poolNamed(pools.Items, pool); err != nil {
		return nil, err
	}
	for i := range osConfigs.Items {
		if osConfigs.Items[i].Spec.MachineConfigPool.Name != pool {
			continue
		}
		for _, entry := range osConfigs.Items[i].Spec.Containerfile {
			if entry.ConfigMapRef == nil {
				continue
			}
			configMap := &corev1.ConfigMap{}
			err := from.Get(ctx, client.ObjectKey{Namespace: namespace, Name: entry.ConfigMapRef.Name}, configMap)
			if err != nil && !apierrors.IsNotFound(err) { // a missing one is named where it is wanted
				return nil, fmt.Errorf("reading ConfigMap %s/%s: %w", namespace, entry.ConfigMapRef.Name, err)
			}
			if err == nil {
				set.Objects = append(set.Objects, configMap)
			}
		}
	}
	return offline.NewCluster(set), nil
}

// printObjects prints objects to apply, without what an API server adds.
func printObjects[O client.Object](w io.Writer, all ...O) error {
	scheme, err := survey.Scheme()
	if err != nil {
		return err
	}
	for _, object := range all {
		kinds, _, err := scheme.ObjectKinds(object)
		if err != nil {
			return err
		}
		content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
		if err != nil {
			return err
		}
		export.Trim(content)
		content["apiVersion"], content["kind"] = kinds[0].GroupVersion().String(), kinds[0].Kind
		text, err := yaml.Marshal(content)
		if err != nil {
			return err
		}
		if _, err := fmt.Fprintf(w, "---\n%s", text); err != nil {
			return err
		}
	}
	return nil
}
