package offline

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/containerfiles"
	"github.com/layerwright/layerwright/internal/manifests"
	"github.com/layerwright/layerwright/machineconfigs"
	"github.com/layerwright/layerwright/streams"
)

// NewScheme knows the kinds that an image is described from.
func NewScheme() (*runtime.Scheme, error) {
	scheme := runtime.NewScheme()
	if err := mcfgv1.AddToScheme(scheme); err != nil {
		return nil, err
	}
	scheme.AddKnownTypes(corev1.SchemeGroupVersion, &corev1.ConfigMap{}, &corev1.ConfigMapList{})
	return scheme, nil
}

// Cluster is what files say of a cluster, by kind.
type Cluster struct {
	MachineConfigs []*mcfgv1.MachineConfig
	Pools          []*mcfgv1.MachineConfigPool
	OSConfigs      []*mcfgv1.MachineOSConfig
	Streams        *mcfgv1.OSImageStream
	ConfigMaps     map[string]containerfiles.ConfigMap
	// Unused are objects that play no part in an image, for people.
	Unused []string
}

// NewCluster sorts what was read.
func NewCluster(set *manifests.Set) *Cluster {
	c := &Cluster{ConfigMaps: map[string]containerfiles.ConfigMap{}, Unused: slices.Clone(set.Others)}
	for _, object := range set.Objects {
		switch o := object.(type) {
		case *mcfgv1.MachineConfig:
			c.MachineConfigs = append(c.MachineConfigs, o)
		case *mcfgv1.MachineConfigPool:
			c.Pools = append(c.Pools, o)
		case *mcfgv1.MachineOSConfig:
			c.OSConfigs = append(c.OSConfigs, o)
		case *mcfgv1.OSImageStream:
			c.Streams = withSpecImages(o)
		case *corev1.ConfigMap:
			c.ConfigMaps[o.Name] = containerfiles.ConfigMap{Data: o.Data, BinaryData: o.BinaryData}
		default:
			kind := object.GetObjectKind().GroupVersionKind().Kind
			c.Unused = append(c.Unused, fmt.Sprintf("%s %q", kind, object.GetName()))
		}
	}
	return c
}

// withSpecImages lets the images of spec stand for status where no one has looked at them yet, as
// in a file that was never applied.
func withSpecImages(stream *mcfgv1.OSImageStream) *mcfgv1.OSImageStream {
	if len(stream.Status.AvailableStreams) > 0 || len(stream.Spec.Images) == 0 {
		return stream
	}
	stream = stream.DeepCopy()
	var sets []mcfgv1.OSImageStreamSet
	for _, images := range stream.Spec.Images {
		sets = append(sets, mcfgv1.OSImageStreamSet{
			Name:              images.Name,
			OSImage:           mcfgv1.ImageDigestFormat(images.OSImage),
			OSExtensionsImage: mcfgv1.ImageDigestFormat(images.OSExtensionsImage),
			Lifecycle:         images.Lifecycle,
			DeprecationDate:   images.DeprecationDate,
			EndOfLifeDate:     images.EndOfLifeDate,
			NodeLabels:        images.NodeLabels,
		})
	}
	stream.Status.SetStreams(sets, stream.Spec.DefaultStream)
	return stream
}

// PoolName is the pool that is meant where no one names one: that of the only MachineOSConfig, else
// the only pool, else worker.
func (c *Cluster) PoolName() string {
	switch {
	case len(c.OSConfigs) == 1:
		return c.OSConfigs[0].Spec.MachineConfigPool.Name
	case len(c.Pools) == 1:
		return c.Pools[0].Name
	default:
		return mcfgv1.PoolWorker
	}
}

// Pool is the pool of a name. One that is in no file is what such pools usually are: by the role of
// its name and, for a custom pool, that of workers.
func (c *Cluster) Pool(name string) *mcfgv1.MachineConfigPool {
	for _, pool := range c.Pools {
		if pool.Name == name {
			return pool
		}
	}
	roles := []string{name}
	if streams.IsCustom(name) {
		roles = []string{mcfgv1.PoolWorker, name}
	}
	return &mcfgv1.MachineConfigPool{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: mcfgv1.MachineConfigPoolSpec{MachineConfigSelector: &metav1.LabelSelector{
			MatchExpressions: []metav1.LabelSelectorRequirement{
				{Key: mcfgv1.LabelRole, Operator: metav1.LabelSelectorOpIn, Values: roles},
			},
		}},
	}
}

// OSConfig is the MachineOSConfig of a pool; nil if there is none.
func (c *Cluster) OSConfig(pool string) *mcfgv1.MachineOSConfig {
	for _, config := range c.OSConfigs {
		if config.Spec.MachineConfigPool.Name == pool {
			return config
		}
	}
	return nil
}

// Selected are the MachineConfigs that a pool joins, sorted by name.
func (c *Cluster) Selected(pool string) ([]*mcfgv1.MachineConfig, error) {
	_, selected, err := c.choose(pool)
	return selected, err
}

// choose finds the stream of a pool, and the MachineConfigs that it joins.
func (c *Cluster) choose(name string) (streams.Choice, []*mcfgv1.MachineConfig, error) {
	pool, worker := c.Pool(name), c.Pool(mcfgv1.PoolWorker)
	choice, err := streams.ForPool(streams.Subject{Pool: pool, Worker: worker, Rendered: c.rendered(pool)}, c.Streams)
	if err != nil {
		return choice, nil, fmt.Errorf("choosing the stream of pool %q: %w", name, err)
	}
	selected, err := machineconfigs.Select(pool, choice.Name, c.MachineConfigs)
	return choice, selected, err
}

// Render joins the MachineConfigs of a pool. Files that have nothing but one rendered MachineConfig
// of the pool mean that one.
func (c *Cluster) Render(name, version string) (*machineconfigs.Rendered, error) {
	choice, selected, err := c.choose(name)
	if err != nil {
		return nil, err
	}
	if len(selected) == 0 {
		return c.onlyRendered(name)
	}
	return machineconfigs.Render(machineconfigs.Options{
		Pool:              name,
		ControllerVersion: version,
		Images: machineconfigs.Images{
			OSImage:         string(choice.Images.OSImage),
			ExtensionsImage: string(choice.Images.OSExtensionsImage),
			Stream:          choice.Name,
			Explicit:        choice.Explicit,
		},
	}, selected)
}

// parsed are the MachineConfigs of these names, in their order. One that can't be parsed was
// refused before.
func (c *Cluster) parsed(names []string) []*machineconfigs.Config {
	var out []*machineconfigs.Config
	for _, name := range names {
		for _, config := range c.MachineConfigs {
			if config.Name != name {
				continue
			}
			if parsed, err := machineconfigs.Parse(config); err == nil {
				out = append(out, parsed)
			}
		}
	}
	return out
}

// rendered is the MachineConfig that spec.configuration of a pool names; nil if it is in no file.
func (c *Cluster) rendered(pool *mcfgv1.MachineConfigPool) *mcfgv1.MachineConfig {
	for _, config := range c.MachineConfigs {
		if config.Name == pool.Spec.Configuration.Name {
			return config
		}
	}
	return nil
}

func (c *Cluster) onlyRendered(pool string) (*machineconfigs.Rendered, error) {
	var found []*mcfgv1.MachineConfig
	for _, config := range c.MachineConfigs {
		if machineconfigs.IsRendered(config) && strings.HasPrefix(config.Name, "rendered-"+pool+"-") {
			found = append(found, config)
		}
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("the files have no MachineConfig for pool %q: label them %s=%s, or name another pool",
			pool, mcfgv1.LabelRole, pool)
	}
	if len(found) > 1 {
		return nil, fmt.Errorf("the files have %d rendered MachineConfigs of pool %q and no MachineConfigs to render from: keep only one", len(found), pool)
	}
	config, err := machineconfigs.Parse(found[0])
	if err != nil {
		return nil, err
	}
	return &machineconfigs.Rendered{MachineConfig: found[0], Config: config}, nil
}

// Sources are the Containerfiles of a MachineOSConfig, or the one that stands in for them.
func (c *Cluster) Sources(config *mcfgv1.MachineOSConfig, override *containerfiles.Source) ([]containerfiles.Source, error) {
	switch {
	case override != nil:
		return []containerfiles.Source{*override}, nil
	case config == nil:
		return nil, nil
	}
	sources, err := containerfiles.ResolveSources(config.Spec.Containerfile, c.ConfigMaps)
	var missing *containerfiles.MissingError
	if errors.As(err, &missing) {
		return nil, fmt.Errorf("reading the Containerfiles of MachineOSConfig %q: %w; give its file too", config.Name, err)
	}
	if err != nil {
		return nil, fmt.Errorf("reading the Containerfiles of MachineOSConfig %q: %w", config.Name, err)
	}
	return sources, nil
}
