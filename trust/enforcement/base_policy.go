package enforcement

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/builder/wanted/recipe"
	"github.com/layerwright/layerwright/internal/fault"
	"github.com/layerwright/layerwright/internal/registry"
	"github.com/layerwright/layerwright/osimage/osindex"
	"github.com/layerwright/layerwright/trust/signaturepolicy"
)

// RecheckBase is when it is looked again whether the OS image is known.
const RecheckBase = 5 * time.Second

// basePaths are where the OS image may have a file that our MachineConfig replaces, by its path:
// the first that is there counts on nodes.
var basePaths = map[string][]string{
	signaturepolicy.PolicyPath:   {signaturepolicy.PolicyPath, "/usr/share/containers/policy.json"},
	signaturepolicy.RegistryPath: {signaturepolicy.RegistryPath},
}

// basePolicies remember what was read of OS images that their index does not keep: that of the last
// one, for each MachineOSConfig.
type basePolicies struct {
	mu   sync.Mutex
	last map[string]basePolicy
}

type basePolicy struct {
	image string
	files signaturepolicy.Files
}

// below are the files that nodes would have without ours: those of the pool's other MachineConfigs,
// and where these say nothing those of the OS image. An administrator may have built the one or the
// other so that nodes accept less than everything. The other files of registries.d are among them.
func (r *Reconciler) below(ctx context.Context, e *enforcement) (signaturepolicy.Files, error) {
	hasAll := true
	for _, path := range signaturepolicy.Paths() {
		if _, has := e.existing.Files[path]; !has {
			hasAll = false
		}
	}
	if hasAll {
		return e.existing.Files, nil
	}
	base, pull := r.options.Bases(e.config.Name)
	if base == nil {
		return nil, fault.NewWaiting(mcfgv1.ReasonWaitingForPool, RecheckBase, fmt.Errorf(
			"the OS image of MachineOSConfig %q is not known yet; see its status", e.config.Name))
	}
	ofBase, err := r.basePolicies.read(e.config.Name, base, func(p *recipe.Platform) (signaturepolicy.Files, error) {
		return r.readBasePolicy(ctx, pull, p)
	})
	if err != nil {
		return nil, err
	}
	files := signaturepolicy.Files{}
	maps.Copy(files, ofBase)
	maps.Copy(files, e.existing.Files)
	return files, nil
}

// read gives the files of an OS image. One MachineConfig is for all of a pool's architectures, so
// they have to be the same for all. A registry may be slow: meanwhile others read theirs.
func (b *basePolicies) read(config string, base *recipe.Base, read func(*recipe.Platform) (signaturepolicy.Files, error)) (signaturepolicy.Files, error) {
	if last := b.of(config); last.image == base.Below() {
		return last.files, nil
	}
	var first signaturepolicy.Files
	for i := range base.Platforms {
		files, err := read(&base.Platforms[i])
		if err != nil {
			return nil, err
		}
		if i == 0 {
			first = files
		}
		for path, text := range files {
			if _, has := first[path]; !has && signaturepolicy.IsRegistries(path) {
				first[path] = text
			}
		}
		for _, path := range signaturepolicy.Paths() {
			if !bytes.Equal(first[path], files[path]) {
				return nil, fault.NewTerminal(mcfgv1.ReasonInvalidMachineConfig, fmt.Errorf(
					"the OS image %q has another %s for %s than for %s; put one into a MachineConfig of the pool",
					base.Image, path, base.Platforms[i].Architecture, base.Platforms[0].Architecture))
			}
		}
	}
	b.remember(config, basePolicy{base.Below(), first})
	return first, nil
}

// of is what was read last for a MachineOSConfig.
func (b *basePolicies) of(config string) basePolicy {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.last[config]
}

func (b *basePolicies) remember(config string, read basePolicy) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.last == nil {
		b.last = map[string]basePolicy{}
	}
	b.last[config] = read
}

// forget drops what is known for a MachineOSConfig that is gone.
func (b *basePolicies) forget(config string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.last, config)
}

// readBasePolicy reads the files that an OS image has for an architecture. Mostly its index keeps
// them, and the registry is asked for no layer.
func (r *Reconciler) readBasePolicy(ctx context.Context, pull *registry.Client, p *recipe.Platform) (signaturepolicy.Files, error) {
	files := signaturepolicy.Files{}
	at := map[string]string{}
	index, err := p.Open(ctx)
	if err != nil {
		return nil, err
	}
	for path, candidates := range basePaths {
		for _, candidate := range candidates {
			resolved, err := index.Follow(candidate)
			if err != nil || !resolved.Exists() {
				continue // nodes can't read it either
			}
			if resolved.Entry.Kind != osindex.File {
				return nil, fault.NewTerminal(mcfgv1.ReasonInvalidMachineConfig, fmt.Errorf(
					"%s of the OS image %q is no file; put one into a MachineConfig of the pool", candidate, p.Image))
			}
			at[path] = resolved.Path
			break
		}
	}
	if dir, err := index.Follow(signaturepolicy.RegistriesDir); err == nil {
		for name := range index.Children(dir.Path) {
			path := signaturepolicy.RegistriesDir + "/" + name
			if resolved, err := index.Follow(path); err == nil && resolved.Entry.Kind == osindex.File && signaturepolicy.IsRegistries(path) {
				at[path] = resolved.Path
			}
		}
	}
	for path, place := range at {
		if content, kept := index.Content(place); kept {
			files[path] = content
			delete(at, path)
		}
	}
	if len(at) == 0 {
		return files, nil
	}
	image, err := pull.Image(ctx, p.Image, p.Platform)
	if err != nil {
		return nil, err
	}
	contents, err := r.options.Files.ReadFiles(ctx, image, index, slices.Sorted(maps.Values(at)))
	if err != nil {
		return nil, fmt.Errorf("reading what the OS image %q says of signatures: %w", p.Image, err)
	}
	for path, place := range at {
		files[path] = contents[place]
	}
	return files, nil
}
