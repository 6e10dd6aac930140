package stack

import (
	"context"
	_ "embed" // the manifests of this package
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/kubernetes"

	"github.com/layerwright/layerwright/test/cluster/await"
	"github.com/layerwright/layerwright/test/cluster/controlplane"
	"github.com/layerwright/layerwright/test/cluster/daemon"
	"github.com/layerwright/layerwright/test/cluster/files"
	"github.com/layerwright/layerwright/test/cluster/gateway"
	"github.com/layerwright/layerwright/test/cluster/hostsfile"
	"github.com/layerwright/layerwright/test/cluster/progress"
	"github.com/layerwright/layerwright/test/cluster/stack/deploy"
)

//go:embed manifests/services.yaml
var servicesManifest []byte

// startControlPlaneOnly starts what needs no root. Its ports are those of the
// host, so another process may take one between choice and use.
func (u *up) startControlPlaneOnly(ctx context.Context) error {
	if u.state.Controller {
		return u.startWithProcess(ctx)
	}
	return u.startPlaneAlone(ctx)
}

func (u *up) startPlaneAlone(ctx context.Context) error {
	ctx, cancel := starting(ctx)
	defer cancel()
	return u.Progress.Do("control plane", func(*progress.Step) error {
		const attempts = 3
		for attempt := 1; ; attempt++ {
			err := u.tryControlPlane(ctx)
			if !controlplane.IsPortTaken(err) || attempt == attempts {
				return err
			}
			if err := u.choosePlanePorts(u.state); err != nil {
				return err
			}
			if err := u.save(u.state); err != nil {
				return err
			}
		}
	})
}

func (u *up) tryControlPlane(ctx context.Context) error {
	if err := u.preparePlane(); err != nil {
		return err
	}
	if err := u.startPlane(ctx); err != nil {
		return err
	}
	return await.ServiceAccount(ctx, u.clients, "default", "default")
}

// preparePlane describes the control plane and makes all certificates.
func (u *up) preparePlane() error {
	u.plane = &controlplane.Config{
		Cluster: u.name, Bin: u.bin.kubernetes, Dir: u.dir, PKI: u.pki, Manager: u.manager, Ports: u.state.Ports,
		AdminServer: fmt.Sprintf("https://127.0.0.1:%d", u.state.APIPort),
	}
	if !u.state.ControlPlaneOnly {
		u.plane.NodeAddress, u.plane.NetNSOf = gateway.NodeAddress(1), gatewayName
	}
	if err := u.ensurePKI(); err != nil {
		return err
	}
	kubeconfig, err := os.ReadFile(u.pki.Kubeconfig(controlplane.Admin))
	if err != nil {
		return err
	}
	return files.Write(u.Kubeconfig(), kubeconfig, 0o600)
}

func (u *up) startPlane(ctx context.Context) error {
	config, err := u.plane.Start(ctx)
	if err != nil {
		return err
	}
	u.clients, err = kubernetes.NewForConfig(config)
	return err
}

// startAll starts a cluster with nodes: what doesn't depend on each other side
// by side, because starting is mostly waiting.
func (u *up) startAll(ctx context.Context) error {
	if err := u.step("private network", u.startNetwork)(ctx); err != nil {
		return err
	}
	images := &deploy.Images{}
	background, inner := errgroup.WithContext(ctx)
	if !u.SkipController {
		background.Go(func() error { return u.step("controller image", u.buildImages(images))(inner) })
	}
	err := u.startComponents(inner)
	if err == nil && u.state.Tekton {
		err = u.step("Tekton Available", u.installTekton)(inner)
	}
	if err := errors.Join(err, background.Wait()); err != nil {
		return err
	}
	var last []func(context.Context) error
	if !u.SkipController {
		last = append(last, u.step("controller Available", func(ctx context.Context) error { return u.deployController(ctx, images) }))
	}
	if u.state.Guests > 0 {
		last = append(last, u.step("guests Ready", func(ctx context.Context) error { return u.startGuests(ctx, images) }))
	}
	return together(ctx, last...)
}

func (u *up) startComponents(ctx context.Context) error {
	ctx, cancel := starting(ctx)
	defer cancel()
	err := together(ctx,
		u.step("control plane", u.startPlane),
		u.step("container runtimes", u.startRuntimes),
		u.step("registry", u.startRegistry))
	if err != nil {
		return err
	}
	return together(ctx,
		u.step("name server and service proxy", u.startServices),
		u.step("registry accounts", func(ctx context.Context) error { return u.handOutAccounts(ctx, "default") }),
		u.startNodes)
}

// startNodes boots the nodes' machines where they have any, and starts their kubelets.
func (u *up) startNodes(ctx context.Context) error {
	if u.state.Hosts {
		if err := u.step("hosts", u.startHosts)(ctx); err != nil {
			return err
		}
	}
	return u.step("nodes Ready", u.startKubelets)(ctx)
}

// startNetwork starts the process that all others share the network of, and
// makes what they all read.
func (u *up) startNetwork(ctx context.Context) error {
	if err := u.preparePlane(); err != nil {
		return err
	}
	if _, err := u.manager.Ensure(ctx, u.gatewaySpec()); err != nil {
		return err
	}
	return u.hosts(ctx).Set(u.name, u.RegistryHost())
}

func (s *Stack) hosts(ctx context.Context) hostsfile.File {
	return hostsfile.File{Path: hostsfile.Path, Lock: func() (func(), error) {
		return files.Lock(ctx, filepath.Join(s.cache, "clusters", "hosts.lock"))
	}}
}

// startServices starts what pods need to find and reach Services.
func (u *up) startServices(ctx context.Context) error {
	if err := u.kubectl().Apply(ctx, servicesManifest); err != nil {
		return err
	}
	for _, spec := range []func() (daemon.Spec, error){u.proxySpec, u.dnsSpec} {
		s, err := spec()
		if err != nil {
			return err
		}
		if _, err := u.manager.Ensure(ctx, s); err != nil {
			return err
		}
	}
	return nil
}

// startRegistry starts the registry with its accounts.
func (u *up) startRegistry(ctx context.Context) error {
	accounts, err := json.Marshal(u.state.Accounts)
	if err != nil {
		return err
	}
	if err := files.Write(u.accountsPath(), accounts, 0o600); err != nil {
		return err
	}
	_, err = u.manager.Ensure(ctx, u.registrySpec())
	return err
}
