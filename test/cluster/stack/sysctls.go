package stack

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
)

// tunables are settings of the whole machine that a kubelet changes when it
// starts (setupKernelTunables in its container manager).
var tunables = []string{
	"/proc/sys/vm/overcommit_memory",
	"/proc/sys/vm/panic_on_oom",
	"/proc/sys/kernel/panic",
	"/proc/sys/kernel/panic_on_oops",
	"/proc/sys/kernel/keys/root_maxkeys",
	"/proc/sys/kernel/keys/root_maxbytes",
}

// keepSysctls remembers the machine's settings before the first kubelet.
func (u *up) keepSysctls() error {
	if u.state.Sysctls != nil {
		return nil
	}
	// Beside another cluster, what is seen are already its kubelet's settings.
	inherited, err := u.othersSysctls()
	if err != nil {
		return err
	}
	if inherited == nil {
		inherited = map[string]string{}
		for _, path := range tunables {
			value, err := os.ReadFile(path)
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}
			if err != nil {
				return fmt.Errorf("remembering kernel settings: %w", err)
			}
			inherited[path] = strings.TrimSpace(string(value))
		}
	}
	u.state.Sysctls = inherited
	return u.save(u.state)
}

// othersSysctls returns what another cluster on this machine remembers.
func (s *Stack) othersSysctls() (map[string]string, error) {
	names, err := Names(s.cache)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		if name == s.name {
			continue
		}
		other, err := New(s.repository, s.cache, name)
		if err != nil {
			return nil, err
		}
		if st, err := other.load(); err == nil && st.Sysctls != nil {
			return st.Sysctls, nil
		}
	}
	return nil, nil
}

// restoreSysctls gives the machine its settings back after its last kubelet.
func (s *Stack) restoreSysctls(st *state) error {
	if others, err := s.othersSysctls(); err != nil || others != nil {
		return err
	}
	var errs []error
	for path, value := range st.Sysctls {
		if err := os.WriteFile(path, []byte(value), 0o644); err != nil {
			errs = append(errs, fmt.Errorf("restoring kernel settings: %w", err))
		}
	}
	return errors.Join(errs...)
}
