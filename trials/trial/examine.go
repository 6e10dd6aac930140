package trial

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/coreos/ignition/v2/config/v3_5/types"
	v1 "github.com/google/go-containerregistry/pkg/v1"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/builder/plan"
	"github.com/layerwright/layerwright/containerfiles"
	"github.com/layerwright/layerwright/containerfiles/render"
	"github.com/layerwright/layerwright/internal/fault"
	"github.com/layerwright/layerwright/machineconfigs"
	"github.com/layerwright/layerwright/osimage/osindex"
	"github.com/layerwright/layerwright/osimage/packages"
	"github.com/layerwright/layerwright/streams/compare"
)

// Images reads what is in images; *baseimage.Loader is one.
type Images interface {
	Packages(ctx context.Context, image v1.Image, index *osindex.Index) (*packages.List, error)
	OSRelease(ctx context.Context, image v1.Image, index *osindex.Index) (map[string]string, error)
	NewestFile(ctx context.Context, image v1.Image, path string) ([]byte, error)
}

// OS is one side: the OS image of a stream, or what is built on it.
type OS struct {
	Stream string
	// Reference is the image by digest.
	Reference string
	// Image is that of one architecture, and Index what it has.
	Image v1.Image
	Index *osindex.Index
	// Extensions is the stream's extensions image of the architecture; nil where there is none, or
	// nothing is taken from it.
	Extensions    v1.Image
	HasExtensions bool
}

// Request is what to examine.
type Request struct {
	Pool     string
	From, To OS
	// Then is the configuration for the other stream.
	Then *Rendered
	// Containerfiles are the pool's.
	Containerfiles []containerfiles.Source
	// Architectures are those of the pool's image.
	Architectures []mcfgv1.ContainerfileArch
	// Before and After are what the images are made of; either may be nil where that cannot be
	// said.
	Before, After *plan.Inputs
	// Problem is why the image for the other stream cannot be made; nil where it can.
	Problem error
	// Blockers and Warnings are what is known beside.
	Blockers, Warnings []compare.Finding
}

// Examine says what the move changes, and what is in its way. Errors are those of reading images.
func Examine(ctx context.Context, images Images, r *Request) (*compare.Report, error) {
	move := &compare.Move{
		Pool: r.Pool, Blockers: slices.Concat(r.Blockers, r.Then.Blockers, problems(r.Pool, r.Problem)), Warnings: slices.Concat(r.Warnings, lifecycle(r.Then.Stream)),
	}
	var err error
	if move.From, err = side(ctx, images, &r.From); err != nil {
		return nil, fmt.Errorf("reading the OS image of the pool: %w", err)
	}
	if move.To, err = side(ctx, images, &r.To); err != nil {
		return nil, fmt.Errorf("reading the OS image of stream %q: %w", r.To.Stream, err)
	}
	move.Config = r.config()
	if r.Before != nil && r.After != nil {
		for _, change := range plan.Explain(r.Before, r.After) {
			if change.Input == mcfgv1.BuildInputMachineConfig {
				move.Changes = append(move.Changes, compare.Change{What: change.What, How: string(change.Verb)})
			}
		}
	}
	move.Replaced = replaced(move.Config.Files, r.From.Index, r.To.Index)
	return compare.Compare(move), nil
}

// problems are why the image of a pool cannot be made.
func problems(pool string, err error) []compare.Finding {
	if err == nil {
		return nil
	}
	reason := fault.Reason(err)
	if reason == "" {
		reason = mcfgv1.ReasonInvalid
	}
	return []compare.Finding{{
		Rule: reason, Object: fmt.Sprintf("MachineConfigPool %q", pool), Found: fault.Message(err), Why: "the image for the other stream cannot be made so", Fix: "correct what the message names",
	}}
}

func lifecycle(stream mcfgv1.OSImageStreamSet) []compare.Finding {
	if stream.Lifecycle != mcfgv1.StreamDeprecated && stream.Lifecycle != mcfgv1.StreamEndOfLife {
		return nil
	}
	return []compare.Finding{{
		Rule: RuleEndOfLife, Object: fmt.Sprintf("stream %q", stream.Name), Found: "its lifecycle is " + string(stream.Lifecycle),
		Why: "it gets no updates any more, or soon will not", Fix: "move to a stream that is supported",
	}}
}

const (
	modulesPath = "/usr/lib/modules"
	// extensionsPath lists the packages of an extensions image, by name (coreos-assembler writes
	// it).
	extensionsPath = "/usr/share/rpm-ostree/extensions.json"
)

func side(ctx context.Context, images Images, os *OS) (compare.Side, error) {
	s := compare.Side{Stream: os.Stream, Image: os.Reference, HasExtensions: os.HasExtensions}
	s.Has = func(path string) bool {
		found, err := os.Index.Follow(path)
		return err == nil && found.Exists()
	}
	for name, entry := range os.Index.Children(modulesPath) {
		if entry.Kind == osindex.Directory {
			s.Kernels = append(s.Kernels, name)
		}
	}
	var err error
	if s.OSRelease, err = images.OSRelease(ctx, os.Image, os.Index); err != nil {
		return s, err
	}
	list, err := images.Packages(ctx, os.Image, os.Index)
	if err != nil {
		return s, err
	}
	if len(list.Databases) > 0 {
		s.Packages = []compare.Package{}
	}
	for _, p := range list.Packages {
		s.Packages = append(s.Packages, compare.Package{Type: p.Type, Name: p.Name, Version: p.Version, Arch: p.Arch})
	}
	s.Extensions, err = extensionNames(ctx, images, os.Extensions)
	return s, err
}

// extensionNames are the packages of an extensions image, nil where it does not say.
func extensionNames(ctx context.Context, images Images, image v1.Image) ([]string, error) {
	if image == nil {
		return nil, nil
	}
	content, err := images.NewestFile(ctx, image, extensionsPath)
	if err != nil || content == nil {
		return nil, err
	}
	versions := map[string]json.RawMessage{}
	if json.Unmarshal(content, &versions) != nil {
		return nil, nil //nolint:nilerr // then it does not say
	}
	return slices.Sorted(maps.Keys(versions)), nil
}

// maxCompared is how much content of files is looked at. What an operating system can't do with a
// file is in small ones.
const maxCompared = 16 << 20

// config is what administrators have configured, with the object that each thing is in.
func (r *Request) config() compare.Config {
	origins := originsOf(r.Then.Sources)
	config := r.Then.Config
	var out compare.Config
	room := int64(maxCompared)
	for _, file := range config.Ignition.Storage.Files {
		var data bytes.Buffer
		for _, resource := range slices.Concat([]types.Resource{file.Contents}, file.Append) {
			content, remote, err := machineconfigs.OpenContents(resource)
			if err != nil || remote || content.Size > room {
				continue
			}
			room -= content.Size
			_, _ = content.WriteTo(&data) // never fails: it was read once
		}
		out.Files = append(out.Files, compare.File{Path: file.Path, Content: data.Bytes(), Object: origins.files[file.Path]})
	}
	for _, unit := range config.Ignition.Systemd.Units {
		if unit.Enabled != nil && *unit.Enabled {
			out.Units = append(out.Units, compare.Unit{Name: unit.Name, IsOwn: unit.Contents != nil && *unit.Contents != "", Object: origins.units[unit.Name]})
		}
	}
	for _, argument := range config.KernelArguments {
		out.KernelArguments = append(out.KernelArguments, compare.Argument{Text: argument, Object: origins.arguments[argument]})
	}
	for _, extension := range config.Extensions {
		out.Wanted = append(out.Wanted, compare.Want{
			What: fmt.Sprintf("extension %q", extension), Packages: render.ExtensionPackages(extension), Object: origins.extensions[extension],
		})
	}
	if kernel := render.KernelType(config.KernelType); kernel != render.KernelDefault && kernel != "" {
		out.Wanted = append(out.Wanted, compare.Want{
			What: fmt.Sprintf("kernel type %q", kernel), Packages: render.KernelOf(kernel).Packages, Object: origins.kernelType,
		})
	}
	for _, source := range r.Containerfiles {
		out.Containerfiles = append(out.Containerfiles, mentions(source))
	}
	for _, arch := range r.Architectures {
		out.Architectures = append(out.Architectures, containerfiles.GoArch(arch))
	}
	return out
}

// mentions are the images and packages that a Containerfile names.
func mentions(source containerfiles.Source) compare.Containerfile {
	out := compare.Containerfile{Name: source.Name}
	file, err := containerfiles.Parse(source.Name, []byte(source.Text))
	if err != nil {
		return out // the problem of the request says so
	}
	arch := source.Arch
	if arch == mcfgv1.NoArch || arch == "" {
		arch = mcfgv1.Amd64
	}
	images, _ := containerfiles.Images(file, containerfiles.PlatformArgs(arch)) // so does it of these
	for _, image := range images {
		for _, place := range image.Places {
			out.Images = append(out.Images, compare.Mention{Text: image.Reference, Line: place.Line})
		}
	}
	for _, install := range containerfiles.Installs(file) {
		out.Packages = append(out.Packages, compare.Mention{Text: install.Package, Line: install.Line})
	}
	return out
}

// origins are the objects that things come from: the last that has a thing counts, as where they
// are joined.
type origins struct {
	files, units, arguments, extensions map[string]string
	kernelType                          string
}

func originsOf(sources []*mcfgv1.MachineConfig) *origins {
	o := &origins{files: map[string]string{}, units: map[string]string{}, arguments: map[string]string{}, extensions: map[string]string{}}
	for _, mc := range sources {
		config, err := machineconfigs.Parse(mc)
		if err != nil {
			continue // it was joined, so it can be parsed
		}
		name := object(mc.Name)
		for _, file := range config.Ignition.Storage.Files {
			o.files[file.Path] = name
		}
		for _, unit := range config.Ignition.Systemd.Units {
			o.units[unit.Name] = name
		}
		for _, argument := range config.KernelArguments {
			o.arguments[argument] = name
		}
		for _, extension := range config.Extensions {
			o.extensions[extension] = name
		}
		if mc.Spec.KernelType != "" {
			o.kernelType = name
		}
	}
	return o
}

// replaced are the files that both OS images have, and in different versions.
func replaced(files []compare.File, from, to *osindex.Index) []compare.File {
	var out []compare.File
	for _, file := range files {
		before, is := lookup(from, file.Path)
		after, isToo := lookup(to, file.Path)
		if is && isToo && isOther(from, to, before, after) {
			out = append(out, compare.File{Path: file.Path, Object: file.Object})
		}
	}
	return out
}

func lookup(index *osindex.Index, path string) (osindex.Resolved, bool) {
	found, err := index.Follow(path)
	return found, err == nil && found.Entry.Kind == osindex.File
}

// isOther reports whether two files are known to differ: by size, and by content where the indexes
// keep it.
func isOther(from, to *osindex.Index, before, after osindex.Resolved) bool {
	if before.Entry.Size != after.Entry.Size {
		return true
	}
	was, kept := from.Content(before.Path)
	is, keptToo := to.Content(after.Path)
	return kept && keptToo && !bytes.Equal(was, is)
}
