package hostsfile

import (
	"fmt"
	"os"
	"slices"
	"strings"
)

// Path of the host's own file.
const Path = "/etc/hosts"

// File is a hosts file. It is written in place, because in containers it is a
// mount that can't be replaced.
type File struct {
	Path string
	// Lock is held while the file is read and written.
	Lock func() (unlock func(), err error)
}

func mark(owner string) string { return "# layerwright test cluster " + owner }

// Set gives the owner exactly one line, "127.0.0.1 name".
func (f File) Set(owner, name string) error {
	return f.edit(owner, func(lines []string) []string {
		return append(lines, fmt.Sprintf("127.0.0.1\t%s\t%s", name, mark(owner)))
	})
}

// Remove deletes the owner's line; that there is none is no error.
func (f File) Remove(owner string) error {
	return f.edit(owner, func(lines []string) []string { return lines })
}

func (f File) edit(owner string, change func(lines []string) []string) error {
	unlock, err := f.Lock()
	if err != nil {
		return err
	}
	defer unlock()
	before, err := os.ReadFile(f.Path)
	if err != nil {
		return fmt.Errorf("reading %s: %w", f.Path, err)
	}
	lines := strings.Split(strings.TrimRight(string(before), "\n"), "\n")
	lines = slices.DeleteFunc(lines, func(line string) bool { return strings.HasSuffix(line, "\t"+mark(owner)) })
	after := strings.Join(change(lines), "\n") + "\n"
	if after == string(before) {
		return nil
	}
	if err := os.WriteFile(f.Path, []byte(after), 0o644); err != nil {
		return fmt.Errorf("naming the registry in %s: %w", f.Path, err)
	}
	return nil
}
