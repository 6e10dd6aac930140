package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/layerwright/layerwright/test/cluster/demo"
	"github.com/layerwright/layerwright/test/cluster/progress"
	"github.com/layerwright/layerwright/test/cluster/stack"
	"github.com/layerwright/layerwright/test/fixtures"
)

// demoOptions are the flags of demo.
type demoOptions struct {
	base, builder, controller string
	controlPlaneOnly, guest   bool
}

func (p *program) demoCommand() *cobra.Command {
	options := demoOptions{}
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Show how MachineConfigs become an image, and how a changed one becomes the next",
		Long: `demo brings the cluster up, pushes a base OS image, applies MachineConfigs, a
MachineConfigPool and a MachineOSConfig, and shows the image that follows; then it
changes a file and shows the next one. Where pods can run it goes on with a
Containerfile that installs a package of Debian's, and another change on top of
that. Cosign verifies who made the image, and refuses a changed copy. Where nodes
have hosts, as in a cluster that demo makes, they boot the image in the end, one
after the other; with --guest a node boots it that is a virtual machine, and its
console is shown. What it made stays, and it can be repeated.

Root gets a whole cluster. Without root it is a control plane with registry and
controller as processes: no image that is made of configuration needs more.`,
		Args: cobra.NoArgs,
		RunE: p.onStack(func(cmd *cobra.Command, s *stack.Stack, _ []string) error { return p.runDemo(cmd, s, options) }),
	}
	flags := cmd.Flags()
	flags.StringVar(&options.base, "base", "", "base OS image, tiny or full (default full, and tiny where that can't be made)")
	flags.StringVar(&options.builder, "builder", demo.Job, "what builds the Containerfile, Job or Pipeline: that installs Tekton")
	flags.BoolVar(&options.guest, "guest", false, "end on a node that is a virtual machine, with its console; adds one to a cluster that has none (takes minutes)")
	flags.BoolVar(&options.controlPlaneOnly, "control-plane-only", false, "no nodes, as without root")
	flags.StringVar(&options.controller, "controller", "", "without nodes: a program to run as the controller (default: the checkout's, compiled)")
	return cmd
}

func (p *program) runDemo(cmd *cobra.Command, s *stack.Stack, options demoOptions) error {
	kind := fixtures.Kind(options.base)
	if kind != "" && kind != fixtures.Tiny && kind != fixtures.Full {
		return fmt.Errorf("--base %q: use %s or %s", kind, fixtures.Tiny, fixtures.Full)
	}
	if options.builder != demo.Job && options.builder != demo.Pipeline {
		return fmt.Errorf("--builder %q: use %s or %s", options.builder, demo.Job, demo.Pipeline)
	}
	up, err := demoCluster(s, options)
	if err != nil {
		return err
	}
	up.Progress = progress.New(cmd.OutOrStdout())
	defer up.Progress.Close()
	if up.ControlPlaneOnly {
		up.Progress.Note("A control plane without nodes, with registry and controller as processes: all that images of configuration need.\n" +
			"Root adds nodes with containerd and kubelets, the controller as a pod, and one name of the registry for all.\n")
	}
	switch {
	case options.guest && up.ControlPlaneOnly:
		return errors.New("--guest: a virtual machine is a node of a whole cluster, which takes root, and a cluster with nodes")
	case options.guest:
		has, err := s.HasGuests()
		if err != nil {
			return err
		}
		if !has {
			up.Guests = 1
		}
	case !up.ControlPlaneOnly:
		if err := asFleet(s, &up); err != nil {
			return err
		}
	}
	if err := s.Up(cmd.Context(), up); err != nil {
		return err
	}
	hasHosts, err := s.HasHosts()
	if err != nil {
		return err
	}
	guest := ""
	if options.guest {
		guest = stack.GuestName(1)
	}
	return demo.Run(cmd.Context(), demo.Options{
		Stack: s, HasNodes: !up.ControlPlaneOnly, HasHosts: hasHosts, Guest: guest, Base: kind, Builder: options.builder, Printer: up.Progress,
		Program: invocation() + p.nameFlag(), Make: "make" + p.makeVariable(),
	})
}

// demoCluster says which cluster the demo brings up: the one that there is, else the best that this
// user can have.
func demoCluster(s *stack.Stack, options demoOptions) (stack.UpOptions, error) {
	up := stack.UpOptions{WithController: true, Tekton: options.builder == demo.Pipeline}
	var err error
	if up.Program, err = os.Executable(); err != nil {
		return up, err
	}
	if options.controller != "" {
		if up.ControllerProgram, err = filepath.Abs(options.controller); err != nil {
			return up, err
		}
	}
	hasNodes, err := s.HasNodes()
	switch missing := (*stack.NotFoundError)(nil); {
	case errors.As(err, &missing):
		up.ControlPlaneOnly = options.controlPlaneOnly || os.Geteuid() != 0
	case err != nil:
		return up, err
	default:
		up.ControlPlaneOnly = !hasNodes || options.controlPlaneOnly
	}
	return up, nil
}
