package daemon

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// process is one that this program has started or adopted.
type process struct {
	name     string
	pid      int
	started  time.Time
	done     chan struct{}
	exit     string      // how it ended; valid once done is closed
	expected atomic.Bool // it is being stopped, so its end is no news
}

// spawn starts the process in its namespaces, with its output in the log file.
func (m *Manager) spawn(spec *Spec, env []string) (*process, error) {
	log, err := os.OpenFile(m.LogFile(spec.Name), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	defer func() { _ = log.Close() }()
	cmd := exec.Command(spec.Argv[0], spec.Argv[1:]...)
	cmd.Dir = "/"
	cmd.Stdout, cmd.Stderr = log, log
	cmd.Env = slices.Concat(spec.environment(), env)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if spec.NewNetNS {
		cmd.SysProcAttr.Cloneflags |= unix.CLONE_NEWNET
	}
	if spec.NewMountNS {
		cmd.SysProcAttr.Cloneflags |= unix.CLONE_NEWNS
	}
	if spec.DieWithParent {
		cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	}
	if spec.Files != nil {
		if cmd.ExtraFiles, err = spec.Files(); err != nil {
			return nil, err
		}
	}
	defer func() {
		for _, f := range cmd.ExtraFiles {
			_ = f.Close()
		}
	}()
	enter, err := m.namespaces(spec)
	if err != nil {
		return nil, err
	}
	return m.run(spec.Name, cmd, enter)
}

// systemPath is where every distribution has its programs.
const systemPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

func (s *Spec) environment() []string {
	path := systemPath
	if s.Path != "" {
		path = s.Path + ":" + path
	}
	env := []string{"PATH=" + path}
	for _, name := range []string{"HOME", "TMPDIR"} {
		if value, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+value)
		}
	}
	return append(env, s.Env...)
}

// run starts cmd from a thread that has entered the namespaces and reaps it.
// The thread is never unlocked: it must not serve other goroutines, and a
// parent-death signal would fire when it ended before its child.
func (m *Manager) run(name string, cmd *exec.Cmd, enter func() error) (*process, error) {
	p := &process{name: name, done: make(chan struct{})}
	startErr := make(chan error)
	go func() {
		runtime.LockOSThread()
		err := enter()
		if err == nil {
			err = cmd.Start()
		}
		if err == nil {
			p.pid, p.started = cmd.Process.Pid, time.Now()
			m.track(p)
		}
		startErr <- err
		if err != nil {
			return
		}
		_ = cmd.Wait() // the state tells more than the error
		p.exit = cmd.ProcessState.String()
		m.ended(p)
	}()
	return p, <-startErr
}

// namespaces returns what moves the calling thread into the namespaces that
// spec joins.
func (m *Manager) namespaces(spec *Spec) (func() error, error) {
	var joins []func() error
	for _, ns := range []struct {
		of, kind string
		flag     int
	}{{spec.NetNSOf, "net", unix.CLONE_NEWNET}, {spec.MountNSOf, "mnt", unix.CLONE_NEWNS}} {
		if ns.of == "" {
			continue
		}
		pid, err := m.Pid(ns.of)
		if err != nil {
			return nil, err
		}
		joins = append(joins, func() error { return JoinNamespace(pid, ns.kind, ns.flag) })
	}
	return func() error {
		for _, join := range joins {
			if err := join(); err != nil {
				return err
			}
		}
		return nil
	}, nil
}

// JoinNamespace moves the calling thread, which must be locked to its
// goroutine, into a namespace of another process: kind is its name below
// /proc/PID/ns, flag the CLONE_NEW... constant.
func JoinNamespace(pid int, kind string, flag int) error {
	f, err := os.Open(fmt.Sprintf("/proc/%d/ns/%s", pid, kind))
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	if flag == unix.CLONE_NEWNS {
		// A thread that shares root and working directory can't change its mounts.
		if err := unix.Unshare(unix.CLONE_FS); err != nil {
			return fmt.Errorf("unsharing file system attributes: %w", err)
		}
	}
	if err := unix.Setns(int(f.Fd()), flag); err != nil {
		return fmt.Errorf("entering %s namespace of process %d: %w", kind, pid, err)
	}
	return nil
}

// terminate asks a process to end and kills it when it has not after grace.
func terminate(ctx context.Context, pid int, grace time.Duration) error {
	if grace > 0 {
		if err := unix.Kill(pid, unix.SIGTERM); err != nil {
			return ignoreGone(err)
		}
		patient, cancel := context.WithTimeout(ctx, grace)
		defer cancel()
		if AwaitExit(patient, pid) == nil {
			return nil
		}
	}
	if err := unix.Kill(pid, unix.SIGKILL); err != nil {
		return ignoreGone(err)
	}
	return AwaitExit(ctx, pid)
}

// AwaitExit waits until a process, a child or not, has ended.
func AwaitExit(ctx context.Context, pid int) error {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return ignoreGone(err)
	}
	defer func() { _ = unix.Close(fd) }()
	wake, err := unix.Eventfd(0, unix.EFD_CLOEXEC)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(wake) }()
	release := context.AfterFunc(ctx, func() { _, _ = unix.Write(wake, []byte{1, 0, 0, 0, 0, 0, 0, 0}) })
	defer release()
	for {
		fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}, {Fd: int32(wake), Events: unix.POLLIN}}
		if _, err := unix.Poll(fds, -1); errors.Is(err, unix.EINTR) {
			continue
		} else if err != nil {
			return err
		}
		if fds[0].Revents != 0 {
			return nil
		}
		return context.Cause(ctx)
	}
}

func ignoreGone(err error) error {
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	return err
}
