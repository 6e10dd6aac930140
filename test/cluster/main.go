package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"syscall"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"k8s.io/klog/v2"

	"github.com/layerwright/layerwright/test/cluster/progress"
	"github.com/layerwright/layerwright/test/cluster/stack"
	"github.com/layerwright/layerwright/test/cluster/toolchain"
)

func main() { os.Exit(execute()) }

// interruptedCode is how a shell says that a program was ended by Ctrl-C.
const interruptedCode = 130

// execute runs the command and returns the exit code.
func execute() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop)   // a second Ctrl-C does not wait
	klog.SetLogger(logr.Discard()) // client-go's own lines, of watches that were ended on purpose
	err := newRoot().ExecuteContext(ctx)
	if err == nil {
		return 0
	}
	if ctx.Err() != nil {
		fmt.Fprintln(os.Stderr, "cluster: interrupted; what runs and what was made stays")
		return interruptedCode
	}
	if !errors.Is(err, errUnhealthy) {
		fmt.Fprintln(os.Stderr, "cluster:", err)
	}
	return 1
}

// program holds what all commands share.
type program struct {
	name  string
	cache string
	root  string
}

func newRoot() *cobra.Command {
	p := &program{}
	root := &cobra.Command{
		Use:   "cluster",
		Short: "A real Kubernetes cluster on one machine, for trying and testing Layerwright",
		Long: `cluster runs etcd, the Kubernetes control plane, containerd, kubelets and an OCI
registry as processes of this machine. Its programs are built once, from pinned
sources, into a cache folder: ~/.cache/layerwright, or $` + toolchain.CacheVariable + `.

A cluster with nodes needs root on Linux and lives in a network namespace of
its own. --control-plane-only needs no rights at all.`,
		Example: `  cluster up                         # one node, registry, controller
  eval "$(cluster env)"              # kubectl and its configuration for this shell
  kubectl get nodes
  cluster logs kube-apiserver        # what a component prints
  cluster down                       # remove everything but the cache`,
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.SetOut(os.Stdout) // where cobra's Print methods otherwise don't go
	root.PersistentFlags().StringVar(&p.name, "name", stack.DefaultName, "name of the cluster; several can run side by side")
	root.AddCommand(p.upCommand(), p.downCommand(), p.statusCommand(), p.logsCommand(), p.loadCommand(),
		p.envCommand(), p.deployCommand(), p.toolsCommand(), p.fixturesCommand(), p.demoCommand(), internalCommand())
	return root
}

// locate finds the checkout and the cache folder.
func (p *program) locate() (err error) {
	if p.cache, err = toolchain.CacheDir(); err != nil {
		return err
	}
	working, err := os.Getwd()
	if err != nil {
		return err
	}
	p.root, err = toolchain.RepositoryRoot(working)
	return err
}

func (p *program) stack() (*stack.Stack, error) {
	if err := p.locate(); err != nil {
		return nil, err
	}
	return stack.New(p.root, p.cache, p.name)
}

// onStack makes a command's run function of one that works on a cluster.
func (p *program) onStack(run func(cmd *cobra.Command, s *stack.Stack, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		s, err := p.stack()
		if err != nil {
			return err
		}
		return run(cmd, s, args)
	}
}

func (p *program) upCommand() *cobra.Command {
	options, fleet := stack.UpOptions{}, false
	cmd := &cobra.Command{
		Use:   "up",
		Short: "Bring the cluster up, or complete one that is half up",
		Long: `up builds what is not built yet, starts what does not run yet, and waits until
every node is Ready and the Layerwright controller is Available. It is harmless
to repeat, also after it was interrupted.

With --bare there is no Layerwright: no kinds, namespace, controller, agents or
policies. Registry, accounts and hosts are as in any other cluster.`,
		Args: cobra.NoArgs,
		RunE: p.onStack(func(cmd *cobra.Command, s *stack.Stack, _ []string) error {
			var err error
			if options.Program, err = os.Executable(); err != nil {
				return err
			}
			options.Progress = progress.New(cmd.OutOrStdout())
			if fleet || options.Bare {
				if err := asFleet(s, &options); err != nil {
					return err
				}
			}
			err = s.Up(cmd.Context(), options)
			options.Progress.Close()
			if err != nil {
				return err
			}
			return p.printUp(cmd, s, options.Progress)
		}),
	}
	flags := cmd.Flags()
	flags.IntVar(&options.Nodes, "nodes", 0, "number of nodes, each a real kubelet; a cluster can grow but not shrink (default 1)")
	flags.BoolVar(&fleet, "fleet", false, "for a new cluster: --hosts on 3 nodes, or on 1 where memory allows no more")
	flags.BoolVar(&options.Bare, "bare", false, "for a new cluster: that of --fleet without Layerwright, to install a release on by docs/install.md; \"cluster deploy\" installs the checkout's")
	flags.IntVar(&options.Guests, "guests", 0, "number of further nodes that are virtual machines, which boot what they are given; the others become hosts (needs the Debian packages of make deps)")
	flags.BoolVar(&options.Hosts, "hosts", false, "give each node a root of its own, deployed by ostree from an image, that can be updated and rebooted; takes seconds more")
	flags.BoolVar(&options.Tekton, "with-tekton", false, "install Tekton Pipelines, and have the controller build with it where a MachineOSConfig asks for that")
	flags.BoolVar(&options.ControlPlaneOnly, "control-plane-only", false, "only etcd, kube-apiserver and kube-controller-manager, on loopback; needs no root")
	flags.IntVar(&options.APIPort, "api-port", 0, "port of the API server on 127.0.0.1 (default 6443, or any that is free)")
	flags.IntVar(&options.RegistryPort, "registry-port", 0, "port of the registry on 127.0.0.1 (default 5000, or any that is free)")
	flags.BoolVar(&options.SkipController, "skip-controller", false, "don't build and deploy the Layerwright controller")
	return cmd
}

// asFleet makes a cluster that is new one that images can be rolled out to, and says why if that is
// not one node after the other.
func asFleet(s *stack.Stack, options *stack.UpOptions) error {
	_, err := s.HasNodes()
	if missing := (*stack.NotFoundError)(nil); !errors.As(err, &missing) {
		return err
	}
	options.Hosts = true
	if options.Nodes > 0 {
		return nil
	}
	nodes, why, err := stack.Fleet()
	if err != nil {
		return err
	}
	if options.Nodes = nodes; why != "" {
		options.Progress.Note("%s", why)
	}
	return nil
}

func (p *program) printUp(cmd *cobra.Command, s *stack.Stack, printer *progress.Printer) error {
	status, err := s.Status(cmd.Context())
	if err != nil {
		return err
	}
	cmd.Printf("\nCluster %q is up after %.1f s.\n", p.name, printer.Elapsed().Seconds())
	if status.Registry != "" {
		cmd.Printf("Registry: %s (Secrets %s and %s)\n", status.Registry, stack.PullSecret, stack.PushSecret)
	}
	cmd.Printf("Use it:   eval \"$(%s env%s)\"; kubectl get nodes\n", invocation(), p.nameFlag())
	return nil
}

// invocation is how this program was called, for messages that can be copied.
func invocation() string { return os.Args[0] }

func (p *program) nameFlag() string {
	if p.name == stack.DefaultName {
		return ""
	}
	return " --name " + p.name
}

// makeVariable names the cluster to make.
func (p *program) makeVariable() string {
	if p.name == stack.DefaultName {
		return ""
	}
	return " CLUSTER=" + p.name
}

func (p *program) downCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "down",
		Short: "Remove the cluster: processes, namespaces, control groups, files",
		Long:  "down removes everything that belongs to the cluster, whatever state it is in. The programs in the cache stay.",
		Args:  cobra.NoArgs,
		RunE: p.onStack(func(cmd *cobra.Command, s *stack.Stack, _ []string) error {
			printer := progress.New(cmd.OutOrStdout())
			found, err := s.Down(cmd.Context(), printer)
			printer.Close()
			if err != nil {
				return err
			}
			if !found {
				cmd.Printf("There is no cluster %q.\n", p.name)
				return nil
			}
			cmd.Printf("Cluster %q is gone after %.1f s.\n", p.name, printer.Elapsed().Seconds())
			return nil
		}),
	}
}

func (p *program) deployCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "deploy",
		Short: "Build the controller, load its image and apply deploy/ to the cluster",
		Args:  cobra.NoArgs,
		RunE: p.onStack(func(cmd *cobra.Command, s *stack.Stack, _ []string) error {
			printer := progress.New(cmd.OutOrStdout())
			defer printer.Close()
			return s.Deploy(cmd.Context(), printer)
		}),
	}
}

func (p *program) toolsCommand() *cobra.Command {
	withTekton, withSigning, withHelm, withConformance := false, false, false, false
	cmd := &cobra.Command{
		Use:   "tools",
		Short: "Build the programs that clusters consist of, unless they are built",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := p.locate(); err != nil {
				return err
			}
			printer := progress.New(cmd.OutOrStdout())
			defer printer.Close()
			tools, sets := toolchain.New(p.root, p.cache), slices.Clone(toolchain.All)
			if withTekton {
				sets = append(sets, toolchain.Tekton)
			}
			if withSigning {
				sets = append(sets, toolchain.SigningServices...)
			}
			if withHelm {
				sets = append(sets, toolchain.Helm)
			}
			if withConformance {
				sets = append(sets, toolchain.OSTreeExt)
			}
			for _, set := range sets {
				if _, err := stack.EnsureSet(cmd.Context(), tools, set, printer); err != nil {
					return err
				}
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&withTekton, "with-tekton", false, "build Tekton Pipelines too")
	cmd.Flags().BoolVar(&withConformance, "with-conformance", false, "build what bootc and rpm-ostree import images with too, which needs Rust")
	cmd.Flags().BoolVar(&withHelm, "with-helm", false, "build Helm too, which tests install charts with")
	cmd.Flags().BoolVar(&withSigning, "with-signing", false, "build Fulcio, Rekor and Vault too, which tests sign with")
	return cmd
}
