package machineconfigs

import (
	"fmt"

	"github.com/coreos/ignition/v2/config/v3_5/types"
)

// join merges the Ignition configurations. Each is valid, but two valid ones can make an invalid
// one; such mistakes name the MachineConfigs that have a part in them.
func join(s sources) (types.Config, []*Error) {
	joiner := newJoiner()
	parts := contributors{}
	for _, source := range s {
		joiner.add(source.Ignition)
		parts.add(source.Name, &source.Ignition)
	}
	joined := joiner.result()
	joined.Ignition.Version = types.MaxVersion.String()
	setOverwrite(joined.Storage.Files)
	if len(s) < 2 {
		return joined, nil // it has been checked when it was read
	}
	check := joinCheck{joined: &joined, parts: parts}
	if err := guard(func() error { check.run(); return nil }); err != nil {
		check.found = append(check.found, invalid("", "spec.config", err))
	}
	return joined, check.found
}

// setOverwrite makes files overwrite what is there where nothing is said about it, as a
// MachineConfig always does: Ignition's own default is to fail. A file without contents has nothing
// to overwrite with.
func setOverwrite(files []types.File) {
	overwrite := true
	for i := range files {
		if files[i].Overwrite == nil && files[i].Contents.Source != nil {
			files[i].Overwrite = &overwrite
		}
	}
}

// contributors are the MachineConfigs that have a part in an element such as file
// "/etc/chrony.conf".
type contributors map[string][]string

func (c contributors) add(name string, cfg *types.Config) {
	content := contentOf(cfg)
	for kind, names := range map[string][]string{
		"file": content.Files, "directory": content.Directories, "link": content.Links,
		"unit": content.Units, "user": content.Users, "group": content.Groups,
	} {
		for _, element := range names {
			key := elementName(kind, element)
			c[key] = append(c[key], name)
		}
	}
}

func elementName(kind, name string) string { return fmt.Sprintf("%s %q", kind, name) }
