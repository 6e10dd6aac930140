//go:build cgo && containers_image_openpgp && exclude_graphdriver_btrfs

package process

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/sirupsen/logrus"
	"go.podman.io/storage/pkg/unshare"
	"golang.org/x/sys/unix"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/builder/backend"
	"github.com/layerwright/layerwright/builder/engine"
	"github.com/layerwright/layerwright/builder/engine/classify"
	"github.com/layerwright/layerwright/builder/engine/folders"
	"github.com/layerwright/layerwright/builder/engine/report"
)

// workerMark is the variable that tells a process that it is the worker, and not the one who
// watches it.
const workerMark = "LAYERWRIGHT_WORKER"

// kept are the variables of the container that a step uses.
var kept = []string{
	"HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy",
	"SSL_CERT_FILE", "SSL_CERT_DIR", backend.ExpectedVariable, backend.ExpectedOfVariable,
}

// Main is the main function of a step: it returns the exit code. The context is main's own; signals
// are Main's business. Two processes share the work. One does it, in a mount namespace of its own
// and, where the container has no CAP_SYS_ADMIN, in a user namespace too. The other one waits,
// passes on signals, and writes the report that the worker could not, because it was killed or
// could not start.
func Main(ctx context.Context, step backend.Step, options engine.Options, stderr io.Writer) int {
	if os.Getenv(workerMark) != "" {
		return work(ctx, step, options)
	}
	return watch(step, options.WithDefaults(), stderr)
}

// work does the step.
func work(ctx context.Context, step backend.Step, options engine.Options) int {
	unshare.MaybeReexecUsingUserNamespace(false)
	if err := ownMounts(options.Paths.Of(step), step); err != nil {
		return leave(options, step, err)
	}
	_ = dontWaitForDisk() // where a node forbids it, the build takes longer
	logrus.SetLevel(logrus.WarnLevel)
	syscall.Umask(0o022)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	go func() {
		s := <-signals
		signal.Stop(signals) // the next one ends the process
		cancel(fmt.Errorf("it was stopped (%s), because of its timeout or the deletion of its pod,", s))
	}()
	return engine.Run(ctx, step, options)
}

// ownMounts keeps the mounts of this process to itself, and has big temporary files written to the
// volume of the build: containers/image writes them to /var/tmp, which an image without a system in
// it may not have, or not be able to write to.
func ownMounts(paths folders.Paths, step backend.Step) error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SLAVE, ""); err != nil {
		return fmt.Errorf("keeping mounts from others: %w", err)
	}
	if err := paths.MakeFolders(step); err != nil {
		return err
	}
	const big = "/var/tmp"
	if err := os.MkdirAll(big, 0o700); err != nil {
		return fmt.Errorf("making %s, which the image of the builder should have: %w", big, err)
	}
	if err := unix.Mount(paths.Temporary(), big, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("mounting the volume of the build at %s: %w", big, err)
	}
	return nil
}

// leave ends a step that did not begin.
func leave(options engine.Options, step backend.Step, err error) int {
	if classify.IsDiskFull(err) {
		err = classify.DiskFull("beginning", err)
	}
	failure := options.Paths.Secrets().FailureOf(err)
	_ = report.Write(options.Paths.Report, &backend.Report{Step: step, Failure: failure}) // else the one who watches writes what it knows
	return report.ExitCode(failure)
}

// watch starts the worker and sees that there is a report in the end.
func watch(step backend.Step, options engine.Options, stderr io.Writer) int {
	started := options.Clock.Now()
	tail := &report.Tail{}
	options.Paths = options.Paths.Of(step)
	secrets := options.Paths.Secrets()
	// What another attempt left must not be taken for this one's.
	if err := os.WriteFile(options.Paths.Report, nil, 0o644); err != nil { //nolint:gosec // the kubelet reads it
		_, _ = fmt.Fprintln(stderr, err)
		return backend.ExitInfrastructure
	}
	uidMap, err := os.ReadFile("/proc/self/uid_map")
	if err == nil {
		err = checkIsolation(backend.Isolation(os.Getenv(backend.IsolationVariable)), string(uidMap))
	}
	if err != nil {
		_, _ = fmt.Fprintln(stderr, err)
		return leave(options, step, err)
	}
	lines := report.NewOutput(secrets.Writer(io.MultiWriter(stderr, tail)), step, options.Clock).Lines()
	told, err := runWorker(options, lines)
	_ = lines.Close() // nothing is left to tell of it
	left := report.Read(options.Paths.Report, step)
	if left == nil {
		left = &backend.Report{Step: step, Took: options.Clock.Since(started).Milliseconds(), Failure: secrets.FailureOf(deathOf(told, err, tail))}
		if err := report.Write(options.Paths.Report, left); err != nil {
			_, _ = fmt.Fprintln(stderr, err)
		}
	}
	return report.ExitCode(left.Failure)
}

// checkIsolation refuses to work where the pod was promised a user namespace and has none: its
// capabilities would then be the node's own. A node that does not know the field ignores it.
func checkIsolation(isolation backend.Isolation, uidMap string) error {
	const everyone = "0 0 4294967295"
	if isolation != backend.IsolationUserNamespace || strings.Join(strings.Fields(uidMap), " ") != everyone {
		return nil
	}
	return report.NewAdmin(mcfgv1.ReasonFailed, errors.New(
		"the node gave the build no user namespace, though hostUsers is false; start the controller with --builder-user-namespaces=Never, or keep builds off that node"))
}

// deathOf says why a worker has left no report.
func deathOf(told os.Signal, err error, tail *report.Tail) error {
	var exit *exec.ExitError
	var status syscall.WaitStatus
	if errors.As(err, &exit) {
		status, _ = exit.Sys().(syscall.WaitStatus)
	}
	switch said := strings.Join(tail.Lines(), "; "); {
	case told != nil:
		return report.NewInterrupted("", fmt.Errorf("it did not end after the signal (%s) for its timeout or the deletion of its pod", told))
	case status.Signaled() && status.Signal() == syscall.SIGKILL, status.ExitStatus() == 128+int(syscall.SIGKILL):
		return report.NewInfrastructure(errors.New("the builder was killed, most likely because there was no memory left: " + backend.MoreMemory))
	case strings.Contains(said, "CLONE_NEW"), strings.Contains(said, "gid_map"), strings.Contains(said, "uid_map"):
		return report.NewInfrastructure(fmt.Errorf("the container can't create a user namespace, and has no CAP_SYS_ADMIN: %s", said))
	case err == nil:
		return report.NewInfrastructure(errors.New("the builder left no report"))
	default:
		return report.NewInfrastructure(fmt.Errorf("the builder ended without a report: %w: %s", err, said))
	}
}

// runWorker runs this program again as the worker. It returns the signal that it passed on, if
// there was one.
func runWorker(options engine.Options, stderr io.Writer) (told os.Signal, err error) {
	if os.Geteuid() != 0 {
		return nil, errors.New("a step has to run as root of its container")
	}
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return nil, fmt.Errorf("becoming the parent of what RUN lines leave running: %w", err)
	}
	defer endOrphans()
	worker := unshare.Command(os.Args...)
	worker.Env = environment(options.Paths)
	worker.Stdin, worker.Stdout, worker.Stderr = nil, os.Stdout, stderr
	worker.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if mayMount, err := unshare.HasCapSysAdmin(); err == nil && mayMount {
		worker.UnshareFlags = syscall.CLONE_NEWNS // what it mounts goes with it
	}
	if err := worker.Start(); err != nil {
		return nil, fmt.Errorf("starting the worker: %w", err)
	}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	defer signal.Stop(signals)
	ended := make(chan error, 1)
	go func() { ended <- worker.Wait() }()
	over, late := deadline(&options), (<-chan time.Time)(nil)
	for {
		select {
		case err := <-ended:
			return told, err
		case s := <-signals:
			told = s
			_ = worker.Process.Signal(s)
			late = options.Clock.After(options.Grace)
		case <-over:
			told = syscall.SIGTERM
			_ = worker.Process.Signal(told)
			late = options.Clock.After(options.Grace)
		case <-late:
			_ = worker.Process.Kill()
		}
	}
}

// endOrphans ends what RUN lines have left running. Their children become ours as they end, so it
// looks until there are none.
func endOrphans() {
	for {
		children := children()
		if len(children) == 0 {
			return
		}
		for _, child := range children {
			pid, err := strconv.Atoi(child)
			if err != nil {
				return
			}
			_ = syscall.Kill(pid, syscall.SIGKILL)
			if _, err := syscall.Wait4(pid, nil, 0, nil); err != nil && !errors.Is(err, syscall.EINTR) {
				return
			}
		}
	}
}

// children are the processes whose parent is one of our threads.
func children() (pids []string) {
	lists, _ := filepath.Glob("/proc/self/task/*/children") // the pattern is fine
	for _, list := range lists {
		if text, err := os.ReadFile(list); err == nil {
			pids = append(pids, strings.Fields(string(text))...)
		}
	}
	return pids
}

// environment is that of the worker: proxies, and what keeps the libraries from reading settings of
// the machine.
func environment(paths folders.Paths) []string {
	variables := []string{
		workerMark + "=1",
		"HOME=" + folders.Nowhere,
		"PATH=/usr/sbin:/usr/bin:/sbin:/bin",
		"TMPDIR=" + paths.Temporary(),
		"CONTAINERS_CONF=" + os.DevNull,
		"CONTAINERS_STORAGE_CONF=" + os.DevNull,
		"CONTAINERS_REGISTRIES_CONF=" + os.DevNull,
	}
	for _, variable := range os.Environ() {
		if key, _, _ := strings.Cut(variable, "="); slices.Contains(kept, key) {
			variables = append(variables, variable)
		}
	}
	return variables
}
