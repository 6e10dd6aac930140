package machineconfigs

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/BurntSushi/toml"
)

// Files in which hosts read where images come from: the one, and then those of the folder.
const (
	registriesPath = "/etc/containers/registries.conf"
	registriesDir  = "/etc/containers/registries.conf.d"
)

// RegistriesConf is what hosts read from registries.conf and the files of registries.conf.d, as one
// file; empty where there are none. What has to be fetched first can't say how to fetch, and is
// left out.
func (c *Config) RegistriesConf() ([]byte, error) {
	texts := map[string][]byte{}
	for _, file := range c.Ignition.Storage.Files {
		if file.Path != registriesPath && (path.Dir(file.Path) != registriesDir || path.Ext(file.Path) != ".conf") {
			continue
		}
		text, isRemote, err := DecodeContents(file.Contents)
		if err != nil {
			return nil, fmt.Errorf("file %s: %w", file.Path, err)
		}
		if !isRemote {
			texts[file.Path] = text
		}
	}
	paths := slices.Sorted(maps.Keys(texts)) // registriesPath comes before all in registriesDir
	if len(paths) == 1 {
		return texts[paths[0]], nil
	}
	whole := map[string]any{}
	for _, name := range paths {
		var more map[string]any
		if err := toml.Unmarshal(texts[name], &more); err != nil {
			return nil, fmt.Errorf("file %s: %w", name, err)
		}
		addConf(whole, more)
	}
	if len(whole) == 0 {
		return nil, nil
	}
	var out bytes.Buffer
	err := toml.NewEncoder(&out).Encode(whole)
	return out.Bytes(), err
}

// addConf adds what a later file says. It takes the place of what was said before, registry by
// registry, and alias by alias.
func addConf(whole, more map[string]any) {
	for key, value := range more {
		switch value := value.(type) {
		case []map[string]any:
			before, _ := whole[key].([]map[string]any)
			kept := slices.DeleteFunc(slices.Clone(before), func(old map[string]any) bool {
				return slices.ContainsFunc(value, func(later map[string]any) bool { return prefixOf(later) == prefixOf(old) })
			})
			whole[key] = append(kept, value...)
		case map[string]any:
			merged, _ := whole[key].(map[string]any)
			merged = maps.Clone(merged)
			if merged == nil {
				merged = map[string]any{}
			}
			maps.Copy(merged, value)
			whole[key] = merged
		default:
			whole[key] = value
		}
	}
}

// prefixOf is what a registry is known by: its prefix, or else its location.
func prefixOf(registry map[string]any) string {
	prefix, _ := registry["prefix"].(string)
	location, _ := registry["location"].(string)
	return strings.TrimRight(cmp.Or(prefix, location), "/")
}
