//go:build cgo && containers_image_openpgp && exclude_graphdriver_btrfs

package main

import (
	"context"
	"fmt"
	"io"
	"path"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/layerwright/layerwright/builder/assembly"
	"github.com/layerwright/layerwright/builder/backend"
	"github.com/layerwright/layerwright/builder/engine"
	"github.com/layerwright/layerwright/builder/engine/folders"
	"github.com/layerwright/layerwright/builder/engine/process"
	"github.com/layerwright/layerwright/check/probe"
	"github.com/layerwright/layerwright/internal/version"
)

// exitUsage is for a command line that is wrong. Kubernetes retries it like any failure, and the
// log says what it is.
const exitUsage = 2

// execute runs one command line and returns the process's exit code.
func execute(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	code := 0
	root := newRootCommand(&code)
	root.SetArgs(append([]string{}, args...)) // never nil: cobra would read os.Args instead
	root.SetOut(stdout)
	root.SetErr(stderr)
	if err := root.ExecuteContext(ctx); err != nil {
		_, _ = fmt.Fprintf(stderr, "layerwright-builder: %s\n", err)
		return exitUsage
	}
	return code
}

func newRootCommand(code *int) *cobra.Command {
	root := &cobra.Command{
		Use:   "layerwright-builder",
		Short: "Builds an operating-system image inside a build pod, in four steps",
		Long: `layerwright-builder is what runs in the pods of a build. A pod has four containers, one after the other:

  fetch  pulls every image that the Containerfile names into the store, with the pull secret
  build  runs the Containerfile on what is in the store, with no secret and no way to pull
  export writes the new layers as plain files, with no secret
  push   uploads these with the push secret, and does not see the store; layers that the registry has are not uploaded

A step is told what to do by ` + backend.InstructionsFile + `, writes lines that begin with
"` + strings.TrimSpace(backend.ProgressPrefix) + `" as it goes, and leaves a report in JSON as the container's termination message.
It exits with ` + fmt.Sprint(backend.ExitAdmin) + ` where the same inputs would fail again, with ` + fmt.Sprint(backend.ExitInfrastructure) + ` where another attempt may not.

Proxies are those of HTTP_PROXY, HTTPS_PROXY and NO_PROXY; RUN lines see them too, and the image keeps none of them.`,
		Example: `  # What the four containers run
  layerwright-builder fetch
  layerwright-builder build
  layerwright-builder export
  layerwright-builder push

  # The same without a cluster, as root, in a folder of one's own
  layerwright-builder fetch --instructions i.json --work /var/tmp/build --fetched /var/tmp/fetched --report fetch.json`,
		Version:       version.Current().Version,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          cobra.NoArgs,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.CompletionOptions.DisableDefaultCmd = true // it is started by manifests, not typed by people
	root.AddCommand(
		newStepCommand(backend.Fetch, code, "Pull the images that the Containerfile names into the store", `Fetch pulls by digest what is not in the store yet, so that an attempt that
was cut off is continued. Where to pull from is decided by registries.conf of the pool, what is accepted by its policy.json; without
one, anything is. The pull secret is read once and never written.`),
		newStepCommand(backend.Build, code, "Run the Containerfile on what is in the store", `Build runs the Containerfile with Buildah, isolated by chroot inside of the
container, on the container's network. Layers are kept in the store, so that a second attempt begins where the first one failed. The same
inputs give the same digest, as far as the RUN lines do.

RUN lines see the inputs of the build at /etc/pki/entitlement, /etc/yum.repos.d and /etc/pki/rpm-gpg, and the certificate authorities of the
trust bundle at /etc/layerwright/trust. No layer keeps them. To trust these authorities, copy them:
  RUN cp /etc/layerwright/trust/*.pem /etc/pki/ca-trust/source/anchors/ && update-ca-trust`),
		newStepCommand(backend.Export, code, "Write the layers that were built as plain files", `Export writes an OCI image layout with the layers above those of the base. It is a step of its own because
RUN lines could change the store: who opens it afterwards must have no secret.`),
		newStepCommand(backend.Push, code, "Upload the image that was built", `Push uploads the manifest, the config and the layers that the registry does not have. Layers
of the base are mounted where they are in the same registry, and else copied from the base's, with the pull secret. The digests of these layers
stay as they are.`),
		newAssemblyCommand(backend.Preflight, code, "Ask the registries before a PipelineRun builds", `Preflight asks whether every image that the Containerfile names is there, and whether the result may
be pushed, so that a PipelineRun fails in seconds where it would fail in an hour. It leaves the result STARTED.`),
		newAssemblyCommand(backend.Assemble, code, "Say what a PipelineRun has pushed", `Assemble resolves the tags that the builds have pushed, joins those of several architectures, and leaves the
results IMAGE_URL, IMAGE_DIGEST, IMAGES, IMAGE_SIZE and BUILD_SECONDS. It takes no digest from a build.`),
		newProbeCommand(),
	)
	return root
}

// newAssemblyCommand is for the Tasks around a build (builder/assembly).
func newAssemblyCommand(step backend.Step, code *int, short, long string) *cobra.Command {
	command := assembly.Command{Report: backend.ReportFile}
	cmd := &cobra.Command{
		Use:   string(step) + " ARCHITECTURE...",
		Short: short,
		Long:  long,
		Args:  cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			command.Architectures = args
			*code = command.Main(cmd.Context(), step, cmd.OutOrStdout())
			return nil
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&command.Instructions, "instructions", path.Dir(backend.InstructionsFile), "folder with the instructions of each architecture")
	flags.StringVar(&command.PullCredentials, "pull-credentials", backend.BaseCredentialsDir, "folder with the pull secret")
	flags.StringVar(&command.PushCredentials, "push-credentials", backend.CredentialsDir, "folder with the push secret")
	flags.StringVar(&command.Registries, "registries", backend.RegistriesFile, "registries.conf of the pool")
	flags.StringVar(&command.Image, "image", "", "repository and tag of the result")
	flags.StringVar(&command.Results, "results", "/tekton/results", "folder for the results")
	flags.StringVar(&command.Started, "started", "", "when the run began, in seconds of Unix time")
	flags.StringVar(&command.Report, "report", command.Report, "file for the report")
	return cmd
}

func newProbeCommand() *cobra.Command {
	options, listen := probe.Options{Report: backend.ReportFile, Users: "/proc/self/uid_map", Pause: time.Second}, ""
	cmd := &cobra.Command{
		Use:   "probe",
		Short: "Find out what a build on this node could reach",
		Long: `Probe is what pods of "layerwright check --pods" run. It asks whether images may be pushed, whether addresses answer, and
whether the pod has a user namespace of its own, and leaves a report in JSON. Nothing is changed.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if listen != "" {
				return probe.Listen(cmd.Context(), listen)
			}
			return probe.Run(cmd.Context(), options)
		},
	}
	flags := cmd.Flags()
	flags.StringToStringVar(&options.Push, "push", nil, "folder with a push secret, and its repository: FOLDER=REPOSITORY")
	flags.StringSliceVar(&options.Dial, "dial", nil, "address with a port")
	flags.StringSliceVar(&options.PlainHTTP, "plain-http", nil, "registry without TLS")
	flags.StringVar(&listen, "listen", "", "in place of all that, take connections at this address")
	flags.StringVar(&options.Report, "report", options.Report, "file for the report")
	return cmd
}

func newStepCommand(step backend.Step, code *int, short, long string) *cobra.Command {
	options := engine.Options{Paths: folders.DefaultPaths()}
	cmd := &cobra.Command{
		Use:   string(step),
		Short: short,
		Long:  long,
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			options.Stdout = cmd.OutOrStdout()
			*code = process.Main(cmd.Context(), step, options, cmd.ErrOrStderr())
			return nil
		},
	}
	addFlags(cmd.Flags(), &options)
	return cmd
}

// addFlags are for running a step anywhere else than in a pod.
func addFlags(flags *pflag.FlagSet, options *engine.Options) {
	p := &options.Paths
	flags.StringVar(&p.Instructions, "instructions", p.Instructions, "file with the instructions")
	flags.StringVar(&p.Context, "context", p.Context, "folder with the files that the Containerfile copies")
	flags.StringVar(&p.Credentials, "credentials", p.Credentials, "folder with .dockerconfigjson or .dockercfg")
	flags.StringVar(&p.BaseCredentials, "base-credentials", p.BaseCredentials, "folder with the credentials for the base image, in push")
	flags.StringVar(&p.Inputs, "inputs", p.Inputs, "folder with a folder for each input of the build")
	flags.StringVar(&p.Trust, "trust", p.Trust, "folder with additional certificate authorities, in files that end in .pem")
	flags.StringVar(&p.Registries, "registries", p.Registries, "registries.conf of the pool")
	flags.StringVar(&p.Policy, "policy", p.Policy, "policy.json of the pool")
	flags.StringVar(&p.Work, "work", p.Work, "folder with the store, which fetch, build and export share")
	flags.StringVar(&p.Fetched, "fetched", p.Fetched, "folder that fetch writes for push")
	flags.StringVar(&p.Layout, "layout", p.Layout, "folder that export writes for push")
	flags.StringVar(&p.Report, "report", p.Report, "file for the report")
	flags.StringVar(&p.Results, "results", p.Results, "folder for the results IMAGE_URL, IMAGE_DIGEST, IMAGES, IMAGE_SIZE and BUILD_SECONDS of a PipelineRun, in push")
	flags.DurationVar(&options.Patience, "patience", options.Patience, "how long a registry may send and take nothing (default 5m)")
	flags.DurationVar(&options.Grace, "grace", options.Grace, "how long the step may take to end after SIGTERM (default 20s)")
}
