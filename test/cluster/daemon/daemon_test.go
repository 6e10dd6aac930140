package daemon

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	sdnotify "github.com/coreos/go-systemd/v22/daemon"
	"github.com/stretchr/testify/require"
)

// helperVariable makes this test's executable behave as a program that is run.
const helperVariable = "DAEMON_TEST_HELPER"

func TestMain(m *testing.M) {
	switch role := os.Getenv(helperVariable); role {
	case "":
		os.Exit(m.Run())
	case "notify":
		_, _ = os.Stdout.WriteString("starting\n")
		_, _ = sdnotify.SdNotify(false, "STATUS=almost\n"+sdnotify.SdNotifyReady)
		select {}
	case "print":
		_, _ = os.Stdout.WriteString("listening on port 1\n")
		select {}
	case "silent":
		select {}
	case "die":
		_, _ = os.Stdout.WriteString("cannot open /etc/thing\n")
		_, _ = os.Stdout.WriteString("giving up\n")
		os.Exit(3)
	case "leave":
		// Starts a process as up does, but is gone before it is recorded.
		manager, err := New(os.Args[1], os.Args[1])
		if err != nil {
			panic(err)
		}
		if _, err := manager.spawn(&Spec{Name: "orphan", Argv: []string{os.Args[0]}, Env: []string{helperVariable + "=silent"}}, []string{manager.mark("orphan")}); err != nil {
			panic(err)
		}
		os.Exit(0)
	}
}

func newManager(t *testing.T) *Manager {
	t.Helper()
	dir, err := os.MkdirTemp("", "lw") //nolint:usetesting // t.TempDir's paths are too long for a socket
	require.NoError(t, err)
	m, err := New(filepath.Join(dir, "run"), filepath.Join(dir, "logs"))
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, m.StopAll(context.WithoutCancel(t.Context())))
		require.NoError(t, os.RemoveAll(dir))
	})
	return m
}

func helper(t *testing.T, role string, ready Readiness) Spec {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	return Spec{Name: role, Argv: []string{self}, Env: []string{helperVariable + "=" + role}, Ready: ready}
}

func TestEnsureWaitsForReadiness(t *testing.T) {
	t.Parallel()
	tests := map[string]Readiness{
		"notify": {Notify: true},
		"print":  {LogLine: regexp.MustCompile(`^listening on`)},
		"silent": {},
	}
	for role, ready := range tests {
		t.Run(role, func(t *testing.T) {
			t.Parallel()
			m := newManager(t)
			started, err := m.Ensure(t.Context(), helper(t, role, ready))
			require.NoError(t, err)
			require.True(t, started)
			pid, err := m.Pid(role)
			require.NoError(t, err)

			again, err := New(m.dir, m.logDir) // as another run of the program
			require.NoError(t, err)
			started, err = again.Ensure(t.Context(), helper(t, role, ready))
			require.NoError(t, err)
			require.False(t, started, "what runs as wanted is kept")

			require.NoError(t, again.Stop(t.Context(), role))
			require.NoError(t, AwaitExit(t.Context(), pid))
			_, err = again.Pid(role)
			require.Error(t, err)
		})
	}
}

func TestEnsureReplacesChangedProcesses(t *testing.T) {
	t.Parallel()
	tests := map[string]func(t *testing.T, spec *Spec, m *Manager){
		"another argument": func(_ *testing.T, spec *Spec, _ *Manager) { spec.Argv = append(spec.Argv, "-x") },
		"another input": func(t *testing.T, spec *Spec, _ *Manager) {
			t.Helper()
			require.NoError(t, os.WriteFile(spec.Inputs[0], []byte("b"), 0o600))
		},
		"a start that was never ready": func(t *testing.T, spec *Spec, m *Manager) {
			t.Helper()
			rec, err := m.load(spec.Name)
			require.NoError(t, err)
			rec.Ready = false
			require.NoError(t, m.save(spec.Name, rec))
		},
	}
	for name, change := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			input := filepath.Join(t.TempDir(), "config")
			require.NoError(t, os.WriteFile(input, []byte("a"), 0o600))
			m := newManager(t)
			spec := helper(t, "notify", Readiness{Notify: true})
			spec.Inputs = []string{input}
			_, err := m.Ensure(t.Context(), spec)
			require.NoError(t, err)
			before, err := m.Pid(spec.Name)
			require.NoError(t, err)

			change(t, &spec, m)
			started, err := m.Ensure(t.Context(), spec)
			require.NoError(t, err)
			require.True(t, started)
			require.NoError(t, AwaitExit(t.Context(), before), "the old process must end")
			after, err := m.Pid(spec.Name)
			require.NoError(t, err)
			require.NotEqual(t, before, after)
		})
	}
}

func TestTheCallersEnvironmentDoesNotMatter(t *testing.T) {
	m := newManager(t)
	spec := helper(t, "notify", Readiness{Notify: true})
	_, err := m.Ensure(t.Context(), spec)
	require.NoError(t, err)
	t.Setenv("PATH", "/elsewhere")
	t.Setenv("KUBECONFIG", "/elsewhere/too")
	started, err := m.Ensure(t.Context(), spec)
	require.NoError(t, err)
	require.False(t, started)

	spec.Path = "/programs"
	started, err = m.Ensure(t.Context(), spec)
	require.NoError(t, err)
	require.True(t, started)
	pid, err := m.Pid(spec.Name)
	require.NoError(t, err)
	environ, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
	require.NoError(t, err)
	require.Contains(t, string(environ), "PATH=/programs:"+systemPath+"\x00")
	require.NotContains(t, string(environ), "elsewhere")
}

func TestEnsureReportsDeathWithLastLines(t *testing.T) {
	t.Parallel()
	m := newManager(t)
	_, err := m.Ensure(t.Context(), helper(t, "die", Readiness{Notify: true}))
	var died *DiedError
	require.ErrorAs(t, err, &died)
	require.Equal(t, "exit status 3", died.Exit)
	require.Equal(t, "  cannot open /etc/thing\n  giving up", died.LastLines)
	require.ErrorContains(t, err, "die died (exit status 3)")
}

func TestEnsureNamesTheProcessThatIsNotReady(t *testing.T) {
	t.Parallel()
	m := newManager(t)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := m.Ensure(ctx, helper(t, "silent", Readiness{Notify: true}))
	var late *NotReadyError
	require.ErrorAs(t, err, &late)
	require.ErrorContains(t, err, "silent was not ready after")
	require.ErrorContains(t, err, "(it printed nothing)")
}

func TestGuardEndsWaitsWhenAnyProcessDies(t *testing.T) {
	t.Parallel()
	m := newManager(t)
	ctx, release := m.Guard(t.Context())
	defer release()
	_, err := m.Ensure(ctx, helper(t, "print", Readiness{LogLine: regexp.MustCompile("listening")}))
	require.NoError(t, err)

	// The end of a process that is stopped on purpose is no news.
	_, err = m.Ensure(ctx, helper(t, "notify", Readiness{Notify: true}))
	require.NoError(t, err)
	require.NoError(t, m.Stop(ctx, "notify"))
	require.NoError(t, ctx.Err())

	// Nor is that of one that others look after.
	_, err = m.Ensure(ctx, helper(t, "notify", Readiness{Notify: true}))
	require.NoError(t, err)
	m.Release("notify")
	pid, err := m.Pid("notify")
	require.NoError(t, err)
	require.NoError(t, terminate(t.Context(), pid, 0))
	<-m.running["notify"].done

	pid, err = m.Pid("print")
	require.NoError(t, err)
	require.NoError(t, terminate(t.Context(), pid, 0))
	<-ctx.Done()
	var died *DiedError
	require.ErrorAs(t, context.Cause(ctx), &died)
	require.Equal(t, "print", died.Name)
	require.Equal(t, "signal: killed", died.Exit)
	require.Contains(t, died.LastLines, "listening on port 1")
}

func TestStopAllFindsUnrecordedProcesses(t *testing.T) {
	t.Parallel()
	m := newOrphan(t)
	require.NoError(t, m.StopAll(t.Context()))
	require.Empty(t, processesMarked(t, m.mark("orphan")))
}

func TestProcessesOutliveTheirFolder(t *testing.T) {
	t.Parallel()
	m := newOrphan(t)
	require.NoError(t, os.RemoveAll(m.dir))
	found, err := StopOrphans(t.Context(), m.dir)
	require.NoError(t, err)
	require.True(t, found)
	require.Empty(t, processesMarked(t, m.mark("orphan")))
	found, err = StopOrphans(t.Context(), m.dir)
	require.NoError(t, err)
	require.False(t, found)
}

// newOrphan makes a manager with a process that was never recorded.
func newOrphan(t *testing.T) *Manager {
	t.Helper()
	m := newManager(t)
	self, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), self, m.dir)
	cmd.Env = append(os.Environ(), helperVariable+"=leave")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, string(out))
	require.Len(t, processesMarked(t, m.mark("orphan")), 1)
	return m
}

func processesMarked(t *testing.T, mark string) (pids []string) {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/environ")
	require.NoError(t, err)
	for _, file := range files {
		if environ, err := os.ReadFile(file); err == nil && marked(environ, mark, true) {
			pids = append(pids, file)
		}
	}
	return pids
}

func TestRecordOfAnotherBootIsDead(t *testing.T) {
	t.Parallel()
	ticks, err := startTicks(os.Getpid())
	require.NoError(t, err)
	alive := record{Pid: os.Getpid(), StartTicks: ticks, BootID: bootID()}
	require.True(t, alive.alive())
	reused := alive
	reused.StartTicks++
	require.False(t, reused.alive(), "another process got the pid")
	rebooted := alive
	rebooted.BootID = "another"
	require.False(t, rebooted.alive())
	require.False(t, (*record)(nil).alive())
}

func TestFollow(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "log")
	require.NoError(t, os.WriteFile(path, []byte("old\nsecond\nthi"), 0o600))
	lines := make(chan string, 8)
	ended := make(chan error, 1)
	go func() {
		ended <- Follow(t.Context(), path, int64(len("old\n")), func(line []byte) bool {
			lines <- string(line)
			return string(line) != "last"
		})
	}()
	require.Equal(t, "second", <-lines)
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0o600)
	require.NoError(t, err)
	t.Cleanup(func() { _ = f.Close() })
	_, err = f.WriteString("rd\nlast\nnot seen\n")
	require.NoError(t, err)
	require.Equal(t, "third", <-lines, "a line that was written in two parts is one line")
	require.Equal(t, "last", <-lines)
	require.NoError(t, <-ended)
	require.Empty(t, lines)
}

func TestTail(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "log")
	require.NoError(t, os.WriteFile(path, []byte(strings.Repeat("x\n", 100)+"a\nb\n"), 0o600))
	require.Equal(t, "  a\n  b", Tail(path, 2))
	require.Contains(t, Tail(path+"absent", 2), "no log")
}

func TestCheckSocketPathNamesTheFix(t *testing.T) {
	t.Parallel()
	require.NoError(t, CheckSocketPath("/run/x.sock"))
	require.ErrorContains(t, CheckSocketPath("/"+strings.Repeat("x", 107)), "LAYERWRIGHT_CACHE")
}
