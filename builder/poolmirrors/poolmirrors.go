package poolmirrors

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/builder/objects"
	"github.com/layerwright/layerwright/internal/fault"
	"github.com/layerwright/layerwright/internal/registry/mirrors"
)

// Sets say what a cluster says of mirrors; *mirrorsets.Reader does.
type Sets interface {
	Rules(ctx context.Context) (mirrors.Rules, error)
	Watched() []client.Object
}

// Reader reads where images are.
type Reader struct {
	Sets

	cache, live client.Reader

	mu sync.Mutex
	// known is what the rendered configuration of a pool says.
	known map[string]rendered
}

// rendered is what one says of registries.
type rendered struct {
	name  string
	rules mirrors.Rules
}

// New makes a Reader. Pools come from the cache, and MachineConfigs, which lack their content
// there, live.
func New(sets Sets, cache, live client.Reader) *Reader {
	return &Reader{Sets: sets, cache: cache, live: live, known: map[string]rendered{}}
}

// Of is where the images of a pool are read.
func (r *Reader) Of(ctx context.Context, pool string) (mirrors.Table, error) {
	own, err := r.ofPool(ctx, pool)
	if err != nil {
		return nil, err
	}
	cluster, err := r.Rules(ctx)
	if err != nil {
		return nil, err
	}
	return mirrors.Table{own, cluster}, nil
}

// ofPool is what the pool's rendered configuration says; nothing before there is one.
func (r *Reader) ofPool(ctx context.Context, pool string) (mirrors.Rules, error) {
	found := &mcfgv1.MachineConfigPool{}
	err := r.cache.Get(ctx, client.ObjectKey{Name: pool}, found)
	if err != nil && !apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("reading MachineConfigPool %q: %w", pool, err)
	}
	name := found.Spec.Configuration.Name
	if name == "" {
		return nil, nil
	}
	r.mu.Lock()
	known := r.known[pool]
	r.mu.Unlock()
	if known.name == name {
		return known.rules, nil
	}
	rules, err := r.read(ctx, name)
	if err != nil {
		return nil, err
	}
	var pools mcfgv1.MachineConfigPoolList
	if err := r.cache.List(ctx, &pools, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing MachineConfigPools: %w", err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.known[pool] = rendered{name, rules}
	maps.DeleteFunc(r.known, func(known string, _ rendered) bool {
		return !slices.ContainsFunc(pools.Items, func(p mcfgv1.MachineConfigPool) bool { return p.Name == known })
	})
	return rules, nil
}

func (r *Reader) read(ctx context.Context, name string) (mirrors.Rules, error) {
	config, err := objects.ReadConfiguration(ctx, r.live, name)
	if err != nil {
		return nil, err
	}
	conf, err := config.RegistriesConf()
	var rules mirrors.Rules
	if err == nil {
		rules, err = mirrors.ParseConf(conf)
	}
	if err != nil {
		return nil, fault.NewTerminal(mcfgv1.ReasonInvalidMachineConfig, fmt.Errorf("registries.conf of MachineConfig %q: %w", name, err))
	}
	return rules, nil
}
