package daemon

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/layerwright/layerwright/test/cluster/files"
)

// record is what is kept on disk about a started process.
type record struct {
	Pid int `json:"pid"`
	// StartTicks is the start time in clock ticks since boot; with the boot id
	// it tells the process from a later one that got the same pid.
	StartTicks  uint64    `json:"startTicks"`
	BootID      string    `json:"bootID"`
	Fingerprint string    `json:"fingerprint"`
	Started     time.Time `json:"started"`
	// Ready is set once the process said so.
	Ready bool `json:"ready"`
}

func (m *Manager) recordPath(name string) string {
	return filepath.Join(m.dir, name+".json")
}

// load returns the record of a process, or nil if there is none.
func (m *Manager) load(name string) (*record, error) {
	if name == "" {
		return nil, nil
	}
	text, err := os.ReadFile(m.recordPath(name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	r := &record{}
	if err := json.Unmarshal(text, r); err != nil {
		return nil, fmt.Errorf("reading %s: %w", m.recordPath(name), err)
	}
	return r, nil
}

func (m *Manager) save(name string, r *record) error {
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return files.Write(m.recordPath(name), append(text, '\n'), 0o600)
}

// alive reports whether the recorded process still runs.
func (r *record) alive() bool {
	if r == nil || r.BootID != bootID() {
		return false
	}
	ticks, err := startTicks(r.Pid)
	return err == nil && ticks == r.StartTicks
}

// startTicks reads the start time of a process that is not a zombie.
func startTicks(pid int) (uint64, error) {
	fields, err := statFields(pid)
	if err != nil {
		return 0, err
	}
	if fields[0][0] == 'Z' {
		return 0, unix.ESRCH
	}
	return strconv.ParseUint(string(fields[19]), 10, 64)
}

// statFields returns the fields of /proc/PID/stat from the third on: the
// second is the program's name in parentheses, which may hold anything.
func statFields(pid int) ([][]byte, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return nil, err
	}
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(fields) < 20 {
		return nil, fmt.Errorf("reading /proc/%d/stat: %d fields", pid, len(fields))
	}
	return fields, nil
}

func bootID() string {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return string(bytes.TrimSpace(id))
}
