package stack

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/kubernetes"

	"github.com/layerwright/layerwright/test/cluster/controlplane"
	"github.com/layerwright/layerwright/test/cluster/daemon"
	"github.com/layerwright/layerwright/test/cluster/node"
	"github.com/layerwright/layerwright/test/cluster/pki"
	"github.com/layerwright/layerwright/test/cluster/progress"
	"github.com/layerwright/layerwright/test/cluster/stack/deploy"
)

// startTimeout bounds the start of the cluster, and of the controller on
// it; compiling is bounded by the caller's patience alone.
const startTimeout = 8 * time.Minute

// UpOptions say what to bring up. The zero value is one node and free ports.
type UpOptions struct {
	// Nodes is the number of nodes; 0 keeps what the cluster has, or makes one.
	Nodes int
	// Guests is the number of further nodes that are virtual machines; 0 keeps what the cluster
	// has. The others become hosts, because there is one DaemonSet of agents for all.
	Guests int
	// Hosts gives each node a root of its own, deployed from an image. A cluster that has them
	// keeps them.
	Hosts bool
	// Tekton installs Tekton Pipelines, and has the controller use it. A cluster that has it keeps
	// it.
	Tekton bool
	// ControlPlaneOnly leaves out everything that needs root.
	ControlPlaneOnly bool
	// WithController adds registry and controller to a control plane without
	// nodes, as processes. One that has them keeps them.
	WithController bool
	// ControllerProgram is a controller to run as such a process; empty to
	// compile the checkout's.
	ControllerProgram string
	// APIPort and RegistryPort demand ports of the host; 0 takes free ones.
	APIPort, RegistryPort int
	// Bare leaves out all of Layerwright, also when the cluster is brought up again. A cluster
	// that has Layerwright can't become bare.
	Bare bool
	// SkipController leaves out the Layerwright controller.
	SkipController bool
	// Program is this program's executable; its "internal" commands run inside
	// the cluster.
	Program  string
	Progress *progress.Printer
}

// up is one run of Up, or of what changes a cluster that is up.
type up struct {
	*Stack
	UpOptions
	program string
	state   *state
	pki     *pki.Store
	manager *daemon.Manager
	plane   *controlplane.Config
	cgroups *node.Cgroups
	nodes   []*node.Node
	clients kubernetes.Interface
	bin     struct{ kubernetes, node, dns, pause, kms, tekton string }
}

// starting gives a part of the start its deadline.
func starting(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, startTimeout, fmt.Errorf("the cluster was not up after %s", startTimeout))
}

// step makes the progress of a part of the work visible.
func (u *up) step(title string, run func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error {
		return u.Progress.Do(title, func(*progress.Step) error { return run(ctx) })
	}
}

// together runs parts side by side and returns the first error.
func together(ctx context.Context, parts ...func(context.Context) error) error {
	group, ctx := errgroup.WithContext(ctx)
	for _, part := range parts {
		group.Go(func() error { return part(ctx) })
	}
	return group.Wait()
}

// kubectl is the program with the admin's rights.
func (u *up) kubectl() deploy.Kubectl {
	return deploy.Kubectl{Bin: u.bin.kubernetes, Kubeconfig: u.Kubeconfig()}
}
