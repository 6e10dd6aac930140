package daemon

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// markVariable carries, in the environment of every process, the path of its
// record. It finds processes whose record was never written because the
// program that started them was killed in between.
const markVariable = "LAYERWRIGHT_PROCESS"

func (m *Manager) mark(name string) string { return markVariable + "=" + filepath.Join(m.dir, name) }

// StopOrphans ends processes of a Manager whose folder is gone, and reports whether there were any.
func StopOrphans(ctx context.Context, dir string) (found bool, err error) {
	return (&Manager{dir: dir}).stopUnrecorded(ctx, "")
}

// stopUnrecorded ends processes that carry the mark of this Manager and of the
// name, or of any name if that is empty.
func (m *Manager) stopUnrecorded(ctx context.Context, name string) (found bool, err error) {
	prefix := m.mark(name)
	if name == "" {
		prefix += string(filepath.Separator)
	}
	files, err := filepath.Glob("/proc/[0-9]*/environ")
	if err != nil {
		return false, err
	}
	var errs []error
	for _, file := range files {
		environ, err := os.ReadFile(file)
		if err != nil || !marked(environ, prefix, name != "") {
			continue // gone, or another user's
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		if err != nil || pid == os.Getpid() || !leadsSession(pid) {
			continue
		}
		found = true
		if err := terminate(ctx, pid, stopGrace); err != nil {
			errs = append(errs, fmt.Errorf("stopping process %d, left by a run that was killed: %w", pid, err))
		}
	}
	return found, errors.Join(errs...)
}

func marked(environ []byte, mark string, whole bool) bool {
	for variable := range bytes.SplitSeq(environ, []byte{0}) {
		if string(variable) == mark || (!whole && strings.HasPrefix(string(variable), mark)) {
			return true
		}
	}
	return false
}

// leadsSession tells a process that was started here from its children, which
// may have inherited the mark.
func leadsSession(pid int) bool {
	fields, err := statFields(pid)
	return err == nil && string(fields[3]) == strconv.Itoa(pid)
}

// StopAll ends every process, recorded or not, in the reverse order of their
// start.
func (m *Manager) StopAll(ctx context.Context) error {
	infos, err := m.List()
	if err != nil {
		return err
	}
	slices.SortFunc(infos, func(a, b Info) int { return b.Started.Compare(a.Started) })
	var errs []error
	for _, info := range infos {
		errs = append(errs, m.Stop(ctx, info.Name))
	}
	_, err = m.stopUnrecorded(ctx, "")
	return errors.Join(append(errs, err)...)
}
