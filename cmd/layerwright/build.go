package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/builder/backend"
	"github.com/layerwright/layerwright/builder/processes"
	"github.com/layerwright/layerwright/builder/standalone"
	"github.com/layerwright/layerwright/builder/wanted/order"
	"github.com/layerwright/layerwright/cmd/layerwright/offline"
	"github.com/layerwright/layerwright/images/provenance"
	"github.com/layerwright/layerwright/images/sbom"
	"github.com/layerwright/layerwright/internal/fault"
	"github.com/layerwright/layerwright/internal/registry"
	"github.com/layerwright/layerwright/internal/registry/credentials"
	"github.com/layerwright/layerwright/internal/registry/folder"
	"github.com/layerwright/layerwright/internal/version"
	"github.com/layerwright/layerwright/trust/sign"
)

// passwordVariable has the password of the key, as cosign has it.
const passwordVariable = "COSIGN_PASSWORD"

// buildOptions are the flags of the build command.
type buildOptions struct {
	renderOptions

	push    string
	signKey string
	builder string
}

func newBuildCommand() *cobra.Command {
	options := &buildOptions{renderOptions: *newRenderOptions()}
	on := &clusterBuild{clock: clock.RealClock{}}
	cmd := &cobra.Command{
		Use:   "build POOL | -f FILE --push REPOSITORY[:TAG]",
		Short: "Have the cluster build the image of a pool, or make one from files without a cluster",
		Long: `With POOL it is about the cluster, and takes --rebuild, --cancel, --trial, --stream, --wait, --timeout and the flags of kubectl. The
controller builds by itself when something has changed: the command follows that, with its progress on standard error, and prints the
image by digest. It exits with 0 if it is built, 4 if that failed, and 5 after --timeout. Ctrl-C ends the command, and not the build.
--cancel deletes the Job or PipelineRun that builds; nothing is built then until someone asks with --rebuild. --trial prints what the
move to another stream would change, and exits with 3 if something is in its way; docs/stream-trial.md has what it leaves behind.

With -f no cluster is needed, and all other flags are for that. It makes the image that "layerwright render" describes, from the same
files, and pushes it: what the controller does, on a laptop or in a pipeline. The same inputs give the same keys and the same digest.
Configuration is appended with calls to the registry alone, and takes about a second. The base image is read once, for an index of
what it has.

A Containerfile, extensions and another kernel are built by layerwright-builder, on Linux, by root or by a user who has subordinate
ids; RUN lines run in a user namespace, and see no credentials but those of a proxy.

The image gets the tag <pool>-<build key>, by which a cluster finds it, and the tag of --push; the pool's name where --push has
none. An image that the registry has already is not made again. With --push oci:FOLDER it is written to a folder (OCI image layout).

With --sign-key the image is signed, after provenance and SBOM were attached to it. The file is a key of "cosign generate-key-pair";
` + passwordVariable + ` has its password. A cluster that signs with the same key reuses the image, and builds nothing.

Registries are reached with the credentials of "docker login" or "podman login" (REGISTRY_AUTH_FILE names another file).`,
		Example: `  # Follow the build of the workers' image
  layerwright build worker

  # Build it again, and go on with the image in a script
  image=$(layerwright build worker --rebuild --timeout 1h)

  # What would another stream change?
  layerwright build worker --trial --stream rhel10-coreos

  # Make the image of a folder of MachineConfigs
  layerwright build -f machineconfigs/ --base quay.io/fedora/fedora-coreos:stable --push registry.example.com/os/worker

  # Sign it, with provenance and SBOM
  COSIGN_PASSWORD=... layerwright build -f machineconfigs/ -f machineosconfig.yaml --push registry.example.com/os/worker --sign-key cosign.key

  # Into a folder, for other tools
  layerwright build -f machineconfigs/ --base quay.io/fedora/fedora-coreos:stable --push oci:image

  # In a pipeline
  layerwright build -f machineconfigs/ --base "$BASE" --push "$REPOSITORY" -o json | jq -r .image`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				on.pool = args[0]
			}
			if err := on.check(cmd.Flags()); err != nil {
				return err
			}
			if on.pool != "" {
				return on.cluster.run(func(from client.Client) error {
					on.open(cmd, from)
					return on.run(cmd.Context())
				})
			}
			if err := options.check(); err != nil {
				return err
			}
			architectures, err := parseArchitectures(options.architectures)
			if err != nil {
				return err
			}
			request := &standalone.Request{}
			for _, architecture := range architectures {
				request.Architectures = append(request.Architectures, mcfgv1.Architecture(architecture))
			}
			if err := options.build(cmd.Context(), request, cmd.InOrStdin(), cmd.OutOrStdout(), cmd.ErrOrStderr()); err != nil {
				return &failedError{err}
			}
			return nil
		},
	}
	cmd.Flags().SortFlags = false
	options.addBuildFlags(cmd.Flags())
	on.add(cmd)
	return cmd
}

func (o *buildOptions) addBuildFlags(flags *pflag.FlagSet) {
	o.addFilename(flags)
	flags.StringVar(&o.push, "push", "", "where the image goes: REPOSITORY[:TAG] in a registry, or oci:FOLDER")
	flags.StringVar(&o.signKey, "sign-key", "", "file with the private key of \"cosign generate-key-pair\" to sign the image with; "+passwordVariable+" has its password")
	o.addImage(flags, "pool whose image it is", "base image")
	o.addExtensions(flags, "make the image for")
	flags.StringVar(&o.builder, "builder", "", "program that builds what a Containerfile says (default: layerwright-builder beside this program or in the PATH)")
	o.addReading(flags, "base images")
}

func (o *buildOptions) check() error {
	if err := o.renderOptions.check(); err != nil {
		return err
	}
	if o.push == "" {
		return errors.New("nowhere to push: name REPOSITORY[:TAG] in a registry, or oci:FOLDER, with --push")
	}
	_, _, err := o.target(nil)
	return err
}

// target is where the image goes. The folder is empty where that is a registry. An image in a
// folder has the repository that it will be in, where the pool's MachineOSConfig says it.
func (o *buildOptions) target(config *mcfgv1.MachineOSConfig) (t order.Target, path string, err error) {
	if path, isFolder := strings.CutPrefix(o.push, "oci:"); isFolder {
		if path == "" {
			return t, "", errors.New("--push: oci: needs the name of a folder behind it")
		}
		t.Repository = "localhost/os"
		if config != nil {
			t.Repository, err = credentials.Repository(config.Spec.RenderedImagePushSpec)
		}
		return t, path, err
	}
	ref, err := name.ParseReference(o.push, name.WithDefaultTag(""))
	if err != nil {
		return t, "", fmt.Errorf("--push: %w", err)
	}
	if _, isDigest := ref.(name.Digest); isDigest {
		return t, "", fmt.Errorf("--push: %q is an image by its digest, which is known when it is made; name REPOSITORY[:TAG]", o.push)
	}
	return order.Target{Repository: ref.Context().Name(), Tag: ref.Identifier()}, "", nil
}

// build makes the image, and prints what it is.
func (o *buildOptions) build(ctx context.Context, request *standalone.Request, stdin io.Reader, stdout, stderr io.Writer) error {
	files, err := o.complete(stdin, stderr)
	if err != nil {
		return err
	}
	images, known := files.Indexer.(sbom.Images)
	if !known {
		return errors.New("what reads images here cannot tell their packages")
	}
	wanted, err := files.Wanted()
	if err != nil {
		return err
	}
	if err := describe(wanted, request); err != nil {
		return err
	}
	options := standalone.Options{
		Base: files.Indexer, Fetcher: files.Fetcher, SBOMs: sbom.New(images, version.Current().Version, clock.RealClock{}), Clock: clock.RealClock{},
		Progress: func(doing string) { _, _ = fmt.Fprintln(stderr, doing) },
	}
	places, err := o.places(ctx, wanted, request)
	if err != nil {
		return err
	}
	defer places.close()
	options.Credentials = places.Credentials
	if options.Builder, err = o.contentBuilder(places, stderr); err != nil {
		return err
	}
	if o.signKey != "" {
		if places.folder != nil && wanted.OSConfig == nil {
			return errors.New("signing an image in a folder: a signature names the repository that the image will be in; " +
				"give the pool's MachineOSConfig too, whose spec.renderedImagePushSpec says it, or push to that repository")
		}
		if options.Keys, err = readKey(o.signKey, os.ReadFile, os.LookupEnv); err != nil {
			return err
		}
	}
	result, err := standalone.Make(ctx, options, request)
	if err == nil && places.folder != nil {
		err = places.folder.Save(ctx)
	}
	if err != nil {
		return files.InSources(wanted, err)
	}
	report := newBuildReport(request, result)
	if o.format.Value == "json" {
		return printJSON(stdout, report)
	}
	_, err = io.WriteString(stdout, report.text())
	return err
}

// describe fills in what the files say.
func describe(wanted *offline.Wanted, request *standalone.Request) (err error) {
	request.Pool, request.Rendered, request.Sources = wanted.Pool, wanted.Rendered.Config, wanted.Sources
	request.Base, request.Extensions = wanted.Base, wanted.Extensions
	if wanted.OSConfig != nil {
		request.Config = wanted.OSConfig.Name
	}
	request.ConfigHash, err = provenance.HashConfig(wanted.Rendered.MachineConfig)
	return err
}

// places are where images are read, and where the image goes.
type places struct {
	credentials.Credentials
	// base and folder are folders that stand for registries; nil where it is a registry.
	base, folder *folder.Folder
}

func (p *places) close() {
	for _, f := range []*folder.Folder{p.base, p.folder} {
		if f != nil {
			_ = f.Close() // what was to be written is
		}
	}
}

// places opens them, and writes their names into the request.
func (o *buildOptions) places(ctx context.Context, wanted *offline.Wanted, request *standalone.Request) (*places, error) {
	transport, err := trusting(o.registryCA)
	if err != nil {
		return nil, err
	}
	target, path, err := o.target(wanted.OSConfig)
	if err != nil {
		return nil, err
	}
	request.Repository, request.Tag = target.Repository, target.Tag
	p, pull, push, plain := &places{}, transport, transport, []string(nil)
	if path != "" {
		if p.folder, err = folder.Open(ctx, path, target.Repository); err != nil {
			return nil, err
		}
		push, plain = p.folder.Wrap(transport), []string{strings.SplitN(target.Repository, "/", 2)[0]} //nolint:mnd // the host, and the rest
	}
	from, digest, isFolder, err := offline.InFolder(wanted.Base)
	if err == nil && isFolder {
		if p.base, err = folder.Open(ctx, from, offline.LayoutName); err == nil {
			pull, request.Base = p.base.Wrap(transport), offline.LayoutName+"@"+digest.String()
		}
	}
	if err != nil {
		p.close()
		return nil, fmt.Errorf("reading the base image %q: %w", wanted.Base, err)
	}
	connect := func(through http.RoundTripper, plain ...string) *registry.Client {
		return registry.New(registry.Options{Transport: through, Keychain: registry.Logins{Keychain: authn.DefaultKeychain}, PlainHTTP: plain})
	}
	p.Pull, p.Push = connect(pull), connect(push, plain...)
	return p, nil
}

// unavailable is a builder that there is not.
type unavailable struct{ why error }

// Build says why.
func (u unavailable) Build(context.Context, *backend.Spec) (*backend.State, error) {
	return nil, fault.NewTerminal(mcfgv1.ReasonBuilderNotAvailable, fmt.Errorf("the image needs a build (Containerfile, extensions or kernel): %w", u.why))
}

// builderProgram is the program that builds content.
const builderProgram = "layerwright-builder"

// contentBuilder is what builds content.
func (o *buildOptions) contentBuilder(places *places, stderr io.Writer) (standalone.Builder, error) {
	if places.base != nil || places.folder != nil {
		return unavailable{errors.New("that takes registries to pull from and to push to; name some with --base and --push, in place of folders")}, nil
	}
	program := o.builder
	if self, err := os.Executable(); err == nil && program == "" {
		if beside := filepath.Join(filepath.Dir(self), builderProgram); isFile(beside) {
			program = beside
		}
	}
	program, err := exec.LookPath(cmp.Or(program, builderProgram))
	if err != nil {
		return unavailable{fmt.Errorf("no %s was found to do it; put it beside layerwright or into the PATH, or name it with --builder: %w", builderProgram, err)}, nil
	}
	var trusted []byte
	if o.registryCA != "" {
		if trusted, err = os.ReadFile(o.registryCA); err != nil {
			return nil, fmt.Errorf("reading the registry's certificates: %w", err)
		}
	}
	return processes.New(processes.Options{Program: program, Keychain: authn.DefaultKeychain, TrustBundle: trusted, Out: stderr, Clock: clock.RealClock{}}), nil
}

func isFile(path string) bool {
	found, err := os.Stat(path)
	return err == nil && found.Mode().IsRegular()
}

// readKey reads the key to sign with.
func readKey(file string, readFile func(string) ([]byte, error), lookupEnv func(string) (string, bool)) (standalone.Keys, error) {
	text, err := readFile(file)
	if err != nil {
		return nil, fmt.Errorf("reading the signing key: %w", err)
	}
	password, isSet := lookupEnv(passwordVariable)
	key, err := sign.LoadKey(text, []byte(password))
	if errors.Is(err, sign.ErrPassword) && !isSet {
		err = fmt.Errorf("%s is not set, and the key has a password", passwordVariable)
	}
	if err != nil {
		return nil, fmt.Errorf("reading the signing key %q: %w", file, err)
	}
	return sign.OneKey(key), nil
}
