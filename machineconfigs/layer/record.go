package layer

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/coreos/ignition/v2/config/v3_5/types"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/machineconfigs"
)

// record is what of the configuration is in the image, for the file that says so.
type record struct {
	// at is where the record goes.
	at          string
	files       []recordedFile
	directories []recordedDirectory
	links       []recordedLink
	units       []plannedUnit
	extensions  []string
	kernelType  string
	// digest is over the plan's items.
	digest string
}

type recordedFile struct {
	file types.File
	node *node
}

type recordedDirectory struct {
	directory types.Directory
	node      *node
}

type recordedLink struct {
	link types.Link
	node *node
}

// packages lists what other layers of the image have because of the configuration.
func (s *splitter) packages() {
	s.record.extensions, s.record.kernelType = slices.Sorted(slices.Values(s.cfg.Extensions)), s.cfg.KernelType
	s.record.extensions = slices.Compact(s.record.extensions)
	for _, name := range s.record.extensions {
		s.addItem("extension", name)
	}
	if s.record.kernelType == "" {
		s.record.kernelType = machineconfigs.KernelTypeDefault
	}
	if s.record.kernelType != machineconfigs.KernelTypeDefault {
		s.addItem("kernel type", s.record.kernelType)
	}
}

// recordedConfig has the fields of a MachineConfig that a record uses, with the published names.
type recordedConfig struct {
	Kind       string       `json:"kind"`
	APIVersion string       `json:"apiVersion"`
	Metadata   recordedMeta `json:"metadata"`
	Spec       recordedSpec `json:"spec"`
}

type recordedMeta struct {
	Name string `json:"name"`
}

type recordedSpec struct {
	Config     types.Config `json:"config"`
	Extensions []string     `json:"extensions,omitempty"`
	KernelType string       `json:"kernelType"`
}

// ignitionVersion is the specification that records are written in.
const ignitionVersion = "3.5.0"

// nameDigits is how many digits of the digest are in a record's name, as many as rendered MachineConfigs have.
const nameDigits = 32

// encode writes the record. It is canonical: real paths, numbers for owners, one encoding of contents, and everything in the order of
// names, so that equal images have equal records, for whichever pool and however the MachineConfigs were written.
func (r record) encode(remote map[string][]byte) ([]byte, error) {
	config := types.Config{Ignition: types.Ignition{Version: ignitionVersion}}
	for _, f := range r.files {
		file, err := f.canonical(remote)
		if err != nil {
			return nil, f.node.from.wrong(err)
		}
		config.Storage.Files = append(config.Storage.Files, file)
	}
	for _, d := range r.directories {
		config.Storage.Directories = append(config.Storage.Directories, d.canonical())
	}
	for _, l := range r.links {
		config.Storage.Links = append(config.Storage.Links, l.canonical())
	}
	for _, u := range r.units {
		config.Systemd.Units = append(config.Systemd.Units, u.canonical())
	}
	slices.SortFunc(config.Storage.Files, func(a, b types.File) int { return strings.Compare(a.Path, b.Path) })
	slices.SortFunc(config.Storage.Directories, func(a, b types.Directory) int { return strings.Compare(a.Path, b.Path) })
	slices.SortFunc(config.Storage.Links, func(a, b types.Link) int { return strings.Compare(a.Path, b.Path) })
	slices.SortFunc(config.Systemd.Units, func(a, b types.Unit) int { return strings.Compare(a.Name, b.Name) })
	data, err := json.Marshal(recordedConfig{
		Kind: "MachineConfig", APIVersion: mcfgv1.GroupVersion.String(),
		Metadata: recordedMeta{Name: "config-" + r.digest[:nameDigits]},
		Spec:     recordedSpec{Config: config, Extensions: r.extensions, KernelType: r.kernelType},
	})
	if err != nil {
		return nil, fmt.Errorf("writing %s: %w", RecordPath, err)
	}
	return data, nil
}

func (n *node) canonical() types.Node {
	uid, gid := n.uid, n.gid
	return types.Node{Path: n.path, User: types.NodeUser{ID: &uid}, Group: types.NodeGroup{ID: &gid}}
}

func (f recordedFile) canonical(remote map[string][]byte) (types.File, error) {
	n := f.node
	data, err := n.content.read(remote)
	if err != nil {
		return types.File{}, err
	}
	mode, source := int(n.mode), dataURL(data)
	file := types.File{Node: n.canonical(), FileEmbedded1: types.FileEmbedded1{Mode: &mode}}
	switch {
	case n.content.base == "":
		overwrite := true
		file.Overwrite = &overwrite
		file.Contents.Source = &source
	case len(data) > 0:
		file.Append = []types.Resource{{Source: &source}}
	}
	return file, nil
}

func dataURL(data []byte) string {
	const prefix = "data:;base64,"
	url := make([]byte, len(prefix), len(prefix)+base64.StdEncoding.EncodedLen(len(data)))
	copy(url, prefix)
	return string(base64.StdEncoding.AppendEncode(url, data))
}

func (d recordedDirectory) canonical() types.Directory {
	mode := int(d.node.mode)
	directory := types.Directory{Node: d.node.canonical(), DirectoryEmbedded1: types.DirectoryEmbedded1{Mode: &mode}}
	if d.node.opaque {
		directory.Overwrite = &d.node.opaque
	}
	return directory
}

func (l recordedLink) canonical() types.Link {
	target, hard, overwrite := l.node.target, l.node.kind == HardLink, true
	link := types.Link{Node: l.node.canonical(), LinkEmbedded1: types.LinkEmbedded1{Target: &target}}
	link.Overwrite = &overwrite
	if hard {
		link.Hard = &hard
		link.User, link.Group = types.NodeUser{}, types.NodeGroup{}
	}
	return link
}

// canonical leaves out what has no effect.
func (u plannedUnit) canonical() types.Unit {
	unit := types.Unit{Name: u.Name, Enabled: u.Enabled, Mask: u.Mask}
	if u.hasContents() {
		unit.Contents = u.Contents
	}
	for _, d := range u.Dropins {
		if d.Contents != nil && *d.Contents == "" {
			d.Contents = nil
		}
		unit.Dropins = append(unit.Dropins, d)
	}
	slices.SortFunc(unit.Dropins, func(a, b types.Dropin) int { return strings.Compare(a.Name, b.Name) })
	return unit
}
