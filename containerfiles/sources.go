package containerfiles

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/moby/buildkit/frontend/dockerfile/instructions"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
)

// DefaultKey is the key of a ConfigMap that holds the Containerfile, where configMapRef names none.
const DefaultKey = "Containerfile"

// Source is one entry of a MachineOSConfig's spec.containerFile, with its text.
type Source struct {
	// Arch is the architecture that the text is for; NoArch for all that have no entry of their
	// own.
	Arch mcfgv1.ContainerfileArch
	// Name says where the text is, for messages: spec.containerFile[NoArch].content, or ConfigMap
	// "x" key "Containerfile".
	Name string
	// Text is the Containerfile, byte for byte.
	Text string
	// Context are the other keys of the ConfigMap, which COPY and ADD can take; nil for text in the
	// MachineOSConfig itself.
	Context map[string][]byte
}

// Canonical is the text as Parse reads it: which line ends and byte order mark an editor writes
// makes no other image.
func (s Source) Canonical() string {
	lines := strings.Split(strings.TrimPrefix(s.Text, "\ufeff"), "\n")
	for i, line := range lines {
		lines[i] = strings.TrimRight(line, "\r")
	}
	return strings.Join(lines, "\n")
}

// ConfigMap is the content of one.
type ConfigMap struct {
	// Data and BinaryData are the fields of that name.
	Data       map[string]string
	BinaryData map[string][]byte
}

func (m ConfigMap) value(key string) ([]byte, bool) {
	if text, ok := m.Data[key]; ok {
		return []byte(text), true
	}
	data, ok := m.BinaryData[key]
	return data, ok
}

// ResolveSources finds the text of each entry. Entries without an architecture are for NoArch.
// ConfigMaps are by name, those of the namespace that Layerwright runs in.
//
// The error joins one *MissingError for each ConfigMap or key that is not there, and others for
// entries that contradict themselves or each other; there are no sources then.
func ResolveSources(entries []mcfgv1.MachineOSContainerfile, configMaps map[string]ConfigMap) ([]Source, error) {
	var (
		sources []Source
		errs    []error
		seen    = map[mcfgv1.ContainerfileArch]bool{}
	)
	for _, entry := range entries {
		arch := cmp.Or(entry.ContainerfileArch, mcfgv1.NoArch)
		field := fmt.Sprintf("spec.containerFile[%s]", arch)
		if seen[arch] {
			errs = append(errs, fmt.Errorf("%s is there twice", field))
			continue
		}
		seen[arch] = true
		source, err := resolveSource(field, entry, configMaps)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		source.Arch = arch
		sources = append(sources, source)
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	return sources, nil
}

func resolveSource(field string, entry mcfgv1.MachineOSContainerfile, configMaps map[string]ConfigMap) (Source, error) {
	switch {
	case entry.Content != nil && entry.ConfigMapRef != nil:
		return Source{}, fmt.Errorf("%s has content and configMapRef: the Containerfile is in one place", field)
	case entry.Content != nil:
		return Source{Name: field + ".content", Text: *entry.Content}, nil
	case entry.ConfigMapRef == nil:
		return Source{}, fmt.Errorf("%s has neither content nor configMapRef", field)
	}
	name, key := entry.ConfigMapRef.Name, cmp.Or(entry.ConfigMapRef.Key, DefaultKey)
	configMap, ok := configMaps[name]
	if !ok {
		return Source{}, &MissingError{Field: field, ConfigMap: name}
	}
	text, ok := configMap.value(key)
	if !ok {
		return Source{}, &MissingError{Field: field, ConfigMap: name, Key: key}
	}
	source := Source{Name: fmt.Sprintf("ConfigMap %q key %q", name, key), Text: string(text), Context: map[string][]byte{}}
	for file, data := range configMap.BinaryData {
		source.Context[file] = data
	}
	for file, text := range configMap.Data {
		source.Context[file] = []byte(text)
	}
	delete(source.Context, key)
	return source, nil
}

// Select is the source for an architecture: its own, or else the one for NoArch. False where there
// is neither.
func Select(sources []Source, arch mcfgv1.ContainerfileArch) (Source, bool) {
	for _, wanted := range []mcfgv1.ContainerfileArch{arch, mcfgv1.NoArch} {
		for _, source := range sources {
			if cmp.Or(source.Arch, mcfgv1.NoArch) == wanted {
				return source, true
			}
		}
	}
	return Source{}, false
}

// ForArchitectures is Select for each architecture of a pool. An architecture that has no source
// has no entry.
func ForArchitectures(sources []Source, archs []mcfgv1.ContainerfileArch) map[mcfgv1.ContainerfileArch]Source {
	selected := map[mcfgv1.ContainerfileArch]Source{}
	for _, arch := range archs {
		if source, ok := Select(sources, arch); ok {
			selected[arch] = source
		}
	}
	return selected
}

// ContextFiles are the names of the files of Context that the text can take, sorted: all of them
// where that cannot be told.
func (s Source) ContextFiles() []string {
	all := slices.Sorted(maps.Keys(s.Context))
	c, err := Parse(s.Name, []byte(s.Text))
	if err != nil {
		return all
	}
	if len(all) == 0 || c.Empty() {
		return nil
	}
	patterns, ok := c.contextSources(s.Arch)
	if !ok {
		return all
	}
	return slices.DeleteFunc(all, func(file string) bool {
		return !slices.ContainsFunc(patterns, func(p string) bool { return InContext(map[string][]byte{file: nil}, p) })
	})
}

// contextSources are what COPY, ADD and bind mounts take from the build context. False where a
// variable hides it.
func (c *Containerfile) contextSources(arch mcfgv1.ContainerfileArch) (patterns []string, ok bool) {
	g := c.Resolve(PlatformArgs(cmp.Or(arch, mcfgv1.NoArch)))
	for _, in := range c.Instructions {
		for _, word := range in.contextWords() {
			if in.Stage < 0 {
				return nil, false
			}
			source, err := g.Views[in].Expand(word)
			if err != nil || len(source.Unknown) > 0 {
				return nil, false
			}
			patterns = append(patterns, source.Text)
		}
	}
	return patterns, true
}

// contextWords are the instruction's sources in the build context, as they are written.
func (in *Instruction) contextWords() []string {
	var words []string
	switch cmd := in.Command.(type) {
	case *instructions.CopyCommand:
		if _, elsewhere := in.Value("from"); !elsewhere {
			words = cmd.SourcePaths
		}
	case *instructions.AddCommand:
		words = slices.DeleteFunc(slices.Clone(cmd.SourcePaths), IsRemote)
	}
	for _, m := range in.Mounts() {
		if _, elsewhere := m.Value("from"); m.Kind == "bind" && !elsewhere {
			source, _ := m.Value("source", "src")
			words = append(words, cmp.Or(strings.TrimSpace(source), "."))
		}
	}
	return words
}

// IsURL reports whether the source of an ADD is a web address.
func IsURL(source string) bool {
	return strings.HasPrefix(source, "http://") || strings.HasPrefix(source, "https://")
}

// IsRemote reports whether the source of an ADD is somewhere else.
func IsRemote(source string) bool {
	return IsURL(source) || strings.HasPrefix(source, "git@") || strings.HasPrefix(source, "git://") || strings.HasPrefix(source, "ssh://")
}

// InContext reports whether a path or pattern finds a file of the build context, whose files are
// all in one directory.
func InContext(files map[string][]byte, source string) bool {
	name := strings.TrimPrefix(path.Clean("/"+source), "/")
	if name == "" {
		return len(files) > 0
	}
	if _, ok := files[name]; ok {
		return true
	}
	for file := range files {
		if ok, err := path.Match(name, file); ok && err == nil {
			return true
		}
	}
	return false
}
