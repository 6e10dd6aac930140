package layer

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/coreos/ignition/v2/config/v3_5/types"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
)

// RecordPath is where an image says what configuration is in it, as a MachineConfig in JSON. It is
// the published place.
const RecordPath = "/etc/machine-config-daemon/currentconfig"

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

// plannedUnit is a unit that goes into the image.
type plannedUnit struct {
	types.Unit

	item *item
}

// hasContents reports whether the unit's file is in the image.
func (u plannedUnit) hasContents() bool {
	return u.Contents != nil && *u.Contents != "" && !isTrue(u.Mask)
}

func isTrue(b *bool) bool { return b != nil && *b }

// sort puts everything into the order of the paths in the image.
func (r record) sort() {
	slices.SortFunc(r.files, func(a, b recordedFile) int { return strings.Compare(a.node.path, b.node.path) })
	slices.SortFunc(r.directories, func(a, b recordedDirectory) int { return strings.Compare(a.node.path, b.node.path) })
	slices.SortFunc(r.links, func(a, b recordedLink) int { return strings.Compare(a.node.path, b.node.path) })
	slices.SortFunc(r.units, func(a, b plannedUnit) int { return strings.Compare(a.Name, b.Name) })
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

// nameDigits is how many digits of the digest are in a record's name, as many as rendered
// MachineConfigs have.
const nameDigits = 32

// encode writes the record. It is canonical: real paths, numbers for owners, one encoding of
// contents, and everything in the order of names, so that equal images have equal records, for
// whichever pool and however the MachineConfigs were written.
func (r record) encode(remote map[string][]byte) (body, error) {
	config := types.Config{Ignition: types.Ignition{Version: ignitionVersion}}
	for _, f := range r.files {
		config.Storage.Files = append(config.Storage.Files, f.canonical())
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
	data, err := json.Marshal(recordedConfig{
		Kind: "MachineConfig", APIVersion: mcfgv1.GroupVersion.String(),
		Metadata: recordedMeta{Name: "config-" + r.digest[:nameDigits]},
		Spec:     recordedSpec{Config: config, Extensions: r.extensions, KernelType: r.kernelType},
	})
	if err != nil {
		return nil, fmt.Errorf("writing %s: %w", RecordPath, err)
	}
	return r.fill(data, remote)
}

// gap stands for the content of a file while the record is written: contents are the most of it,
// and go in afterwards. "#" is no letter of base64, and no text can have the unescaped quotes, so
// nothing else looks like a gap.
const (
	gap     = "data:;base64,#"
	gapText = `"source":"` + gap + `"`
)

// fill puts the contents of the files into the gaps.
func (r record) fill(data []byte, remote map[string][]byte) (body, error) {
	var full body
	for _, f := range r.files {
		content, err := f.node.content.read(remote)
		if err != nil {
			return nil, f.node.from.wrong(err)
		}
		if !f.hasGap() {
			continue
		}
		at := bytes.Index(data, []byte(gapText))
		if at < 0 {
			return nil, fmt.Errorf("writing %s: there are more contents than places for them", RecordPath)
		}
		at += len(gapText) - len(`#"`)
		full = append(full, piece{data: data[:at]}, piece{encoded: content})
		data = data[at+len("#"):]
	}
	return append(full, piece{data: data}), nil
}

func (n *node) canonical() types.Node {
	uid, gid := n.uid, n.gid
	return types.Node{Path: n.path, User: types.NodeUser{ID: &uid}, Group: types.NodeGroup{ID: &gid}}
}

// hasGap reports whether the file has content of its own.
func (f recordedFile) hasGap() bool {
	return f.node.content.base == "" || len(f.node.content.parts) > 0
}

func (f recordedFile) canonical() types.File {
	mode, source := int(f.node.mode), gap
	file := types.File{Node: f.node.canonical(), FileEmbedded1: types.FileEmbedded1{Mode: &mode}}
	switch {
	case f.node.content.base == "":
		overwrite := true
		file.Overwrite = &overwrite
		file.Contents.Source = &source
	case f.hasGap():
		file.Append = []types.Resource{{Source: &source}}
	}
	return file
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
