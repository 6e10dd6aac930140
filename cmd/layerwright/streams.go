package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/cmd/layerwright/offline"
	"github.com/layerwright/layerwright/internal/command"
	"github.com/layerwright/layerwright/internal/fault"
	"github.com/layerwright/layerwright/internal/manifests"
	"github.com/layerwright/layerwright/internal/registry/dockerconfig"
	"github.com/layerwright/layerwright/streams"
	"github.com/layerwright/layerwright/streams/source"
)

// plainHTTPFlag is the flag of all commands that ask registries.
const (
	plainHTTPFlag  = "plain-http-registry"
	plainHTTPUsage = "registry, as host:port or as host for all of its ports, that may be asked without TLS; may be repeated. Loopback addresses are always allowed"
)

// streamsOptions are the flags of the streams command.
type streamsOptions struct {
	cluster         clusterFlags
	releaseImage    string
	imageReferences string
	osImage         string
	extensionsImage string
	files           []string
	defaultStream   string
	installVersion  string
	distribution    command.Choice
	stream          string
	registry        registryFlags
	cacheDir        string
	format          command.Choice
}

func newStreamsCommand() *cobra.Command {
	options := &streamsOptions{
		format:       command.Choice{Value: "text", Allowed: []string{"text", "yaml", "json", "os-image", "extensions-image"}},
		distribution: distributions(),
	}
	cmd := &cobra.Command{
		Use:   "streams",
		Short: "Show the OS image streams of a cluster, or those that a release or images give",
		Long: `Without a source it shows the streams of the cluster of your kubeconfig: the default, how far each is in its life, which pools are on
it, and which streams can't be used, and why. With -o json or yaml it prints that for programs.

With a source no cluster is needed. It reads a release image, a file with its list of images, or images on the command line, and says which OS image streams
they give and which is the default: what the controller writes into the OSImageStream of a cluster. It is for bootstrapping, for
mirroring, and for looking at a release before an upgrade.

Sources count in this order, the last one most: images on the command line, the ConfigMap machine-config-osimageurl of a file, the
release, and spec.images of an OSImageStream of a file. Of images only manifest and config are read.

It exits with 1 if no stream can be used, or the default can't be chosen. What else is wrong is said, and hurts nothing.`,
		Example: `  # Which streams does the cluster have, and which pools are on them?
  layerwright streams

  # Which streams does a release have?
  layerwright streams --release-image quay.io/openshift-release-dev/ocp-release:4.21.0-x86_64 --authfile pull-secret.json

  # The OSImageStream for a cluster that is being made, from the file of the release that has been unpacked already
  layerwright streams --image-references /release-manifests/image-references --install-version 4.21.0 -o yaml

  # The image of a stream, for a program that mirrors or pulls it
  layerwright streams --release-image "$RELEASE" --stream rhel-10 -o os-image

  # What would the controller make of this ConfigMap and this OSImageStream?
  layerwright streams -f configmap.yaml -f osimagestream.yaml`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := options.check(); err != nil {
				return err
			}
			if !options.hasSource() {
				return failed(options.onCluster(cmd.Context(), cmd.OutOrStdout()))
			}
			if err := options.run(cmd.Context(), cmd.InOrStdin(), cmd.OutOrStdout(), cmd.ErrOrStderr()); err != nil {
				return &failedError{err}
			}
			return nil
		},
	}
	cmd.Flags().SortFlags = false
	options.addFlags(cmd.Flags())
	options.cluster = newClusterFlags(cmd)
	return cmd
}

func (o *streamsOptions) addFlags(flags *pflag.FlagSet) {
	flags.StringVar(&o.releaseImage, "release-image", "", "release image whose list of images is read")
	flags.StringVar(&o.imageReferences, "image-references", "", "file with the list of images of a release, instead of the release image")
	flags.StringVar(&o.osImage, "baseos-image", "", "OS image of a stream that its label names")
	flags.StringVar(&o.extensionsImage, "baseos-extensions-image", "", "extensions image of the same stream")
	flags.StringArrayVarP(&o.files, "filename", "f", nil, "file or folder with ConfigMaps and an OSImageStream, or - for standard input; may be given more than once")
	flags.StringVar(&o.defaultStream, "default-stream", "", "stream that is to be the default (default: that of the OSImageStream, else by the rules of the controller)")
	flags.StringVar(&o.installVersion, "install-version", "", "version that the cluster was, or is being, installed with; it decides the default (default: that of the release)")
	flags.Var(&o.distribution, "os-distribution", "whose default stream new clusters begin with: auto, OCP, SCOS or FCOS")
	flags.StringVar(&o.stream, "stream", "", "stream whose image is printed (default: the default stream)")
	o.registry.add(flags)
	flags.StringVar(&o.cacheDir, "cache-dir", "", "folder that keeps what is known of images (default: nothing is kept)")
	flags.VarP(&o.format, "output", "o", "what to print: text for people, yaml or json for the OSImageStream, os-image or extensions-image for a pull spec")
}

func (o *streamsOptions) check() error {
	if o.releaseImage != "" && o.imageReferences != "" {
		return errors.New("--release-image and --image-references are the same list: give one of them")
	}
	if o.hasSource() {
		return nil
	}
	for flag, value := range map[string]string{"--default-stream": o.defaultStream, "--install-version": o.installVersion} {
		if value != "" {
			return errors.New(flag + ": no source: give --release-image, --image-references, --baseos-image or --filename")
		}
	}
	return nil
}

// hasSource reports whether streams are read from something else than a cluster.
func (o *streamsOptions) hasSource() bool {
	return o.releaseImage != "" || o.imageReferences != "" || o.osImage != "" || o.extensionsImage != "" || len(o.files) > 0
}

func (o *streamsOptions) run(ctx context.Context, stdin io.Reader, stdout, stderr io.Writer) error {
	object, problems, err := o.discover(ctx, stdin)
	if object == nil {
		return err
	}
	for _, p := range streams.Summarize(problems) {
		_, _ = fmt.Fprintf(stderr, "%s (%s): %s\n", p.Type, p.Reason, fault.Clean(p.Message))
	}
	if err != nil {
		return err
	}
	return o.print(object, stdout)
}

// discover asks the sources, as the controller does. The object is nil where they could not be
// asked.
func (o *streamsOptions) discover(ctx context.Context, stdin io.Reader) (*mcfgv1.OSImageStream, []streams.Problem, error) {
	object, configMaps, err := o.read(stdin)
	if err != nil {
		return nil, nil, err
	}
	images, err := o.registry.client()
	if err != nil {
		return nil, nil, err
	}
	access := source.Access{Registry: images}
	reader := source.NewReader(source.Options{CacheDir: o.cacheDir})
	gathered := []streams.Gathered{streams.FromArguments(o.osImage, o.extensionsImage)}
	if data, there := configMaps[streams.ConfigMapName]; there {
		gathered = append(gathered, streams.FromConfigMap(data, ""))
	}
	release, err := o.release(ctx, reader, access)
	if err != nil {
		return nil, nil, err
	}
	gathered = append(gathered, streams.FromRelease(release.Tags), streams.FromSpec(object.Spec.Images))
	var contributions []streams.Contribution
	for _, g := range gathered {
		inspected, err := reader.Inspect(ctx, access, g)
		if err != nil {
			return nil, nil, err
		}
		contributions = append(contributions, streams.Group(inspected))
	}
	set := streams.Merge(contributions, nil)
	problems := append(o.describe(&set, object, configMaps), set.Problems...)
	if len(set.Available) == 0 {
		return object, problems, errors.New("no source gives a complete stream")
	}
	name, _, err := streams.Default(streams.DefaultInput{
		Wanted: object.Spec.DefaultStream, Available: set.Available, Distribution: distributionOf(o.distribution), InstallVersion: cmp.Or(o.installVersion, release.Version),
	})
	object.Spec.DefaultStream = cmp.Or(object.Spec.DefaultStream, name)
	object.Status.SetStreams(set.Available, name)
	object.Status.UnusableStreams = set.Unusable
	return object, problems, err
}

// describe adds what ConfigMaps and the object know of streams.
func (o *streamsOptions) describe(set *streams.Set, object *mcfgv1.OSImageStream, configMaps map[string]map[string]string) []streams.Problem {
	knowledge, problems := streams.ParseStreamMetadata(streams.MetadataConfigMap, configMaps[streams.MetadataConfigMap])
	own, more := streams.ParseLifecycle(streams.LifecycleConfigMap, configMaps[streams.LifecycleConfigMap])
	knowledge.Add(own)
	knowledge.Add(streams.KnowledgeOfSpec(object.Spec.Images))
	streams.Describe(set.Available, knowledge, clock.RealClock{}.Now())
	return append(problems, more...)
}

// release is the list of images of the release, if there is one.
func (o *streamsOptions) release(ctx context.Context, reader *source.Reader, access source.Access) (streams.Release, error) {
	if o.imageReferences == "" {
		if o.releaseImage == "" {
			return streams.Release{}, nil
		}
		return reader.Release(ctx, access, o.releaseImage)
	}
	content, err := os.ReadFile(o.imageReferences)
	if err != nil {
		return streams.Release{}, fmt.Errorf("reading the list of images: %w", err)
	}
	return streams.ParseImageStream(content)
}

// read reads the files: an OSImageStream, and ConfigMaps by name.
func (o *streamsOptions) read(stdin io.Reader) (*mcfgv1.OSImageStream, map[string]map[string]string, error) {
	object := &mcfgv1.OSImageStream{}
	configMaps := map[string]map[string]string{}
	if len(o.files) > 0 {
		scheme, err := offline.NewScheme()
		if err != nil {
			return nil, nil, err
		}
		set, err := (&manifests.Reader{Scheme: scheme, Stdin: stdin}).Read(o.files)
		if err != nil {
			return nil, nil, err
		}
		for _, found := range set.Objects {
			switch found := found.(type) {
			case *mcfgv1.OSImageStream:
				object.Spec = found.Spec
			case *corev1.ConfigMap:
				configMaps[found.Name] = found.Data
			}
		}
	}
	object.TypeMeta = metav1.TypeMeta{APIVersion: mcfgv1.GroupVersion.String(), Kind: "OSImageStream"}
	object.Name = mcfgv1.OSImageStreamName
	object.Spec.DefaultStream = cmp.Or(o.defaultStream, object.Spec.DefaultStream)
	return object, configMaps, nil
}

// keychainOf are the credentials of a file; of programs on this machine where there is none.
func keychainOf(authFile string) (authn.Keychain, error) {
	if authFile == "" {
		return authn.DefaultKeychain, nil
	}
	content, err := os.ReadFile(authFile) //nolint:gosec // the user names the file
	if err != nil {
		return nil, fmt.Errorf("reading credentials: %w", err)
	}
	secret := &corev1.Secret{Type: corev1.SecretTypeDockerConfigJson, Data: map[string][]byte{corev1.DockerConfigJsonKey: content}}
	store, err := dockerconfig.Parse(secret)
	var broken *dockerconfig.Error
	if errors.As(err, &broken) {
		return nil, fmt.Errorf("reading credentials in %q: %s; %s", authFile, broken.Problem, broken.Fix)
	}
	return store, err
}

// print prints what was asked for.
func (o *streamsOptions) print(object *mcfgv1.OSImageStream, stdout io.Writer) error {
	switch o.format.Value {
	case "os-image", "extensions-image":
		return o.printImage(object, stdout)
	case "json":
		return printJSON(stdout, object)
	case "yaml":
		return printYAML(stdout, object)
	}
	for i := range object.Status.AvailableStreams {
		stream := &object.Status.AvailableStreams[i]
		marks := string(stream.Lifecycle)
		if stream.Name == object.Status.DefaultStream {
			marks = "default, " + marks
		}
		_, err := fmt.Fprintf(stdout, "%s (%s)\n  OS image    %s\n  extensions  %s\n", stream.Name, marks, stream.OSImage, cmp.Or(stream.OSExtensionsImage, "none"))
		if err != nil {
			return err
		}
	}
	for _, stream := range object.Status.UnusableStreams {
		if _, err := fmt.Fprintf(stdout, "%s (not usable: %s)\n", stream.Name, stream.Reason); err != nil {
			return err
		}
	}
	return nil
}

func (o *streamsOptions) printImage(object *mcfgv1.OSImageStream, stdout io.Writer) error {
	wanted := cmp.Or(o.stream, object.Status.DefaultStream)
	for i := range object.Status.AvailableStreams {
		stream := &object.Status.AvailableStreams[i]
		if stream.Name != wanted {
			continue
		}
		image := stream.OSImage
		if o.format.Value == "extensions-image" {
			image = stream.OSExtensionsImage
		}
		if image == "" {
			return fmt.Errorf("stream %q has no extensions image", wanted)
		}
		_, err := fmt.Fprintln(stdout, image)
		return err
	}
	return fmt.Errorf("there is no stream %q; available are: %s", wanted, object.Status.StreamNames)
}

// distributions are the choices of --os-distribution.
func distributions() command.Choice {
	return command.Choice{Value: "auto", Allowed: []string{"auto", string(streams.DistributionOCP), string(streams.DistributionSCOS), string(streams.DistributionFCOS)}}
}

// distributionOf is what --os-distribution says.
func distributionOf(flag command.Choice) streams.Distribution {
	if flag.Value == "auto" {
		return streams.DistributionUnknown
	}
	return streams.Distribution(flag.Value)
}
