package stack

import (
	"context"
	"fmt"
	"path/filepath"
	"regexp"

	"golang.org/x/sync/errgroup"

	"github.com/layerwright/layerwright/internal/names"
	"github.com/layerwright/layerwright/test/cluster/await"
	"github.com/layerwright/layerwright/test/cluster/controlplane"
	"github.com/layerwright/layerwright/test/cluster/daemon"
	"github.com/layerwright/layerwright/test/cluster/pki"
	"github.com/layerwright/layerwright/test/cluster/stack/deploy"
)

// startWithProcess starts a control plane without nodes and, as processes,
// registry and controller.
func (u *up) startWithProcess(ctx context.Context) error {
	program := u.ControllerProgram
	background, inner := errgroup.WithContext(ctx)
	if program == "" {
		background.Go(func() error { return u.step("controller program", u.compileTo(&program))(inner) })
	}
	background.Go(func() error {
		if err := u.startPlaneAlone(inner); err != nil {
			return err
		}
		return together(inner,
			u.step("registry", u.startRegistry),
			u.step("kinds, policies and rights", u.installForProcess))
	})
	if err := background.Wait(); err != nil {
		return err
	}
	return u.step("controller", func(ctx context.Context) error { return u.startController(ctx, program) })(ctx)
}

func (u *up) compileTo(program *string) func(context.Context) error {
	return func(ctx context.Context) (err error) {
		*program, err = deploy.CompileController(ctx, u.repository, u.dir)
		return err
	}
}

// installForProcess applies deploy/ without what would want a pod.
func (u *up) installForProcess(ctx context.Context) error {
	ctx, cancel := starting(ctx)
	defer cancel()
	if err := u.applyOverlay(ctx, deploy.Process()); err != nil {
		return err
	}
	// The controller watches these kinds from its first second.
	if err := u.kubectl().Run(ctx, "wait", "--for=condition=Established", "--timeout="+startTimeout.String(), "crd", "--all"); err != nil {
		return err
	}
	return together(ctx,
		func(ctx context.Context) error { return await.Policies(ctx, u.clients) },
		func(ctx context.Context) error { return u.handOutAccounts(ctx, Namespace) },
		func(ctx context.Context) error { return u.handOutAccounts(ctx, "default") })
}

// startController starts the controller, or leaves it running, and waits until
// it works, which it does once it has the Lease.
func (u *up) startController(ctx context.Context, program string) error {
	_, err := u.manager.Ensure(ctx, u.controllerSpec(program))
	return err
}

func (u *up) controllerSpec(program string) daemon.Spec {
	kubeconfig := u.pki.Kubeconfig(controllerUser.Name)
	authority := u.pki.Cert(controlplane.Authority)
	return daemon.Spec{
		Name: ControllerName,
		Argv: []string{
			program, "controller",
			"--kubeconfig", kubeconfig,
			"--namespace", Namespace, "--leader-election-namespace", Namespace,
			"--metrics-bind-address", fmt.Sprintf("127.0.0.1:%d", u.state.MetricsPort),
			"--health-probe-bind-address", "0", // there is no kubelet to ask
			"--base-image-cache-dir", filepath.Join(u.dir, "base-images"),
			"--stream-cache-dir", filepath.Join(u.dir, "streams"), "--stream-pull-secret", PullSecret,
			"--signing-secret", names.SigningKey, "--generate-signing-key", // as the component does it
		},
		Env:    []string{"SSL_CERT_FILE=" + authority},
		Inputs: []string{program, kubeconfig, authority},
		Ready:  daemon.Readiness{LogLine: regexp.MustCompile(`"Successfully acquired lease"`)},
	}
}

// redeployProcess replaces the controller by the checkout's.
func (u *up) redeployProcess(ctx context.Context) error {
	var err error
	if u.pki, err = pki.New(filepath.Join(u.dir, "pki")); err != nil {
		return err
	}
	var program string
	if err := u.step("controller program", u.compileTo(&program))(ctx); err != nil {
		return err
	}
	return u.step("controller", func(ctx context.Context) error {
		if err := u.installForProcess(ctx); err != nil {
			return err
		}
		return u.startController(ctx, program)
	})(ctx)
}
