package machineconfigs

import (
	"cmp"
	"fmt"
	"path"
	"slices"
)

// RegistriesPath is registries.conf, and RegistriesDir the folder of the files that hosts read
// after it.
const (
	RegistriesPath = "/etc/containers/registries.conf"
	RegistriesDir  = "/etc/containers/registries.conf.d"
)

// RegistriesFile is one of these files.
type RegistriesFile struct {
	Path string
	Text []byte
}

// RegistriesFiles are those of a configuration, in the order in which hosts read them. What has to
// be fetched first can't say how to fetch, and is left out.
func (c *Config) RegistriesFiles() ([]RegistriesFile, error) {
	var out []RegistriesFile
	for _, file := range c.Ignition.Storage.Files {
		if file.Path != RegistriesPath && (path.Dir(file.Path) != RegistriesDir || path.Ext(file.Path) != ".conf") {
			continue
		}
		text, isRemote, err := DecodeContents(file.Contents)
		if err != nil {
			return nil, fmt.Errorf("file %s: %w", file.Path, err)
		}
		if !isRemote {
			out = append(out, RegistriesFile{file.Path, text})
		}
	}
	// RegistriesPath comes before all in RegistriesDir.
	slices.SortFunc(out, func(a, b RegistriesFile) int { return cmp.Compare(a.Path, b.Path) })
	return out, nil
}
