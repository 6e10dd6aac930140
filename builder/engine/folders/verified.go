//go:build cgo && containers_image_openpgp && exclude_graphdriver_btrfs

package folders

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/builder/backend"
	"github.com/layerwright/layerwright/builder/engine/report"
)

// Verified makes sure that the folders which the controller filled have what it put there, and
// gives the paths of copies: a ConfigMap that others made may change while the step runs. Without
// anything to expect the paths stay as they are.
func (p Paths) Verified(expected string) (Paths, error) {
	if expected == "" {
		return p, nil
	}
	folders, err := report.Expected(expected, os.Getenv(backend.ExpectedOfVariable))
	if err != nil {
		return p, err
	}
	for i, place := range []*string{&p.Instructions, &p.Registries, &p.Policy, &p.Context, &p.Trust} {
		dir, file := *place, ""
		if i < 3 { // which are files
			dir, file = filepath.Split(*place)
		}
		dir = filepath.Clean(dir)
		copied, err := verifiedCopy(dir, folders[dir], filepath.Join(p.Temporary(), "verified", filepath.Base(dir)))
		if err != nil {
			return p, err
		}
		*place = filepath.Join(copied, file)
	}
	return p, nil
}

// verifiedCopy copies a folder whose files have a fingerprint. A folder that nothing is expected of
// has to be missing or empty.
func verifiedCopy(dir, fingerprint, to string) (string, error) {
	files, err := filesOf(dir)
	if err != nil {
		return "", err
	}
	if len(files) == 0 && fingerprint == "" {
		return dir, nil
	}
	if backend.Fingerprint(files) != fingerprint {
		return "", report.NewAdmin(mcfgv1.ReasonInputsChanged, fmt.Errorf(
			"the files in %s are not those that the controller made: someone else wrote the ConfigMap; find out who, and ask for a rebuild", dir))
	}
	if err := os.MkdirAll(to, 0o755); err != nil { //nolint:gosec // RUN lines may read certificates as any user
		return "", fmt.Errorf("copying %s: %w", dir, err)
	}
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(to, name), content, 0o644); err != nil { //nolint:gosec // as above
			return "", fmt.Errorf("copying %s: %w", dir, err)
		}
	}
	return to, nil
}

// filesOf are the files of a ConfigMap's volume. What begins with two dots is the kubelet's own.
func filesOf(dir string) (map[string][]byte, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", dir, err)
	}
	files := map[string][]byte{}
	for _, entry := range entries {
		if strings.HasPrefix(entry.Name(), "..") {
			continue
		}
		if files[entry.Name()], err = os.ReadFile(filepath.Join(dir, entry.Name())); err != nil {
			return nil, fmt.Errorf("reading %s: %w", dir, err)
		}
	}
	return files, nil
}
