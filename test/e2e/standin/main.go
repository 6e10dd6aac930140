package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/layerwright/layerwright/builder/backend"
	"github.com/layerwright/layerwright/internal/fault"
)

const digest = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

func main() {
	if len(os.Args) > 1 && os.Args[1] == mountChild {
		if err := mountOverlay(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	step := backend.Step(os.Args[1])
	report := &backend.Report{Step: step}
	code := run(step, report)
	text, err := report.Encode()
	if err == nil {
		err = os.WriteFile(backend.ReportFile, text, 0o600)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = backend.ExitInfrastructure
	}
	os.Exit(code)
}

// run does what the Containerfile says, and fills the report.
func run(step backend.Step, report *backend.Report) int {
	fail := func(class fault.Class, reason, message string) int {
		report.Failure = &backend.StepFailure{Class: class, Reason: reason, Message: message, Output: []string{"the last line"}}
		if class == fault.Terminal {
			return backend.ExitAdmin
		}
		return backend.ExitInfrastructure
	}
	in, err := instructions()
	if err != nil {
		return fail(fault.Transient, "NoInstructions", err.Error())
	}
	if err := requirePredecessor(step); err != nil {
		return fail(fault.Transient, "NoStore", err.Error())
	}
	report.Notes = look()
	for line := range strings.Lines(in.Containerfile) {
		if do, isMine := strings.CutPrefix(strings.TrimSpace(line), string(step)+" "); isMine {
			fmt.Printf("%s{\"step\":%q,\"done\":1,\"total\":2,\"now\":%q}\n", backend.ProgressPrefix, step, do) //nolint:forbidigo // its output
			switch do {
			case "fails":
				return fail(fault.Terminal, "BuildFailed", "Containerfile line 7: RUN "+do+": exit status 1")
			case "stumbles":
				return fail(fault.Transient, "RegistryUnavailable", "the registry answers 503")
			case "crashes":
				panic("standin crashes")
			case "eats":
				eat()
			case "mounts":
				report.Notes = append(report.Notes, mount())
			}
		}
	}
	if step == backend.Push {
		report.Image = in.Target[:strings.LastIndex(in.Target, ":")] + "@" + digest
	}
	return 0
}

func instructions() (*backend.Instructions, error) {
	text, err := os.ReadFile(backend.InstructionsFile)
	if err != nil {
		return nil, err
	}
	in := &backend.Instructions{}
	return in, json.Unmarshal(text, in)
}

// requirePredecessor leaves a trace of this step in the store, and needs that of the one before.
func requirePredecessor(step backend.Step) error {
	before := map[backend.Step]string{
		backend.Build: filepath.Join(backend.WorkDir, string(backend.Fetch)), backend.Export: filepath.Join(backend.WorkDir, string(backend.Build)),
		backend.Push: filepath.Join(backend.LayoutDir, string(backend.Export)),
	}[step]
	if before != "" {
		if _, err := os.Stat(before); err != nil {
			return err
		}
	}
	own := map[backend.Step]string{backend.Export: backend.LayoutDir, backend.Push: backend.FetchedDir}[step]
	if own == "" {
		own = backend.WorkDir
	}
	return os.WriteFile(filepath.Join(own, string(step)), nil, 0o600)
}

// look says what the container has: files that only some steps may see, and its rights.
func look() []string {
	var found []string
	for _, dir := range []string{
		backend.CredentialsDir, backend.BaseCredentialsDir, backend.ContextDir, backend.InputsDir, backend.TrustDir, filepath.Dir(backend.RegistriesFile), "/var/run/secrets",
	} {
		entries, _ := os.ReadDir(dir)
		for _, entry := range entries {
			if !strings.HasPrefix(entry.Name(), "..") {
				found = append(found, filepath.Join(dir, entry.Name()))
			}
		}
	}
	for _, dir := range []string{"/", backend.TempDir, backend.RunDir, backend.WorkDir, backend.FetchedDir, backend.LayoutDir} {
		if file, err := os.CreateTemp(dir, "probe"); err == nil {
			_ = file.Close()
			_ = os.Remove(file.Name())
			found = append(found, "writes "+dir)
		}
	}
	status, _ := os.ReadFile("/proc/self/status")
	for line := range strings.Lines(string(status)) {
		switch name, value, _ := strings.Cut(line, ":"); name {
		case "CapEff", "NoNewPrivs", "Seccomp":
			found = append(found, name+" "+strings.TrimSpace(value))
		}
	}
	users, _ := os.ReadFile("/proc/self/uid_map")
	if fields := strings.Fields(string(users)); len(fields) > 1 && fields[1] != "0" {
		found = append(found, "user namespace")
	}
	return found
}

// eat takes memory until it is killed.
func eat() {
	var all [][]byte
	for {
		block := make([]byte, 16<<20)
		for i := 0; i < len(block); i += 4096 {
			block[i] = 1
		}
		all = append(all, block)
		if len(all) > 1<<12 {
			return
		}
	}
}

const mountChild = "mount-child"

// mount does what a builder has to do to the kernel, and says how that went.
func mount() string {
	cmd := exec.Command("/proc/self/exe", mountChild)
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS}
	if backend.Isolation(os.Getenv(backend.IsolationVariable)) == backend.IsolationCapabilities {
		all := []syscall.SysProcIDMap{{ContainerID: 0, HostID: 0, Size: 1<<32 - 1}}
		cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings, cmd.SysProcAttr.GidMappings, cmd.SysProcAttr.GidMappingsEnableSetgroups = all, all, true
	}
	if text, err := cmd.CombinedOutput(); err != nil {
		return fmt.Sprintf("cannot mount: %v: %s", err, text)
	}
	return "mounted"
}

// mountOverlay mounts a file system of two layers in the store, removes and chowns files in it, and
// enters it.
func mountOverlay() error {
	work := backend.WorkDir
	if _, err := os.Stat(work); err != nil { // in Push
		work = backend.FetchedDir
	}
	dir, err := os.MkdirTemp(work, "overlay")
	if err != nil {
		return err
	}
	for _, sub := range []string{"lower", "upper", "work", "merged"} {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o700); err != nil {
			return err
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "lower", "file"), nil, 0o600); err != nil {
		return err
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("making mounts private: %w", err)
	}
	options := fmt.Sprintf("lowerdir=%[1]s/lower,upperdir=%[1]s/upper,workdir=%[1]s/work,userxattr", dir)
	merged := filepath.Join(dir, "merged")
	if err := unix.Mount("overlay", merged, "overlay", 0, options); err != nil {
		return fmt.Errorf("mounting the overlay: %w", err)
	}
	if err := unix.Mount("/proc", merged, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("binding /proc: %w", err)
	}
	if err := unix.Unmount(merged, unix.MNT_DETACH); err != nil {
		return fmt.Errorf("unmounting /proc: %w", err)
	}
	if err := os.Remove(filepath.Join(merged, "file")); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(merged, "new"), nil, 0o600); err != nil {
		return err
	}
	if err := os.Chown(filepath.Join(merged, "new"), 1000, 1000); err != nil {
		return err
	}
	return unix.Chroot(merged)
}
