package machineconfigs

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/coreos/ignition/v2/config/v3_5/types"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
)

// maxNodeOnly is how large the annotation may be: Kubernetes allows 256 KiB for all annotations of
// an object.
const maxNodeOnly = 200 << 10

// IsEmpty reports whether nothing stays out of images.
func (n *NodeOnly) IsEmpty() bool {
	return len(n.Files)+len(n.Directories)+len(n.Links)+len(n.Units)+len(n.Users)+len(n.Groups) == 0
}

// readNodeOnly finds out what of a MachineConfig stays out of images.
func readNodeOnly(mc *mcfgv1.MachineConfig, cfg *Config) []*Error {
	all, err := isNodeOnly(mc)
	if err != nil {
		return []*Error{invalid(mc.Name, annotationPath(mcfgv1.AnnotationNodeOnly), err)}
	}
	var named NodeOnly
	if text, ok := mc.Annotations[mcfgv1.AnnotationNodeOnlyContent]; ok {
		if err := json.Unmarshal([]byte(text), &named); err != nil {
			return []*Error{invalid(mc.Name, annotationPath(mcfgv1.AnnotationNodeOnlyContent), fmt.Errorf("reading JSON: %w", err))}
		}
	}
	names := newNodeOnlyNames()
	names.add(&named)
	if all {
		whole := contentOf(&cfg.Ignition)
		names.add(&whole)
	}
	cfg.NodeOnly = names.of(&cfg.Ignition)
	if !all || IsRendered(mc) {
		return nil
	}
	return imageParts(mc)
}

func annotationPath(name string) string { return fmt.Sprintf("metadata.annotations[%s]", name) }

func isNodeOnly(mc *mcfgv1.MachineConfig) (bool, error) {
	switch value := mc.Annotations[mcfgv1.AnnotationNodeOnly]; value {
	case "true":
		return true, nil
	case "false":
		return false, nil
	case "":
		if _, ok := mc.Annotations[mcfgv1.AnnotationNodeOnly]; !ok {
			return false, nil
		}
		fallthrough
	default:
		return false, fmt.Errorf("the value is %q; it has to be \"true\" or \"false\"", value)
	}
}

// imageParts refuses what a MachineConfig that stays out of images cannot ask for, because only an
// image has it.
func imageParts(mc *mcfgv1.MachineConfig) (found []*Error) {
	refuse := func(path string, isSet bool) {
		if isSet {
			found = append(found, invalid(mc.Name, path, errors.New("only an image can have this, and the annotation "+
				mcfgv1.AnnotationNodeOnly+" keeps this MachineConfig out of images: move it to another MachineConfig")))
		}
	}
	refuse("spec.extensions", len(mc.Spec.Extensions) > 0)
	refuse("spec.kernelType", mc.Spec.KernelType != "")
	refuse("spec.osImageURL", mc.Spec.OSImageURL != "")
	refuse("spec.baseOSExtensionsContainerImage", mc.Spec.BaseOSExtensionsContainerImage != "")
	return found
}

// contentOf lists everything in a configuration that could stay out of images.
func contentOf(cfg *types.Config) NodeOnly {
	var n NodeOnly
	for i := range cfg.Storage.Files {
		n.Files = append(n.Files, cfg.Storage.Files[i].Path)
	}
	for i := range cfg.Storage.Directories {
		n.Directories = append(n.Directories, cfg.Storage.Directories[i].Path)
	}
	for i := range cfg.Storage.Links {
		n.Links = append(n.Links, cfg.Storage.Links[i].Path)
	}
	for i := range cfg.Systemd.Units {
		n.Units = append(n.Units, cfg.Systemd.Units[i].Name)
	}
	for i := range cfg.Passwd.Users {
		n.Users = append(n.Users, cfg.Passwd.Users[i].Name)
	}
	for i := range cfg.Passwd.Groups {
		n.Groups = append(n.Groups, cfg.Passwd.Groups[i].Name)
	}
	return n
}

// nodeOnlyNames are names that stay out of images. A path does so whatever is there in the end:
// where one MachineConfig has a secret file and another a link, neither gets into an image.
type nodeOnlyNames struct{ paths, units, users, groups map[string]bool }

func newNodeOnlyNames() *nodeOnlyNames {
	return &nodeOnlyNames{paths: map[string]bool{}, units: map[string]bool{}, users: map[string]bool{}, groups: map[string]bool{}}
}

func (s *nodeOnlyNames) add(n *NodeOnly) {
	put := func(set map[string]bool, names []string) {
		for _, name := range names {
			set[name] = true
		}
	}
	put(s.paths, n.Files)
	put(s.paths, n.Directories)
	put(s.paths, n.Links)
	put(s.units, n.Units)
	put(s.users, n.Users)
	put(s.groups, n.Groups)
}

// of lists what of a configuration stays out of images.
func (s *nodeOnlyNames) of(cfg *types.Config) NodeOnly {
	n := contentOf(cfg)
	keep := func(set map[string]bool, names []string) []string {
		if len(set) == 0 {
			return nil
		}
		names = slices.DeleteFunc(names, func(name string) bool { return !set[name] })
		if len(names) == 0 {
			return nil
		}
		slices.Sort(names)
		return names
	}
	return NodeOnly{
		Files:       keep(s.paths, n.Files),
		Directories: keep(s.paths, n.Directories),
		Links:       keep(s.paths, n.Links),
		Units:       keep(s.units, n.Units),
		Users:       keep(s.users, n.Users),
		Groups:      keep(s.groups, n.Groups),
	}
}
