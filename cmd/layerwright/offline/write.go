package offline

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"sigs.k8s.io/yaml"
)

// Files that Write makes, beside ReportFile. All but the first are in a folder for each
// architecture.
const (
	MachineConfigFile = "machineconfig.yaml"
	ContainerfileFile = "Containerfile"
	LayerFile         = "config.tar"
	NodeStateFile     = "node-state.json"
)

// private is the mode of files that may hold secrets, which is all that is made from
// MachineConfigs.
const private = 0o600

// Write writes the result and its report to a folder, which it makes: the rendered MachineConfig,
// and for each architecture the Containerfile, the configuration layer and the node state. Only
// their owner may read them. What an earlier call left is replaced.
func (r *Result) Write(folder string, report *Report) error {
	if err := r.write(folder, report); err != nil {
		return fmt.Errorf("writing to %q: %w", folder, err)
	}
	return nil
}

func (r *Result) write(folder string, report *Report) error {
	config, err := yaml.Marshal(r.Rendered.MachineConfig)
	if err != nil {
		return err
	}
	if err := writeFile(filepath.Join(folder, MachineConfigFile), config); err != nil {
		return err
	}
	for i := range r.Platforms {
		if err := r.Platforms[i].write(filepath.Join(folder, strings.ToLower(string(r.Platforms[i].Architecture)))); err != nil {
			return err
		}
	}
	// Last, so that a folder with a report is complete.
	return writeJSON(filepath.Join(folder, ReportFile), report)
}

func (p *PlatformResult) write(folder string) error {
	for _, optional := range []string{ContainerfileFile, LayerFile} {
		if err := os.Remove(filepath.Join(folder, optional)); err != nil && !os.IsNotExist(err) {
			return err
		}
	}
	if p.Containerfile != nil {
		if err := writeFile(filepath.Join(folder, ContainerfileFile), []byte(p.Containerfile.Text)); err != nil {
			return err
		}
	}
	if p.Config != nil {
		if err := writeTo(filepath.Join(folder, LayerFile), p.Config); err != nil {
			return err
		}
	}
	return writeJSON(filepath.Join(folder, NodeStateFile), p.Layer.NodeState)
}

func writeJSON(path string, value any) error {
	content, err := json.MarshalIndent(value, "", "  ")
	if err != nil {
		return err
	}
	return writeFile(path, append(content, '\n'))
}

func writeFile(path string, content []byte) error {
	return writeTo(path, bytes.NewReader(content))
}

// writeTo replaces a file by a new one: an old one may have a wider mode.
func writeTo(path string, content io.WriterTo) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	if err := os.Remove(path); err != nil && !os.IsNotExist(err) {
		return err
	}
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, private) //nolint:gosec // the user names the folder
	if err != nil {
		return err
	}
	if _, err := content.WriteTo(file); err != nil {
		_ = file.Close()
		return err
	}
	return file.Close()
}
