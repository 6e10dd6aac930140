package daemon

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"regexp"
)

// Spec says what to run. The zero value of every field but Name and Argv is a
// plain process in the namespaces of its parent.
type Spec struct {
	// Name identifies the process within its Manager: its record, its log file
	// and every message use it.
	Name string
	// Argv is the program and its arguments; Argv[0] is an absolute path.
	Argv []string
	// Env is its environment, beside PATH, HOME and TMPDIR: whoever repeats a
	// run from another shell must not change what is run.
	Env []string
	// Path is a folder that is searched for programs before the system's.
	Path string
	// Inputs are files whose content belongs to what is run (configuration,
	// certificates): when one changes, a running process is replaced.
	Inputs []string
	// Files opens what is handed to the process as descriptors 3, 4, ... It is
	// called only when the process is really started.
	Files func() ([]*os.File, error) `json:"-"`
	// NewNetNS gives the process a network namespace of its own.
	NewNetNS bool
	// NewMountNS gives it a mount namespace of its own.
	NewMountNS bool
	// NetNSOf and MountNSOf name a process of the same Manager whose network or
	// mount namespace is joined.
	NetNSOf, MountNSOf string
	// Ready says how the process tells that it is ready.
	Ready Readiness `json:"-"`
	// DieWithParent ends the process when the program that started it ends, for
	// processes that only one test run uses.
	DieWithParent bool
}

// Readiness is how a process tells that it is ready. The zero value means that
// it counts as ready once it runs.
type Readiness struct {
	// Notify waits for READY=1 on the socket named by NOTIFY_SOCKET.
	Notify bool
	// LogLine waits for a line of the log that matches.
	LogLine *regexp.Regexp
}

// fingerprint changes whenever the process would have to be replaced: with what
// is run, with its inputs, and with the processes whose namespaces it joins.
func (m *Manager) fingerprint(s *Spec) (string, error) {
	sum := sha256.New()
	text, err := json.Marshal(s)
	if err != nil {
		return "", err
	}
	sum.Write(text)
	for _, path := range s.Inputs {
		content, err := os.ReadFile(path)
		if err != nil {
			return "", err
		}
		sum.Write(content)
	}
	for _, name := range []string{s.NetNSOf, s.MountNSOf} {
		rec, err := m.load(name)
		if err != nil {
			return "", err
		}
		if rec != nil {
			fmt.Fprintf(sum, "%d %d\n", rec.Pid, rec.StartTicks)
		}
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}
