package machineconfigs

import (
	"fmt"
	"slices"
	"strings"
)

// Files that say how hosts pull images, beside those of RegistriesConf.
const (
	policyPath  = "/etc/containers/policy.json"
	anchorsPath = "/etc/pki/ca-trust/source/anchors/"
)

// Pulling is what hosts go by when they pull images.
type Pulling struct {
	// Registries is RegistriesConf, and Policy the signature policy; empty where there is none.
	Registries, Policy []byte
	// Anchors are certificate authorities, as PEM.
	Anchors []byte
}

// Pulling is what the configuration's hosts go by. What has to be fetched first can't say how to
// fetch, and is left out.
func (c *Config) Pulling() (p Pulling, err error) {
	if p.Registries, err = c.RegistriesConf(); err != nil {
		return p, err
	}
	for _, file := range c.Ignition.Storage.Files {
		isAnchor := strings.HasPrefix(file.Path, anchorsPath)
		if file.Path != policyPath && !isAnchor {
			continue
		}
		data, isRemote, err := DecodeContents(file.Contents)
		switch {
		case err != nil:
			return p, fmt.Errorf("file %s: %w", file.Path, err)
		case isRemote:
		case isAnchor:
			p.Anchors = slices.Concat(p.Anchors, data, []byte{'\n'})
		default:
			p.Policy = data
		}
	}
	return p, nil
}
