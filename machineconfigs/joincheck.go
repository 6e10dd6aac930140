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
	vpath "github.com/coreos/vcontext/path"
	"github.com/coreos/vcontext/report"

	"github.com/layerwright/layerwright/machineconfigs/document"
)

// joinCheck looks at what was joined for mistakes that are in no single MachineConfig. So it
// validates the elements that several have a part in, and how all elements go together.
type joinCheck struct {
	joined *types.Config
	parts  contributors
	found  []*Error
}

func (c *joinCheck) run() {
	c.checkContents()
	c.checkBelowLinks()
	var together report.Report
	together.Merge(c.joined.Validate(vpath.New("json")))
	together.Merge(c.joined.Storage.Validate(vpath.New("json", "storage")))
	c.addReport(together, document.ElementsOf(c.joined))
	shared := c.shared()
	c.addReport(validate.ValidateWithContext(shared, nil), document.ElementsOf(&shared))
}

// add reports a mistake in an element, and who has a part in it.
func (c *joinCheck) add(at, element string, err error) {
	if err == nil {
		return
	}
	owner := element
	if _, unit, isDropin := strings.Cut(element, " of "); isDropin {
		owner = unit
	}
	e := invalid("", at, err)
	e.Element = element
	from := c.parts[owner]
	if len(from) > 0 {
		e.MachineConfig = from[len(from)-1]
	}
	if len(from) > 1 {
		e.Err = fmt.Errorf("joined with MachineConfig %s: %w", quoted(from[:len(from)-1]), err)
	}
	c.found = append(c.found, e)
}

func quoted(names []string) string {
	var all []string
	for _, name := range names {
		all = append(all, fmt.Sprintf("%q", name))
	}
	return strings.Join(all, ", ")
}

// addReport takes over what Ignition found in a part of what was joined, whose names are given.
func (c *joinCheck) addReport(rpt report.Report, part *document.Elements) {
	for _, entry := range rpt.Entries {
		// checkBelowLinks says the same, and which link.
		if !entry.Kind.IsFatal() || slices.Contains(belowLink, entry.Message) {
			continue
		}
		at := document.PathString(entry.Context.Path)
		element := part.Name(at)
		err := document.Explain(entry.Message)
		if entry.Message == ignerrors.ErrPathConflictsSystemd.Error() {
			err = fmt.Errorf("%w%s", err, c.unitOf(element))
		}
		c.add(c.pathInJoined(entry.Context.Path, part), element, err)
	}
}

// pathInJoined is the path of what a path in a part of the configuration leads to.
func (c *joinCheck) pathInJoined(inPart []any, part *document.Elements) string {
	if len(inPart) >= 3 {
		if i, ok := inPart[2].(int); ok {
			list := fmt.Sprintf("%v.%v", inPart[0], inPart[1])
			_, names := part.List(list)
			_, all := document.ElementsOf(c.joined).List(list)
			if i < len(names) {
				inPart = slices.Clone(inPart)
				inPart[2] = slices.Index(all, names[i])
			}
		}
	}
	return document.PathString(inPart)
}

// unitOf says which MachineConfigs have the unit that a file takes the place of.
func (c *joinCheck) unitOf(file string) string {
	_, name, _ := strings.Cut(file, "/etc/systemd/system/")
	name, _, _ = strings.Cut(strings.TrimSuffix(name, "\""), ".d/")
	unit := elementName("unit", name)
	if from := c.parts[unit]; len(from) > 0 {
		return fmt.Sprintf(" (%s is in MachineConfig %s)", unit, quoted(from))
	}
	return ""
}

// shared is the configuration without the files, directories, links and units of one MachineConfig
// alone, and without contents, which Ignition would decode again.
func (c *joinCheck) shared() types.Config {
	alone := func(kind, name string) bool { return len(c.parts[elementName(kind, name)]) < 2 }
	cfg := *c.joined
	cfg.Storage.Files = slices.DeleteFunc(slices.Clone(cfg.Storage.Files), func(f types.File) bool { return alone("file", f.Path) })
	cfg.Storage.Directories = slices.DeleteFunc(slices.Clone(cfg.Storage.Directories), func(d types.Directory) bool { return alone("directory", d.Path) })
	cfg.Storage.Links = slices.DeleteFunc(slices.Clone(cfg.Storage.Links), func(l types.Link) bool { return alone("link", l.Path) })
	cfg.Systemd.Units = slices.DeleteFunc(slices.Clone(cfg.Systemd.Units), func(u types.Unit) bool { return alone("unit", u.Name) })
	nothing := "data:,"
	cut := func(r *types.Resource) {
		if r.Source != nil && strings.HasPrefix(*r.Source, "data:") {
			r.Source = &nothing
		}
	}
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

// checkContents finds contents of one MachineConfig that another says the compression or hash of.
func (c *joinCheck) checkContents() {
	var d decoder
	for i := range c.joined.Storage.Files {
		file := &c.joined.Storage.Files[i]
		element := elementName("file", file.Path)
		if len(c.parts[element]) < 2 {
			continue
		}
		remote, err := d.decode(file.Contents)
		switch {
		case err != nil:
			err = fmt.Errorf("%w; a MachineConfig that replaces contents.source takes over what an earlier one says beside it: "+
				"set contents.compression (\"\" for none) and contents.verification too", err)
		case remote && file.Contents.Verification.Hash == nil:
			err = errors.New("add verification.hash")
		}
		c.add(fmt.Sprintf("storage.files[%d].contents", i), element, err)
	}
}

// belowLink is what Ignition says about paths below a link. It does not say which link.
var belowLink = []string{
	ignerrors.ErrFileUsedSymlink.Error(), ignerrors.ErrDirectoryUsedSymlink.Error(), ignerrors.ErrLinkUsedSymlink.Error(),
}

// checkBelowLinks finds paths that lead through a link of another MachineConfig.
func (c *joinCheck) checkBelowLinks() {
	storage := &c.joined.Storage
	links := map[string]bool{}
	for i := range storage.Links {
		links[storage.Links[i].Path] = true
	}
	check := func(list, kind string, i int, p string) {
		for parent := path.Dir(p); parent != "/" && parent != "."; parent = path.Dir(parent) {
			if links[parent] {
				link := elementName("link", parent)
				c.add(fmt.Sprintf("storage.%s[%d].path", list, i), elementName(kind, p), fmt.Errorf("the path leads through %s of MachineConfig %s: "+
					"write the path that the link leads to", link, quoted(c.parts[link])))
				return
			}
		}
	}
	for i := range storage.Files {
		check("files", "file", i, storage.Files[i].Path)
	}
	for i := range storage.Directories {
		check("directories", "directory", i, storage.Directories[i].Path)
	}
	for i := range storage.Links {
		check("links", "link", i, storage.Links[i].Path)
	}
}
