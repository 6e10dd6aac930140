//go:build cgo && containers_image_openpgp && exclude_graphdriver_btrfs

package process

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"go.podman.io/buildah"
	"golang.org/x/sys/unix"
	"k8s.io/utils/clock"
)

const (
	// chrootExec is how Buildah calls its process that starts the command of a RUN line.
	chrootExec = "buildah-chroot-exec"
	// drainMark is the variable that tells this process that another one waits for what it says to
	// be read.
	drainMark = "LAYERWRIGHT_DRAIN"
	// unshareVariables begin the names of what that process has done already, before main.
	unshareVariables = "_Containers-"
	// configFile is the file that it reads what to do from.
	configFile = 3
)

// Limits of the wait for the last words of a RUN line.
const (
	drainPatience = 10 * time.Second
	drainTick     = time.Millisecond
	// drainGrace is for writing what has been read.
	drainGrace = 5 * time.Millisecond
)

// InitReexec does what Buildah starts this program for, and reports whether it was one of those.
//
// Buildah passes the output of RUN lines on in a process that ends with the command, whether or not
// all was passed on: of a line that fails at once, on a busy machine, the reason was lost. So the
// command's process has another one around it, which ends when nothing is left to be passed on.
//
// It also gives the command one pipe for both of its streams. From two of them Buildah reads in
// turns, so that a reason on the one came before the lines that waited in the other, and was no
// longer among the last ones.
func InitReexec(ctx context.Context) bool {
	if os.Args[0] == chrootExec && os.Getenv(drainMark) == "" {
		os.Exit(superviseCommand(ctx))
	}
	return buildah.InitReexec()
}

// superviseCommand starts this process again, with what Buildah gave to it, and ends as that does.
func superviseCommand(ctx context.Context) int {
	runtime.LockOSThread() // the command ends with the thread that started it
	cmd := exec.CommandContext(ctx, "/proc/self/exe")
	cmd.Args = os.Args
	cmd.Env = append(slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, unshareVariables) }), drainMark+"=1")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stdout
	cmd.ExtraFiles = []*os.File{os.NewFile(configFile, "config")}
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	return drained(cmd, clock.RealClock{}, drainPatience, os.Stdout, os.Stderr)
}

// drained runs a command, passes signals on to it, and waits after its end until someone has read
// what is in the pipes, for as long as patience. It is the command's exit code.
func drained(cmd *exec.Cmd, c clock.Clock, patience time.Duration, pipes ...*os.File) int {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGHUP, syscall.SIGINT, syscall.SIGTERM)
	defer signal.Stop(signals)
	if err := cmd.Start(); err != nil {
		_, _ = fmt.Fprintf(os.Stderr, "process failed to start with error: %v\n", err)
		return 1
	}
	ended := make(chan error)
	go func() { ended <- cmd.Wait() }()
	for {
		select {
		case s := <-signals:
			_ = cmd.Process.Signal(s) // it may have ended
		case err := <-ended:
			drain(c, patience, pipes)
			return codeOf(err)
		}
	}
}

// drain waits until nothing is in pipes.
func drain(c clock.Clock, patience time.Duration, pipes []*os.File) {
	isFull := func(f *os.File) bool {
		waiting, err := unix.IoctlGetInt(int(f.Fd()), unix.TIOCINQ) // which is FIONREAD
		return err == nil && waiting > 0                            // else it is no pipe
	}
	for begin := c.Now(); slices.ContainsFunc(pipes, isFull) && c.Since(begin) < patience; {
		c.Sleep(drainTick)
	}
	c.Sleep(drainGrace)
}

// codeOf is the exit code of a process. One that a signal has ended ends this one by the same, so
// that whoever waits is told of it.
func codeOf(err error) int {
	exit := (*exec.ExitError)(nil)
	if !errors.As(err, &exit) {
		if err != nil {
			return 1
		}
		return 0
	}
	if status, is := exit.Sys().(syscall.WaitStatus); is && status.Signaled() {
		signal.Reset(status.Signal())
		_ = syscall.Kill(os.Getpid(), status.Signal()) // no one forbids it
	}
	return max(exit.ExitCode(), 1)
}
