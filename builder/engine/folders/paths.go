//go:build cgo && containers_image_openpgp && exclude_graphdriver_btrfs

package folders

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/layerwright/layerwright/builder/backend"
	"github.com/layerwright/layerwright/builder/engine/report"
)

// Paths are where a step finds things, and where it leaves them.
type Paths struct {
	// Instructions is the file with the Instructions.
	Instructions string
	// Context is the folder with the files that the Containerfile copies. It may be missing.
	Context string
	// Credentials is the folder with the secret. It is missing where registries are used
	// anonymously.
	Credentials string
	// BaseCredentials is the folder with the pull secret in Push. It may be missing.
	BaseCredentials string
	// Inputs is the folder with a folder for each input. It may be missing.
	Inputs string
	// Trust is the folder with additional certificate authorities. It may be missing.
	Trust string
	// Registries and Policy are files of the pool's configuration. They may be missing.
	Registries, Policy string
	// Work is the folder with the store, which Fetch, Build and Export share.
	Work string
	// Fetched is the folder that Fetch writes for Push.
	Fetched string
	// Layout is the folder that Export writes for Push.
	Layout string
	// Results is the folder for what Tekton shows of the image that was pushed; empty for none.
	Results string
	// Report is the file for the Report.
	Report string
}

// DefaultPaths are those of the contract with the backends.
func DefaultPaths() Paths {
	return Paths{
		Instructions:    backend.InstructionsFile,
		Context:         backend.ContextDir,
		Credentials:     backend.CredentialsDir,
		BaseCredentials: backend.BaseCredentialsDir,
		Inputs:          backend.InputsDir,
		Trust:           backend.TrustDir,
		Registries:      backend.RegistriesFile,
		Policy:          backend.PolicyFile,
		Work:            backend.WorkDir,
		Fetched:         backend.FetchedDir,
		Layout:          backend.LayoutDir,
		Report:          backend.ReportFile,
	}
}

// Store is the folder of the store for what lasts.
func (p Paths) Store() string { return filepath.Join(p.Work, "storage") }

// Runtime is the one for what is about mounts.
func (p Paths) Runtime() string { return filepath.Join(p.Work, "run") }

// Temporary is the one for what is thrown away.
func (p Paths) Temporary() string { return filepath.Join(p.Work, "tmp") }

// Blobs is the folder that remembers which registry has which layer. It is written in Fetch and
// read in Push. RUN lines cannot write there: they could name another layer of the registry, which
// the push secret may mount.
func (p Paths) Blobs() string { return filepath.Join(p.Fetched, "blobs") }

// Of are the paths of a step. Push does not see the store: it works in the folder that only Fetch
// and Push have.
func (p Paths) Of(step backend.Step) Paths {
	if step == backend.Push {
		p.Work = p.Fetched
	}
	return p
}

// MakeFolders makes what is thrown away anew, and what lasts where it is missing.
func (p Paths) MakeFolders(step backend.Step) error {
	if step == backend.Fetch {
		if err := p.forgetOldStore(); err != nil {
			return err
		}
	}
	old := []string{p.Temporary()}
	if step == backend.Export { // RUN lines could write what Build knew of mounts
		old = append(old, p.Runtime())
	}
	for _, dir := range old {
		if err := os.RemoveAll(dir); err != nil {
			return fmt.Errorf("emptying the folder for temporary files: %w", err)
		}
	}
	folders := []string{p.Temporary()}
	switch step { //nolint:exhaustive // the others need nothing here
	case backend.Fetch:
		folders = append(folders, p.Store(), p.Runtime(), p.Blobs())
	case backend.Build:
		folders = append(folders, p.Store(), p.Runtime())
	case backend.Export:
		folders = append(folders, p.Store(), p.Runtime(), p.Layout)
	case backend.Push:
		folders = append(folders, p.Blobs())
	}
	for _, dir := range folders {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return fmt.Errorf("making a folder of step %s: %w", step, err)
		}
	}
	return nil
}

// FetchedFile is written when Fetch is done. RUN lines may have run in the store from then on.
func (p Paths) FetchedFile() string { return filepath.Join(p.Fetched, "images.json") }

// forgetOldStore throws away a store in which RUN lines may have run, as after a restart of the
// node: Fetch has the pull secret, and must not open it.
func (p Paths) forgetOldStore() error {
	if _, err := os.Lstat(p.FetchedFile()); errors.Is(err, fs.ErrNotExist) {
		return nil
	} else if err != nil {
		return fmt.Errorf("looking for what an earlier attempt has fetched: %w", err)
	}
	for _, dir := range []string{p.Store(), p.Runtime(), p.Temporary()} {
		if err := os.RemoveAll(dir); err != nil {
			return fmt.Errorf("removing the store of an earlier attempt: %w", err)
		}
	}
	if err := os.Remove(p.FetchedFile()); err != nil {
		return fmt.Errorf("removing what is known of the store of an earlier attempt: %w", err)
	}
	return nil
}

// Secrets are the credentials that the step has. A file that cannot be read is reported by whoever
// needs it.
func (p Paths) Secrets() report.Secrets {
	var files [][]byte
	for _, dir := range []string{p.Credentials, p.BaseCredentials} {
		entries, _ := os.ReadDir(dir)
		for _, entry := range entries {
			if text, err := os.ReadFile(filepath.Join(dir, entry.Name())); err == nil {
				files = append(files, text)
			}
		}
	}
	return report.NewSecrets(files...)
}

// Nowhere is a folder that no container has. Settings that the libraries would look for in folders
// of the machine are looked for there.
const Nowhere = "/nonexistent"
