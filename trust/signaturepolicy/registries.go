package signaturepolicy

import (
	"fmt"
	"path"

	"sigs.k8s.io/yaml"
)

// registries are a file of registries.d, as containers-registries.d(5) has it. What is not
// understood in it is kept as it is.
type registries map[string]any

// Fields of the file.
const (
	dockerField      = "docker"
	attachmentsField = "use-sigstore-attachments"
)

func readRegistries(text []byte) (registries, error) {
	r := registries{}
	if err := yaml.Unmarshal(text, &r); err != nil {
		return nil, fmt.Errorf("reading %s: %w", RegistryPath, err)
	}
	if r == nil { // an empty file
		r = registries{}
	}
	if _, is := r[dockerField].(map[string]any); !is && r[dockerField] != nil {
		return nil, fmt.Errorf("reading %s: docker: it has to be a list of repositories, by name", RegistryPath)
	}
	return r, nil
}

// lookForSignatures makes nodes look for cosign's signatures of a repository. Where they look for
// others stays.
func (r registries) lookForSignatures(repository string) {
	docker, _ := r[dockerField].(map[string]any)
	if docker == nil {
		docker = map[string]any{}
		r[dockerField] = docker
	}
	settings, _ := docker[repository].(map[string]any)
	if settings == nil {
		settings = map[string]any{}
		docker[repository] = settings
	}
	settings[attachmentsField] = true
}

// looksForSignatures reports whether nodes look for them.
func (r registries) looksForSignatures(repository string) bool {
	docker, _ := r[dockerField].(map[string]any)
	settings, _ := docker[repository].(map[string]any)
	return settings[attachmentsField] == true
}

// IsRegistries reports whether nodes read the file at a path as they read the one at RegistryPath,
// beside it.
func IsRegistries(file string) bool {
	return path.Dir(file) == RegistriesDir && path.Ext(file) == ".yaml" && file != RegistryPath
}

// CheckBeside refuses repositories that another file of RegistriesDir names: nodes that have both
// files pull no image at all, of whatever repository. A file that can't be read is not ours to
// complain about.
func CheckBeside(beside Files, repositories []Repository) error {
	for _, file := range beside.Paths() {
		var known struct {
			Docker map[string]any `json:"docker"`
		}
		if !IsRegistries(file) || yaml.Unmarshal(beside[file], &known) != nil {
			continue
		}
		for _, r := range repositories {
			if _, has := known.Docker[r.Name]; has {
				return fmt.Errorf("%s names %q too, and nodes pull no image at all when two files name it; move its settings into %s with a MachineConfig",
					file, r.Name, RegistryPath)
			}
		}
	}
	return nil
}
