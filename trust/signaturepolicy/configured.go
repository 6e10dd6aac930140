package signaturepolicy

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/machineconfigs"
)

// Paths are the files that a pool's signature policy consists of.
func Paths() []string { return []string{PolicyPath, RegistryPath} }

// Configured is what a pool's MachineConfigs say of signatures, without its signature policy.
type Configured struct {
	// Files are the ones that win of each path, with the other files of registries.d.
	Files Files
	// behind are MachineConfigs that are joined after the signature policy, by path.
	behind map[string]*mcfgv1.MachineConfig
	ours   *mcfgv1.MachineConfig
}

// Read reads the MachineConfigs that a pool selects. They are compared in the order in which they
// are joined, as nothing else says which file nodes get.
func Read(pool string, selected []*mcfgv1.MachineConfig) (*Configured, error) {
	out := &Configured{Files: Files{}, behind: map[string]*mcfgv1.MachineConfig{}, ours: oursOf(pool, selected)}
	for _, mc := range slices.SortedStableFunc(slices.Values(selected), machineconfigs.JoinOrder) {
		if mc.Name == out.ours.Name {
			continue
		}
		files, err := FilesOf(mc)
		if err != nil {
			return nil, err
		}
		for path, text := range files {
			out.Files[path] = text
			if machineconfigs.JoinOrder(mc, out.ours) > 0 {
				out.behind[path] = mc
			}
		}
	}
	return out, nil
}

// oursOf is the MachineConfig with a pool's signature policy, also before it is there.
func oursOf(pool string, selected []*mcfgv1.MachineConfig) *mcfgv1.MachineConfig {
	name := MachineConfigName(pool)
	if i := slices.IndexFunc(selected, func(mc *mcfgv1.MachineConfig) bool { return mc.Name == name }); i >= 0 {
		return selected[i]
	}
	return &mcfgv1.MachineConfig{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{mcfgv1.LabelRole: pool}}}
}

// InTheWay says which MachineConfig replaces a file of the pool's signature policy, and what to do.
func (c *Configured) InTheWay() error {
	for _, path := range Paths() {
		if behind := c.behind[path]; behind != nil {
			return c.replaced(path, behind)
		}
	}
	return nil
}

func (c *Configured) replaced(path string, behind *mcfgv1.MachineConfig) error {
	todo := "rename it, so that its name sorts before"
	if _, isOfStream := behind.Labels[mcfgv1.LabelOSStream]; isOfStream {
		todo = fmt.Sprintf("move the file into a MachineConfig without the label %q whose name sorts before", mcfgv1.LabelOSStream)
	}
	return fmt.Errorf("MachineConfig %q has %s and would replace the signature policy of MachineConfig %q, because it is joined after it; %s",
		behind.Name, path, c.ours.Name, todo)
}

// CheckKept refuses MachineConfigs of a pool that take its signature policy from nodes: one that is
// joined after the policy has a file of it, and does not insist on the same signatures.
func CheckKept(pool string, selected []*mcfgv1.MachineConfig) error {
	c := &Configured{ours: oursOf(pool, selected)}
	owner := metav1.GetControllerOf(c.ours)
	if owner == nil || owner.Kind != "MachineOSConfig" {
		return nil
	}
	ours, err := FilesOf(c.ours)
	if err != nil {
		return err
	}
	for _, mc := range slices.SortedStableFunc(slices.Values(selected), machineconfigs.JoinOrder) {
		if machineconfigs.JoinOrder(mc, c.ours) <= 0 {
			continue
		}
		theirs, err := FilesOf(mc)
		for _, path := range Paths() {
			if text, has := theirs[path]; has && !keeps(path, ours[path], text) {
				return c.replaced(path, mc)
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// keeps reports whether a file insists on the signatures that another one insists on.
func keeps(path string, ours, theirs []byte) bool {
	if path == RegistryPath {
		before, failed := readRegistries(ours)
		after, err := readRegistries(theirs)
		docker, _ := before[dockerField].(map[string]any)
		for repository := range docker {
			if before.looksForSignatures(repository) && !after.looksForSignatures(repository) {
				return false
			}
		}
		return failed == nil && err == nil
	}
	before, failed := readPolicy(ours)
	after, err := readPolicy(theirs)
	if failed != nil || err != nil {
		return false
	}
	for repository, requirements := range before.transports[dockerTransport] {
		if isSigned(requirements) && !isSame(requirements, after.transports[dockerTransport][repository]) {
			return false
		}
	}
	return true
}

// isSigned reports whether requirements have the form that signature policies of Layerwright have.
func isSigned(requirements json.RawMessage) bool {
	var list []struct {
		Type           string            `json:"type"`
		SignedIdentity map[string]string `json:"signedIdentity"`
	}
	return json.Unmarshal(requirements, &list) == nil && len(list) == 1 &&
		list[0].Type == sigstoreSigned && list[0].SignedIdentity["type"] == matchRepository
}

// FilesOf are the files of a MachineConfig that say something of signatures.
func FilesOf(mc *mcfgv1.MachineConfig) (Files, error) {
	raw := mc.Spec.Config.Raw
	mayName := func(text string) bool { return bytes.Contains(raw, []byte(text)) }
	if !mayName(PolicyPath) && !mayName(RegistriesDir) && !mayName(`\/`) && !mayName(`\u00`) { // parsing all is work
		return nil, nil
	}
	config, err := machineconfigs.Parse(mc)
	if err != nil {
		return nil, err
	}
	files := Files{}
	for i := range config.Ignition.Storage.Files {
		file := &config.Ignition.Storage.Files[i]
		if !slices.Contains(Paths(), file.Path) && !IsRegistries(file.Path) {
			continue
		}
		text, remote, err := machineconfigs.DecodeContents(file.Contents)
		switch {
		case err != nil:
		case remote:
			err = errors.New("it is by URL, and can't be joined with what signatures need; give it as data")
		case len(file.Append) > 0:
			err = errors.New("it appends to the file, and can't be joined with what signatures need; give the whole file as contents")
		}
		if err != nil {
			return nil, fmt.Errorf("MachineConfig %q: file %q: %w", mc.Name, file.Path, err)
		}
		files[file.Path] = text
	}
	return files, nil
}
