package report

import (
	"fmt"
	"os"

	"github.com/layerwright/layerwright/builder/backend"
)

// Write puts the report where the backend looks for it, in place of what is there. The file is
// written, not replaced: the kubelet mounts it into the container.
func Write(file string, r *backend.Report) error {
	encode := r.Encode
	if file == backend.TektonReportFile {
		encode = r.EncodeForTekton
	}
	text, err := encode()
	if err != nil {
		return err
	}
	if err := os.WriteFile(file, text, 0o644); err != nil { //nolint:gosec // the kubelet reads it, and nothing in it is secret
		return fmt.Errorf("writing the report of step %s: %w", r.Step, err)
	}
	return nil
}

// Read is the report of a step in a file, nil where the step has left none.
func Read(file string, step backend.Step) *backend.Report {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil
	}
	if file == backend.TektonReportFile {
		text = []byte(backend.FromTekton(string(text)))
	}
	r, err := backend.ReadReport(string(text))
	if err != nil || r.Step != step {
		return nil
	}
	return r
}
