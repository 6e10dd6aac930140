package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/google/go-containerregistry/pkg/authn"
	ggcr "github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"sigs.k8s.io/yaml"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/builder/remote"
	"github.com/layerwright/layerwright/cmd/layerwright/offline"
	"github.com/layerwright/layerwright/containerfiles"
	"github.com/layerwright/layerwright/internal/command"
	"github.com/layerwright/layerwright/internal/manifests"
	"github.com/layerwright/layerwright/internal/registry/wire"
	"github.com/layerwright/layerwright/internal/version"
	"github.com/layerwright/layerwright/osimage/baseimage"
)

// renderOptions are the flags of the render command.
type renderOptions struct {
	files         []string
	pool          string
	containerfile string
	base          string
	extensions    string
	architectures []string
	output        string
	registryCA    string
	cacheDir      string
	format        command.Choice
}

func newRenderOptions() *renderOptions {
	return &renderOptions{format: command.Choice{Value: "text", Allowed: []string{"text", "json"}}}
}

func newRenderCommand() *cobra.Command {
	options := newRenderOptions()
	cmd := &cobra.Command{
		Use:   "render -f FILE",
		Short: "Say exactly which image MachineConfigs and a Containerfile mean, without a cluster",
		Long: `Reads objects from files and says which image they mean: the rendered MachineConfig, the Containerfile that a build
would run, the configuration layer, what nodes apply themselves, and the keys that decide whether anything has to be built.
It is what the controller would do with the same objects.

Files may hold MachineConfigs, a MachineConfigPool, a MachineOSConfig, an OSImageStream and the ConfigMaps that they name, as
YAML or JSON; "kubectl get machineconfigs -o yaml" writes such a file. The base image is read from its registry, once: what
is known of it is kept. Registries are reached with the credentials of "docker login" or "podman login" (REGISTRY_AUTH_FILE
names another file).

With --output the results are written to a folder. Rendering into the same folder again says what changed.`,
		Example: `  # What would the image of these files be?
  layerwright render -f machineconfigs/ -f machineosconfig.yaml

  # The same for another base image, with a Containerfile that is not in the cluster yet
  layerwright render -f machineconfigs/ --base quay.io/fedora/fedora-coreos:stable --containerfile Containerfile

  # Write layer and Containerfile to a folder; change something; see what differs
  layerwright render -f machineconfigs/ --output image
  layerwright render -f machineconfigs/ --output image

  # From a cluster, for programs
  kubectl get machineconfigs,machineconfigpools,machineosconfigs,osimagestreams -o yaml |
    layerwright render -f - --pool worker -o json | jq -r .keys.build`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := options.check(); err != nil {
				return err
			}
			architectures, err := parseArchitectures(options.architectures)
			if err != nil {
				return err
			}
			if err := options.run(cmd.Context(), architectures, cmd.InOrStdin(), cmd.OutOrStdout(), cmd.ErrOrStderr()); err != nil {
				return &failedError{err}
			}
			return nil
		},
	}
	cmd.Flags().SortFlags = false
	options.addFlags(cmd.Flags())
	return cmd
}

func (o *renderOptions) addFlags(flags *pflag.FlagSet) {
	o.addFilename(flags)
	o.addImage(flags, "pool whose image it is", "base image")
	o.addExtensions(flags, "describe")
	flags.StringVar(&o.output, "output", "", "folder to write the results to; it may hold secrets afterwards, so only you can read it")
	o.addReading(flags, "base images")
}

// addFilename, addImage and addReading add the flags that trial has too, each between others of its
// own.
func (o *renderOptions) addFilename(flags *pflag.FlagSet) {
	flags.StringArrayVarP(&o.files, "filename", "f", nil, "file or folder with objects, or - for standard input; may be given more than once")
}

// addImage takes what pool and base image are to the command.
func (o *renderOptions) addImage(flags *pflag.FlagSet, pool, base string) {
	flags.StringVar(&o.pool, "pool", "", pool+" (default: that of the only MachineOSConfig, else the only pool, else worker)")
	flags.StringVar(&o.containerfile, "containerfile", "", "file with a Containerfile, instead of those of the pool's MachineOSConfig")
	flags.StringVar(&o.base, "base", "", base+", as a pull spec or as oci:FOLDER[:TAG] (default: what the objects name)")
}

// addExtensions adds the flags of what else an image is made of. To is what is done for an
// architecture.
func (o *renderOptions) addExtensions(flags *pflag.FlagSet, to string) {
	flags.StringVar(&o.extensions, "extensions", "", "image of extensions and kernels, as a pull spec (default: what the objects name)")
	flags.StringSliceVar(&o.architectures, "architecture", nil, "architectures to "+to+", such as amd64 (default: all that the base image has)")
}

// addReading takes which images the cache is for.
func (o *renderOptions) addReading(flags *pflag.FlagSet, images string) {
	flags.VarP(&o.format, "format", "o", "how to print: text for people, json for programs")
	flags.StringVar(&o.registryCA, "registry-ca", "", "file with certificates (PEM) of registries that the system does not know")
	flags.StringVar(&o.cacheDir, "cache-dir", "", "folder that keeps what is known of "+images+" (default: layerwright/base-images in your cache folder)")
}

func (o *renderOptions) check() error {
	if len(o.files) == 0 {
		return errors.New("no files: name files or folders with MachineConfigs, or - for standard input, with --filename")
	}
	return nil
}

// parseArchitectures takes names as Go and images have them, or as Containerfiles of a
// MachineOSConfig do.
func parseArchitectures(names []string) ([]mcfgv1.ContainerfileArch, error) {
	var architectures []mcfgv1.ContainerfileArch
	for _, name := range names {
		arch, ok := mcfgv1.ArchitectureFromOCI(name)
		if !ok {
			return nil, fmt.Errorf("invalid argument %q for \"--architecture\" flag: must be amd64, arm64, ppc64le or s390x", name)
		}
		architectures = append(architectures, mcfgv1.ContainerfileArch(arch))
	}
	return architectures, nil
}

func (o *renderOptions) run(ctx context.Context, architectures []mcfgv1.ContainerfileArch, stdin io.Reader, stdout, stderr io.Writer) error {
	options, err := o.complete(stdin, stderr)
	if err != nil {
		return err
	}
	options.Architectures = architectures
	result, err := offline.Render(ctx, *options)
	if err != nil {
		return err
	}
	report, err := result.Report()
	if err != nil {
		return err
	}
	if o.output != "" {
		previous, err := offline.Previous(o.output)
		if err != nil {
			return err
		}
		if previous != nil {
			report.Compare(previous)
		}
		if err := result.Write(o.output, report); err != nil {
			return err
		}
	}
	if o.format.Value == "json" {
		return printJSON(stdout, report)
	}
	return report.WriteText(stdout)
}

// printJSON prints for programs.
func printJSON(w io.Writer, value any) error {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(value); err != nil {
		return err
	}
	_, err := w.Write(escaped(text.Bytes()))
	return err
}

// escaped is JSON without characters that control a terminal: encoding/json escapes those of ASCII
// but for DEL alone. All that are left are in strings.
func escaped(text []byte) []byte {
	if !bytes.ContainsFunc(text, controls) {
		return text
	}
	var out []byte
	for _, r := range string(text) {
		if !controls(r) {
			out = utf8.AppendRune(out, r)
			continue
		}
		for _, unit := range utf16.Encode([]rune{r}) {
			out = fmt.Appendf(out, `\u%04x`, unit)
		}
	}
	return out
}

func controls(r rune) bool { return r != '\n' && !unicode.IsPrint(r) }

// printYAML prints for programs and people.
func printYAML(w io.Writer, value any) error {
	content, err := yaml.Marshal(value)
	if err == nil {
		_, err = w.Write(content)
	}
	return err
}

// complete reads what the flags name.
func (o *renderOptions) complete(stdin io.Reader, stderr io.Writer) (*offline.Options, error) {
	scheme, err := offline.NewScheme()
	if err != nil {
		return nil, err
	}
	reader := &manifests.Reader{Scheme: scheme, Stdin: stdin}
	set, err := reader.Read(o.files)
	if err != nil {
		return nil, err
	}
	return o.options(offline.NewCluster(set), stderr)
}

// options say what to describe of a cluster.
func (o *renderOptions) options(cluster *offline.Cluster, stderr io.Writer) (*offline.Options, error) {
	transport, err := trusting(o.registryCA)
	if err != nil {
		return nil, err
	}
	cacheDir, err := cacheDirOf(o.cacheDir)
	if err != nil {
		return nil, err
	}
	source, err := o.readContainerfile()
	if err != nil {
		return nil, err
	}
	return &offline.Options{
		Cluster:       cluster,
		Pool:          o.pool,
		Containerfile: source,
		Base:          o.base,
		Extensions:    o.extensions,
		Version:       version.Current().Version,
		Indexer:       baseimage.New(baseimage.Options{CacheDir: cacheDir, Progress: printProgress(stderr)}),
		Fetcher:       remote.New(remote.Options{Transport: fileTransport()}),
		Registry:      []ggcr.Option{ggcr.WithAuthFromKeychain(authn.DefaultKeychain), ggcr.WithTransport(transport)},
	}, nil
}

// cacheDirOf is the folder of --cache-dir, or where there is none the one in the user's cache.
func cacheDirOf(flag string) (string, error) {
	if flag != "" {
		return flag, nil
	}
	userCache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("finding your cache folder (name another with --cache-dir): %w", err)
	}
	return filepath.Join(userCache, "layerwright", "base-images"), nil
}

func (o *renderOptions) readContainerfile() (*containerfiles.Source, error) {
	if o.containerfile == "" {
		return nil, nil //nolint:nilnil // none is given, which is no error
	}
	content, err := os.ReadFile(o.containerfile)
	if err != nil {
		return nil, fmt.Errorf("reading the Containerfile: %w", err)
	}
	return &containerfiles.Source{Arch: mcfgv1.NoArch, Name: o.containerfile, Text: string(content)}, nil
}

// trusting trusts the certificates of a file, that of --registry-ca, beside those of the system.
func trusting(registryCA string) (http.RoundTripper, error) {
	transport := ggcr.DefaultTransport.(*http.Transport).Clone() //nolint:forcetypeassert // documented to be one
	transport.DialContext = wire.DialContext
	if registryCA == "" {
		return explaining{transport}, nil
	}
	certificates, err := os.ReadFile(registryCA) //nolint:gosec // the user names the file
	if err != nil {
		return nil, fmt.Errorf("reading the registry's certificates: %w", err)
	}
	pool, err := x509.SystemCertPool()
	if err != nil {
		pool = x509.NewCertPool()
	}
	if !pool.AppendCertsFromPEM(certificates) {
		return nil, fmt.Errorf("reading the registry's certificates: %q has no certificate in PEM", registryCA)
	}
	transport.TLSClientConfig = &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
	return explaining{transport}, nil
}

// explaining says what to do where a registry's certificate is not known.
type explaining struct{ http.RoundTripper }

func (e explaining) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := e.RoundTripper.RoundTrip(r)
	if _, is := errors.AsType[x509.UnknownAuthorityError](err); is {
		err = fmt.Errorf("%w: --registry-ca takes a file with the certificate of its authority", err)
	}
	return answer, err
}

// fileTransport is what remote files of MachineConfigs come through.
func fileTransport() http.RoundTripper {
	transport := &http.Transport{Proxy: http.ProxyFromEnvironment, ForceAttemptHTTP2: true}
	if own, isOwn := http.DefaultTransport.(*http.Transport); isOwn {
		transport = own.Clone()
	}
	transport.DialContext = wire.DialContext
	return transport
}

// printProgress says on w which layers of a base image are being read: the first time takes a
// while.
func printProgress(w io.Writer) baseimage.ProgressFunc {
	seen := map[string]bool{}
	return func(p baseimage.Progress) {
		step := fmt.Sprintf("layer %d of %d", p.Layer, p.Layers)
		if p.Bytes == 0 && !seen[p.Image.String()+step] {
			seen[p.Image.String()+step] = true
			_, _ = fmt.Fprintf(w, "reading an image: %s (%d kB)\n", step, p.Size/1000)
		}
	}
}
