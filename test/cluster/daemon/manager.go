package daemon

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	// readyTimeout bounds the wait for one process to become ready. It takes
	// seconds; on a disk that is busy or throttled, reading a program alone can
	// take more than a minute.
	readyTimeout = 4 * time.Minute
	// stopGrace is the time between SIGTERM and SIGKILL.
	stopGrace = 5 * time.Second
	// lastLines is how much of a log goes into an error.
	lastLines = 20
)

// Manager keeps the processes of one folder. It is safe for concurrent use;
// that no second program manages the same folder is for the caller to ensure.
type Manager struct {
	dir    string
	logDir string

	mu      sync.Mutex
	running map[string]*process
	onDeath context.CancelCauseFunc
}

// New returns the Manager whose records are in dir and whose log files are in
// logDir. Both are created if absent.
func New(dir, logDir string) (*Manager, error) {
	for _, d := range []string{dir, logDir} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			return nil, err
		}
	}
	return &Manager{dir: dir, logDir: logDir, running: map[string]*process{}}, nil
}

// Guard returns a context that ends when any process that this Manager has
// started or adopted dies; its cause is then a *DiedError. Without it a wait on
// something that only the dead process could bring about lasts to its deadline.
func (m *Manager) Guard(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	m.mu.Lock()
	m.onDeath = cancel
	m.mu.Unlock()
	return ctx, func() { cancel(nil) }
}

// LogFile is where a process's output is kept.
func (m *Manager) LogFile(name string) string { return filepath.Join(m.logDir, name+".log") }

// Ensure makes the process run as specified and waits until it is ready. One
// that runs already is kept if it was started from the same Spec, and replaced
// otherwise. It reports whether a process was started.
func (m *Manager) Ensure(ctx context.Context, spec Spec) (started bool, err error) {
	fingerprint, err := m.fingerprint(&spec)
	if err != nil {
		return false, fmt.Errorf("preparing %s: %w", spec.Name, err)
	}
	rec, err := m.load(spec.Name)
	if err != nil {
		return false, err
	}
	if rec.alive() {
		if rec.Ready && rec.Fingerprint == fingerprint {
			m.adopt(spec.Name, rec)
			return false, nil
		}
		if err := m.Stop(ctx, spec.Name); err != nil {
			return false, err
		}
	}
	if _, err := m.stopUnrecorded(ctx, spec.Name); err != nil {
		return false, err
	}
	return true, m.start(ctx, &spec, fingerprint)
}

// Pid returns the process id of a live process.
func (m *Manager) Pid(name string) (int, error) {
	rec, err := m.load(name)
	if err != nil {
		return 0, err
	}
	if !rec.alive() {
		return 0, fmt.Errorf("%s is not running", name)
	}
	return rec.Pid, nil
}

// Stop ends a process: SIGTERM, and SIGKILL after a grace period. A process
// that does not run, or was never started, is no error.
func (m *Manager) Stop(ctx context.Context, name string) error {
	rec, err := m.load(name)
	if err != nil || rec == nil {
		return err
	}
	m.mu.Lock()
	if p := m.running[name]; p != nil {
		p.expected.Store(true)
	}
	m.mu.Unlock()
	if rec.alive() {
		if err := terminate(ctx, rec.Pid, stopGrace); err != nil {
			return fmt.Errorf("stopping %s (process %d): %w", name, rec.Pid, err)
		}
	}
	return os.Remove(m.recordPath(name))
}

// Info is what is known of one process.
type Info struct {
	Name    string    `json:"name"`
	Pid     int       `json:"pid,omitempty"`
	Alive   bool      `json:"alive"`
	Ready   bool      `json:"ready"`
	Started time.Time `json:"started"`
	LogFile string    `json:"logFile"`
}

// List returns all recorded processes by name.
func (m *Manager) List() ([]Info, error) {
	files, err := filepath.Glob(filepath.Join(m.dir, "*.json"))
	if err != nil {
		return nil, err
	}
	slices.Sort(files)
	infos := make([]Info, 0, len(files))
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".json")
		rec, err := m.load(name)
		if err != nil {
			return nil, err
		}
		infos = append(infos, Info{
			Name: name, Pid: rec.Pid, Alive: rec.alive(), Ready: rec.Ready,
			Started: rec.Started, LogFile: m.LogFile(name),
		})
	}
	return infos, nil
}

// Died returns the error that describes a dead process by its log.
func (m *Manager) Died(name, exit string) *DiedError {
	return &DiedError{Name: name, Exit: exit, LogFile: m.LogFile(name), LastLines: Tail(m.LogFile(name), lastLines)}
}

// adopt watches a process that an earlier run has started.
func (m *Manager) adopt(name string, rec *record) {
	p := &process{name: name, pid: rec.Pid, done: make(chan struct{})}
	m.track(p)
	go func() {
		_ = AwaitExit(context.Background(), rec.Pid) // ends with this program at the latest
		m.ended(p)
	}()
}

func (m *Manager) track(p *process) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.running[p.name] = p
}

// Release gives a process to others, who end it and start it again: its death ends no wait any
// more.
func (m *Manager) Release(name string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if p := m.running[name]; p != nil {
		p.expected.Store(true)
	}
}

// ended is called once, when a tracked process has ended.
func (m *Manager) ended(p *process) {
	close(p.done)
	m.mu.Lock()
	onDeath := m.onDeath
	m.mu.Unlock()
	if onDeath != nil && !p.expected.Load() {
		onDeath(m.Died(p.name, p.exit))
	}
}

// start runs the process and waits until it is ready.
func (m *Manager) start(ctx context.Context, spec *Spec, fingerprint string) error {
	ready, err := m.listen(spec)
	if err != nil {
		return fmt.Errorf("starting %s: %w", spec.Name, err)
	}
	defer ready.close()
	p, err := m.spawn(spec, append(ready.env(), m.mark(spec.Name)))
	if err != nil {
		return fmt.Errorf("starting %s: %w", spec.Name, err)
	}
	ticks, err := startTicks(p.pid)
	if err != nil {
		<-p.done // it is gone already, or about to be reaped
		return m.Died(spec.Name, p.exit)
	}
	rec := &record{Pid: p.pid, StartTicks: ticks, BootID: bootID(), Fingerprint: fingerprint, Started: p.started}
	if err := m.save(spec.Name, rec); err != nil {
		return errors.Join(err, terminate(ctx, p.pid, 0))
	}
	if err := m.awaitReady(ctx, spec.Name, p, ready); err != nil {
		return err
	}
	rec.Ready = true
	return m.save(spec.Name, rec)
}

func (m *Manager) awaitReady(ctx context.Context, name string, p *process, ready *readiness) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	said := make(chan error, 1)
	go func() { said <- ready.wait(ctx) }()
	select {
	case <-p.done:
		return m.Died(name, p.exit)
	case err := <-said:
		if errors.Is(err, context.DeadlineExceeded) {
			return &NotReadyError{Name: name, Waited: readyTimeout, LogFile: m.LogFile(name), LastLines: Tail(m.LogFile(name), lastLines)}
		}
		return err
	}
}
