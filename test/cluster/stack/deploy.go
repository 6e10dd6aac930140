package stack

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/layerwright/layerwright/test/cluster/await"
	"github.com/layerwright/layerwright/test/cluster/files"
	"github.com/layerwright/layerwright/test/cluster/progress"
	"github.com/layerwright/layerwright/test/cluster/stack/deploy"
)

// Namespace is where the controller runs.
const Namespace = "layerwright"

// ControllerName is that of its Deployment.
const ControllerName = "layerwright-controller"

// Names of the Secrets that log in at the cluster's registry.
const (
	PullSecret = "registry-pull"
	PushSecret = "registry-push"
)

// Deploy builds the controller, loads its image into the nodes of a cluster
// that is up, applies deploy/ and waits until it is Available.
func (s *Stack) Deploy(ctx context.Context, p *progress.Printer) error {
	unlock, err := s.lock()
	if err != nil {
		return err
	}
	defer unlock()
	u := &up{Stack: s, UpOptions: UpOptions{Progress: p}}
	if u.state, err = s.load(); err != nil {
		return err
	}
	u.ControlPlaneOnly = u.state.ControlPlaneOnly
	if u.state.ControlPlaneOnly && !u.state.Controller {
		return fmt.Errorf("cluster %q has no nodes to run the controller on: it was made with --control-plane-only; "+
			"`cluster demo` runs it there, as a process", s.name)
	}
	if err := u.prepareDeploy(ctx); err != nil {
		return err
	}
	if u.state.ControlPlaneOnly {
		return u.redeployProcess(ctx)
	}
	if u.state.Bare { // it is no longer
		u.state.Bare = false
		if err := u.save(u.state); err != nil {
			return err
		}
	}
	images := &deploy.Images{}
	if err := u.step("controller image", u.buildImages(images))(ctx); err != nil {
		return err
	}
	if u.state.Guests > 0 {
		if err := u.step("agent image on guests", func(ctx context.Context) error { return u.loadGuests(ctx, images.Agent) })(ctx); err != nil {
			return err
		}
	}
	return u.step("controller Available", func(ctx context.Context) error { return u.deployController(ctx, images) })(ctx)
}

// prepareDeploy finds what an earlier Up has made.
func (u *up) prepareDeploy(ctx context.Context) error {
	if err := u.ensureTools(ctx); err != nil {
		return err
	}
	var err error
	if u.manager, err = u.Stack.manager(); err != nil {
		return err
	}
	u.nodes = u.Stack.nodes(u.state, u.manager)
	for _, n := range u.nodes {
		n.NodeBin = u.bin.node
	}
	u.clients, err = u.Clients()
	return err
}

// buildImages makes the images of the checkout.
func (u *up) buildImages(images *deploy.Images) func(context.Context) error {
	return func(ctx context.Context) (err error) {
		*images, err = deploy.Build(ctx, u.repository, u.bin.kms, u.state.Hosts)
		return err
	}
}

// deployController loads the images, applies deploy/ and waits.
func (u *up) deployController(ctx context.Context, images *deploy.Images) error {
	ctx, cancel := starting(ctx)
	defer cancel()
	if u.state.Hosts { // a cluster that an earlier checkout brought up has it otherwise
		if err := u.placeAgents(ctx); err != nil {
			return err
		}
	}
	for _, n := range u.nodes {
		if err := images.Load(ctx, n); err != nil {
			return err
		}
	}
	of := deploy.Playground{RegistryPort: u.state.RegistryPort, Tekton: u.state.Tekton}
	if err := u.applyOverlay(ctx, deploy.Pods(*images, of)); err != nil {
		return err
	}
	if err := u.handOutAccounts(ctx, Namespace); err != nil {
		return err
	}
	if err := await.DeploymentAvailable(ctx, u.clients, Namespace, ControllerName); err != nil {
		return err
	}
	return await.Policies(ctx, u.clients)
}

// applyOverlay applies deploy/ as the overlay has it.
func (u *up) applyOverlay(ctx context.Context, o *deploy.Overlay) error {
	return o.Apply(ctx, u.kubectl(), u.repository, filepath.Join(u.dir, "deploy"), u.Authority())
}

// installTekton brings Tekton onto the cluster.
func (u *up) installTekton(ctx context.Context) error {
	ctx, cancel := starting(ctx)
	defer cancel()
	tags, err := deploy.LoadTekton(ctx, u.bin.tekton, u.nodes)
	if err != nil {
		return err
	}
	manifests, err := u.tools.TektonManifests(ctx, tags)
	if err == nil {
		err = u.kubectl().Apply(ctx, manifests)
	}
	if err != nil {
		return err
	}
	return await.Tekton(ctx, u.clients)
}

// handOutAccounts puts the registry's accounts into Secrets of a namespace and
// lets its default ServiceAccount pull.
func (u *up) handOutAccounts(ctx context.Context, namespace string) error {
	if err := await.ServiceAccount(ctx, u.clients, namespace, "default"); err != nil {
		return err
	}
	options := metav1.ApplyOptions{FieldManager: deploy.FieldManager, Force: true}
	for _, account := range u.state.Accounts {
		config, err := account.DockerConfig(u.registry(u.state))
		if err != nil {
			return err
		}
		secret := corev1ac.Secret("registry-"+account.Name, namespace).
			WithType(corev1.SecretTypeDockerConfigJson).
			WithData(map[string][]byte{corev1.DockerConfigJsonKey: config})
		if _, err := u.clients.CoreV1().Secrets(namespace).Apply(ctx, secret, options); err != nil {
			return fmt.Errorf("handing out registry account %s: %w", account.Name, err)
		}
		if err := u.writeDockerConfig(account.Name, config); err != nil {
			return err
		}
	}
	defaultAccount := corev1ac.ServiceAccount("default", namespace).
		WithImagePullSecrets(corev1ac.LocalObjectReference().WithName(PullSecret))
	_, err := u.clients.CoreV1().ServiceAccounts(namespace).Apply(ctx, defaultAccount, options)
	return err
}

// writeDockerConfig gives programs of the host the account's credentials.
func (u *up) writeDockerConfig(account string, config []byte) error {
	dir := u.DockerConfig(account)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	return files.Write(filepath.Join(dir, "config.json"), config, 0o600)
}

// DockerConfig is the folder with the docker configuration of an account of the
// registry, "pull" or "push", for use as DOCKER_CONFIG on the host.
func (s *Stack) DockerConfig(account string) string { return filepath.Join(s.dir, "docker", account) }

// Clients returns clients of the cluster with the admin's rights.
func (s *Stack) Clients() (kubernetes.Interface, error) {
	config, err := s.Config()
	if err != nil {
		return nil, err
	}
	return kubernetes.NewForConfig(config)
}
