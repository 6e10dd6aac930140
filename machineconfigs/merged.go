package machineconfigs

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	ignerrors "github.com/coreos/ignition/v2/config/shared/errors"
	"github.com/coreos/ignition/v2/config/v3_5/types"
	"github.com/coreos/ignition/v2/config/validate"
)

// join merges the Ignition configurations. Each is valid, but two valid ones can make an invalid one; such mistakes name the
// MachineConfigs that have a part in them.
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
	var found []*Error
	if err := guard(func() error { found = checkJoined(&joined, parts); return nil }); err != nil {
		found = append(found, invalid("", "spec.config", err))
	}
	return joined, found
}

// setOverwrite makes files overwrite what is there where nothing is said about it, as a MachineConfig always does: Ignition's own
// default is to fail. A file without contents has nothing to overwrite with.
func setOverwrite(files []types.File) {
	overwrite := true
	for i := range files {
		if files[i].Overwrite == nil && files[i].Contents.Source != nil {
			files[i].Overwrite = &overwrite
		}
	}
}

// contributors are the MachineConfigs that have a part in an element such as file "/etc/chrony.conf".
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

// checkJoined validates what was joined. Contents have been checked one by one; only where a file was joined from several its parts
// may not fit.
func checkJoined(joined *types.Config, parts contributors) []*Error {
	var found []*Error
	add := func(at, element string, err error) {
		if err == nil {
			return
		}
		owner := element
		if _, unit, isDropin := strings.Cut(element, " of "); isDropin {
			owner = unit
		}
		from := parts[owner]
		e := invalid("", at, err)
		e.Element = element
		if len(from) > 0 {
			e.MachineConfig = from[len(from)-1]
		}
		if len(from) > 1 {
			e.Err = fmt.Errorf("joined with MachineConfig %s: %w", quoted(from[:len(from)-1]), err)
		}
		found = append(found, e)
	}
	checkBelowLinks(joined, parts, add)
	var contents decoder
	for i := range joined.Storage.Files {
		file := &joined.Storage.Files[i]
		element := elementName("file", file.Path)
		if len(parts[element]) > 1 {
			add(fmt.Sprintf("storage.files[%d].contents", i), element, checkJoinedContents(&contents, file.Contents))
		}
	}
	names := elementsOf(joined)
	for _, entry := range validate.ValidateWithContext(withoutContents(*joined), nil).Entries {
		at := pathString(entry.Context.Path)
		if entry.Kind.IsFatal() && !slices.Contains(belowLink, entry.Message) {
			add(at, names.name(at), explain(entry.Message))
		}
	}
	return found
}

func quoted(names []string) string {
	var all []string
	for _, name := range names {
		all = append(all, fmt.Sprintf("%q", name))
	}
	return strings.Join(all, ", ")
}

// checkJoinedContents finds contents of one MachineConfig that another says the compression or hash of.
func checkJoinedContents(d *decoder, r types.Resource) error {
	remote, err := d.decode(r)
	switch {
	case err != nil:
		return fmt.Errorf("%w; a MachineConfig that replaces contents.source takes over what an earlier one says beside it: "+
			"set contents.compression (\"\" for none) and contents.verification too", err)
	case remote && r.Verification.Hash == nil:
		return errors.New("add verification.hash")
	}
	return nil
}

// belowLink is what Ignition says about paths below a link. It does not say which link.
var belowLink = []string{
	ignerrors.ErrFileUsedSymlink.Error(), ignerrors.ErrDirectoryUsedSymlink.Error(), ignerrors.ErrLinkUsedSymlink.Error(),
}

// checkBelowLinks finds paths that lead through a link of another MachineConfig.
func checkBelowLinks(cfg *types.Config, parts contributors, add func(path, element string, err error)) {
	links := map[string]bool{}
	for i := range cfg.Storage.Links {
		links[cfg.Storage.Links[i].Path] = true
	}
	check := func(list, kind string, i int, p string) {
		for parent := path.Dir(p); parent != "/" && parent != "."; parent = path.Dir(parent) {
			if links[parent] {
				link := elementName("link", parent)
				add(fmt.Sprintf("storage.%s[%d].path", list, i), elementName(kind, p), fmt.Errorf("the path leads through %s of MachineConfig %s: "+
					"write the path that the link leads to", link, quoted(parts[link])))
				return
			}
		}
	}
	for i := range cfg.Storage.Files {
		check("files", "file", i, cfg.Storage.Files[i].Path)
	}
	for i := range cfg.Storage.Directories {
		check("directories", "directory", i, cfg.Storage.Directories[i].Path)
	}
	for i := range cfg.Storage.Links {
		check("links", "link", i, cfg.Storage.Links[i].Path)
	}
}

// withoutContents is a copy for Ignition's validation, which would decode all contents again.
func withoutContents(cfg types.Config) types.Config {
	nothing := "data:,"
	cut := func(r *types.Resource) {
		if r.Source != nil && strings.HasPrefix(*r.Source, "data:") {
			r.Source = &nothing
		}
	}
	cfg.Storage.Files = slices.Clone(cfg.Storage.Files)
	for i := range cfg.Storage.Files {
		file := &cfg.Storage.Files[i]
		cut(&file.Contents)
		file.Append = slices.Clone(file.Append)
		for j := range file.Append {
			cut(&file.Append[j])
		}
	}
	cfg.Storage.Luks = slices.Clone(cfg.Storage.Luks)
	for i := range cfg.Storage.Luks {
		cut(&cfg.Storage.Luks[i].KeyFile)
	}
	return cfg
}
