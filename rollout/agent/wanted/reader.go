package wanted

import (
	"context"
	"fmt"

	openshiftv1 "github.com/openshift/api/operator/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	operatorv1 "github.com/layerwright/layerwright/api/operator/v1"
	"github.com/layerwright/layerwright/internal/registry/dockerconfig"
	"github.com/layerwright/layerwright/machineconfigs"
	"github.com/layerwright/layerwright/machineconfigs/cmdline"
	"github.com/layerwright/layerwright/rollout/agent/nodestate"
	"github.com/layerwright/layerwright/rollout/host"
)

// Reader reads past the cache.
type Reader struct {
	client.Reader

	// Node is the name of the node, and Namespace that of the secrets that MachineOSConfigs name.
	Node, Namespace string
}

// Config is what of a rendered MachineConfig a host needs. A nil one is that of a node that has
// none.
type Config struct {
	// Content is what of it no image carries, and the paths of the rest.
	Content *machineconfigs.Config
	// Image is the OS image; empty where it names none.
	Image mcfgv1.ImageDigestFormat
	// Arguments are the kernel arguments.
	Arguments cmdline.Arguments
	// FIPS is spec.fips.
	FIPS bool
}

// Pool is the pool of the node; nil where it has none.
func (r *Reader) Pool(ctx context.Context) (*mcfgv1.MachineConfigPool, error) {
	report, pool := &mcfgv1.MachineConfigNode{}, &mcfgv1.MachineConfigPool{}
	if err := r.Get(ctx, client.ObjectKey{Name: r.Node}, report); err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	if err := r.Get(ctx, client.ObjectKey{Name: report.Spec.Pool.Name}, pool); err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	return pool, nil
}

// Mode is what the node's pool says of how images get onto nodes.
func (r *Reader) Mode(ctx context.Context) (host.Mode, error) {
	pool, err := r.Pool(ctx)
	if err != nil || pool == nil {
		return host.ModeAuto, err
	}
	switch pool.Spec.DeployMode {
	case mcfgv1.DeployModeBootc:
		return host.ModeBootc, nil
	case mcfgv1.DeployModeImage:
		return host.ModeRPMOSTree, nil
	default:
		return host.ModeAuto, nil
	}
}

// PullSecret is the content of the secret that the pool's MachineOSConfig names for nodes; nil
// where it names none.
func (r *Reader) PullSecret(ctx context.Context, pool *mcfgv1.MachineConfigPool) ([]byte, error) {
	if pool == nil {
		return nil, nil
	}
	layer := &mcfgv1.MachineOSConfig{}
	if err := r.Get(ctx, client.ObjectKey{Name: pool.Name}, layer); err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	if layer.Spec.CurrentImagePullSecret == nil {
		return nil, nil
	}
	name := layer.Spec.CurrentImagePullSecret.Name
	secret := &corev1.Secret{}
	if err := r.Get(ctx, client.ObjectKey{Namespace: r.Namespace, Name: name}, secret); err != nil {
		return nil, fmt.Errorf("reading secret %q, which spec.currentImagePullSecret of MachineOSConfig %q names: %w", name, layer.Name, err)
	}
	store, err := dockerconfig.Parse(secret)
	if err != nil {
		return nil, err
	}
	return store.DockerConfigJSON()
}

// Config reads a rendered MachineConfig.
func (r *Reader) Config(ctx context.Context, name string) (*Config, error) {
	mc := &mcfgv1.MachineConfig{}
	if err := r.Get(ctx, client.ObjectKey{Name: name}, mc); err != nil {
		return nil, fmt.Errorf("reading MachineConfig %q: %w", name, err)
	}
	content, err := nodestate.Read(mc)
	if err != nil {
		return nil, err
	}
	return &Config{
		Content: content, Image: mcfgv1.ImageDigestFormat(mc.Spec.OSImageURL), FIPS: mc.Spec.FIPS,
		Arguments: machineconfigs.CommandLine(content.Ignition.KernelArguments, mc.Spec.KernelArguments),
	}, nil
}

// Policies are the administrator's for changes of running nodes.
func (r *Reader) Policies(ctx context.Context) (*openshiftv1.NodeDisruptionPolicyConfig, error) {
	found := &operatorv1.MachineConfiguration{}
	err := r.Get(ctx, client.ObjectKey{Name: operatorv1.MachineConfigurationName}, found)
	if err != nil && !apierrors.IsNotFound(err) && !meta.IsNoMatchError(err) {
		return nil, fmt.Errorf("reading the policies of MachineConfiguration %q: %w", operatorv1.MachineConfigurationName, err)
	}
	return &found.Spec.NodeDisruptionPolicy, nil
}
