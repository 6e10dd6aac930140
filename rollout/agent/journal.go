package agent

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// journalFile keeps the journal on the host's disk.
type journalFile struct{ path string }

// read reads the journal; an empty one where there is none. What can't be understood is as if there
// were none: what it says is found out again.
func (f journalFile) read() (Journal, error) {
	content, err := os.ReadFile(f.path)
	if errors.Is(err, os.ErrNotExist) {
		return Journal{}, nil
	}
	if err != nil {
		return Journal{}, fmt.Errorf("reading the journal: %w", err)
	}
	var j Journal
	if json.Unmarshal(content, &j) != nil {
		return Journal{}, nil //nolint:nilerr // what can't be read is found out again
	}
	return j, nil
}

// write replaces the journal, so that it is whole after a crash at any moment.
func (f journalFile) write(j Journal) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("writing the journal: %w", err)
		}
	}()
	content, err := json.Marshal(j)
	if err != nil {
		return err
	}
	dir := filepath.Dir(f.path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	next, err := os.CreateTemp(dir, ".journal-")
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(next.Name()) }() // gone where it was renamed
	_, err = next.Write(content)
	if err := errors.Join(err, next.Sync(), next.Close()); err != nil {
		return err
	}
	if err := os.Rename(next.Name(), f.path); err != nil {
		return err
	}
	return syncFolder(dir)
}

// syncFolder makes the names in a folder last.
func syncFolder(dir string) error {
	d, err := os.Open(dir) //nolint:gosec // the folder of the agent's own journal
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
