package signaturepolicy

import (
	"fmt"

	"sigs.k8s.io/yaml"
)

// registries are a file of registries.d, as containers-registries.d(5) has it. What is not understood in it is kept as it is.
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

// lookForSignatures makes nodes look for cosign's signatures of a repository. Where they look for others stays.
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

// looksForSignatures tells whether nodes look for them.
func (r registries) looksForSignatures(repository string) bool {
	docker, _ := r[dockerField].(map[string]any)
	settings, _ := docker[repository].(map[string]any)
	return settings[attachmentsField] == true
}
