package deployments

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Stateroot is the name under which hosts keep /var and their deployments.
const Stateroot = "default"

// Sysroot is the physical root of a host's disk.
type Sysroot struct {
	// Path is its folder: "/" for the host that has booted from it.
	Path string
	// Tool calls ostree.
	Tool Tool
}

func (s *Sysroot) path(parts ...string) string {
	return filepath.Join(append([]string{s.Path}, parts...)...)
}

// repo is the repository; the host that has booted reaches it by the link /ostree.
func (s *Sysroot) repo() string { return s.path("ostree", "repo") }

func (s *Sysroot) ostree(ctx context.Context, command string, args ...string) (string, error) {
	return s.Tool.run(ctx, nil, append([]string{command, "--repo=" + s.repo()}, args...)...)
}

func (s *Sysroot) admin(ctx context.Context, command string, args ...string) (string, error) {
	call := []string{"admin", command}
	if s.Path != "/" {
		call = append(call, "--sysroot="+s.Path)
	}
	return s.Tool.run(ctx, nil, append(call, args...)...)
}

// Init makes an empty disk bootable by ostree, unless it is already.
func (s *Sysroot) Init(ctx context.Context) error {
	if fileExists(s.path("ostree", "deploy", Stateroot)) {
		return nil
	}
	if err := os.MkdirAll(s.Path, 0o755); err != nil {
		return err
	}
	for _, step := range []func() (string, error){
		func() (string, error) { return s.admin(ctx, "init-fs", s.Path) },
		func() (string, error) { return s.admin(ctx, "os-init", Stateroot) },
		// The system sees /sysroot read-only, and no boot loader but the entries is written.
		func() (string, error) { return s.ostree(ctx, "config", "set", "sysroot.readonly", "true") },
		func() (string, error) { return s.ostree(ctx, "config", "set", "sysroot.bootloader", "none") },
		// A developer's machine has little free space, and the host's disk is a folder of it.
		func() (string, error) { return s.ostree(ctx, "config", "set", "core.min-free-space-size", "16MB") },
	} {
		if _, err := step(); err != nil {
			return fmt.Errorf("preparing the disk %s: %w", s.Path, err)
		}
	}
	return nil
}

// Seed takes all layers and images of another disk, by hard links where both are in one file
// system.
func (s *Sysroot) Seed(ctx context.Context, from *Sysroot) error {
	// Those of its deployments are names that commits do not know.
	refs, err := from.ostree(ctx, "refs", "--list", "layerwright")
	if err != nil {
		return err
	}
	_, err = s.ostree(ctx, "pull-local", append([]string{from.repo()}, strings.Fields(refs)...)...)
	return err
}

// Request is what to deploy, and how.
type Request struct {
	// Commit is an image that was imported.
	Commit string
	// Reference says how it was fetched and verified, as in
	// ostree-image-signed:docker://registry/image@sha256:...
	Reference string
	// Args are all kernel arguments.
	Args []string
	// Stage leaves the last step to the host's shutdown.
	Stage bool
	// Sources are the arguments by who set them, as bootc tracks them; of what is staged nil stands
	// for those of what has booted.
	Sources map[string]string
}

// Deploy makes an image what boots next, and keeps what has booted.
func (s *Sysroot) Deploy(ctx context.Context, r Request) error {
	origin, err := writeOrigin(r.Reference)
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(origin) }()
	args := []string{"--os=" + Stateroot, "--origin-file=" + origin, "--karg-none"}
	for _, a := range r.Args {
		args = append(args, "--karg-append="+a)
	}
	wasStaged := fileExists(s.path(stagedFile))
	if r.Stage {
		args = append(args, "--stage")
		if r.Sources == nil {
			if r.Sources, err = s.inheritedSources(ctx); err != nil {
				return err
			}
		}
	}
	if _, err := s.admin(ctx, "deploy", append(args, r.Commit)...); err != nil {
		return fmt.Errorf("deploying: %w", err)
	}
	if !r.Stage {
		return nil
	}
	if wasStaged { // its lock goes with it
		if err := s.Lock(false); err != nil {
			return err
		}
	}
	if err := s.keepSources(r.Sources); err != nil {
		return err
	}
	// ostree does not print the arguments of what is staged.
	return os.WriteFile(s.path(stagedArgs), []byte(strings.Join(r.Args, " ")+"\n"), 0o644)
}

// inheritedSources are those of what has booted.
func (s *Sysroot) inheritedSources(ctx context.Context) (map[string]string, error) {
	list, err := s.List(ctx)
	if err != nil {
		return nil, err
	}
	_, sources, err := s.BootedSources(list)
	return sources, err
}

const (
	stagedFile = "run/ostree/staged-deployment"
	// stagedArgs lies beside it: both are gone after a boot.
	stagedArgs = "run/ostree/staged-deployment.args"
)

// writeOrigin writes where an image is from.
func writeOrigin(reference string) (string, error) {
	f, err := os.CreateTemp("", "origin-*")
	if err != nil {
		return "", err
	}
	_, err = f.Write(Origin(reference))
	return f.Name(), errors.Join(err, f.Close())
}

const originKey = "container-image-reference="

// Origin is the file beside a deployment that says where its image is from, in the words of bootc
// and rpm-ostree.
func Origin(reference string) []byte {
	return []byte("[origin]\n" + originKey + reference + "\n")
}

// parseOrigin is the reference of an origin.
func parseOrigin(text string) (reference string) {
	for line := range strings.Lines(text) {
		if value, is := strings.CutPrefix(strings.TrimSpace(line), originKey); is {
			return value
		}
	}
	return ""
}

// FinishStaged makes what is staged bootable. It is what a host does when it shuts down; without
// it, what is staged is lost.
func (s *Sysroot) FinishStaged(ctx context.Context) error {
	if !fileExists(s.path(stagedFile)) || s.IsLocked() || s.HasLockFile() {
		return nil
	}
	sources, err := s.StagedSources()
	if err != nil {
		return err
	}
	if _, err = s.admin(ctx, "finalize-staged"); err != nil {
		return err
	}
	return s.finishSources(sources)
}

// Unstage drops what is staged.
func (s *Sysroot) Unstage(ctx context.Context) error {
	if !fileExists(s.path(stagedFile)) {
		return nil
	}
	if err := s.Undeploy(ctx, 0); err != nil {
		return err
	}
	return s.Lock(false)
}

// Undeploy removes a deployment by its place in the list.
func (s *Sysroot) Undeploy(ctx context.Context, index int) error {
	_, err := s.admin(ctx, "undeploy", fmt.Sprint(index))
	return err
}

// Fill makes the repository refuse everything new, as a disk without space does, until restore is
// called.
func (s *Sysroot) Fill(ctx context.Context) (restore func() error, err error) {
	const key = "core.min-free-space-size"
	before, err := s.ostree(ctx, "config", "get", key)
	if err != nil {
		return nil, err
	}
	_, err = s.ostree(ctx, "config", "set", key, "1000000GB")
	return func() error {
		_, err := s.ostree(context.WithoutCancel(ctx), "config", "set", key, before)
		return err
	}, err
}
