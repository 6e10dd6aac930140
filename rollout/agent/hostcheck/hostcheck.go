package hostcheck

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/internal/fault"
	"github.com/layerwright/layerwright/machineconfigs/readable"
	"github.com/layerwright/layerwright/rollout/agent/nodestate"
	"github.com/layerwright/layerwright/rollout/host"
)

// Options say which host is asked. All are required but Disruptive.
type Options struct {
	// Root is the folder in which the host's root is mounted.
	Root string
	// Run runs programs of the host, and Detect finds out what manages it.
	Run    host.Runner
	Detect func(context.Context, host.Mode) (host.Host, error)
	// Version is that of the agent.
	Version string
	// Disruptive has something staged, and taken back.
	Disruptive bool
}

// checker collects what a host answers.
type checker struct {
	Options

	report *Report
}

// Run asks the host. An error means that it could not be asked.
func Run(ctx context.Context, o Options) (*Report, error) {
	if _, err := os.Stat(filepath.Join(o.Root, "etc")); err != nil {
		return nil, fmt.Errorf("looking for the host's root: %w", err)
	}
	c := &checker{o, &Report{Agent: o.Version, System: systemName(o.Root), Disruptive: o.Disruptive}}
	c.programs(ctx)
	h, s, err := c.deployments(ctx)
	if err != nil {
		return nil, err
	}
	c.files()
	c.space()
	if h == nil {
		return c.report, ctx.Err()
	}
	admits := c.policy(s)
	line := c.arguments(ctx, h)
	canLock := c.lock(s)
	c.lastBoot(ctx, h)
	if o.Disruptive {
		c.disrupt(ctx, h, s, attempt{line: line, canLock: canLock, admits: admits})
	} else {
		c.softReboot(s.Staged, s.Rollback)
	}
	return c.report, ctx.Err()
}

func (c *checker) say(result Result, what, format string, args ...any) {
	c.report.Checks = append(c.report.Checks, Check{what, result, fmt.Sprintf(format, args...)})
}

// sayError says why the host can't do something.
func (c *checker) sayError(result Result, what string, err error) {
	c.say(result, what, "%s", fault.Clean(err.Error()))
}

var prettyName = regexp.MustCompile(`(?m)^PRETTY_NAME="?([^"\n]*)"?$`)

// systemName is what the host calls itself.
func systemName(root string) string {
	content, err := os.ReadFile(filepath.Join(root, "usr/lib/os-release")) //nolint:gosec // the folder is a setting
	match := prettyName.FindSubmatch(content)
	if err != nil || match == nil {
		return "a host without a name in /usr/lib/os-release"
	}
	return fault.Clean(string(match[1]))
}

var versionPattern = regexp.MustCompile(`\b[0-9]+(\.[0-9]+)*\b`)

// programs says which of the host's programs there are. What they are for is asked for by itself,
// but for systemctl, without which nothing reboots.
func (c *checker) programs(ctx context.Context) {
	for _, name := range []string{"bootc", "rpm-ostree", "ostree", "skopeo", "systemctl"} {
		out, err := c.Run.Run(ctx, name, "--version")
		version := versionPattern.FindString(string(out))
		switch {
		case errors.Is(err, host.ErrNoProgram) && name == "systemctl":
			c.say(Mend, name, "not there: the agent can't reboot the host")
		case errors.Is(err, host.ErrNoProgram):
			c.say(OK, name, "not there")
		case err != nil:
			c.sayError(Limited, name, err)
		case version == "":
			c.say(Limited, name, "says no version")
		default:
			c.say(OK, name, "%s", version)
		}
	}
}

// deployments says what manages the host, and whether an image can be staged. There is no host
// where nothing manages it.
func (c *checker) deployments(ctx context.Context) (host.Host, *host.Status, error) {
	const what = "deployments"
	h, err := c.Detect(ctx, host.ModeAuto)
	var s host.Status
	if err == nil {
		s, err = h.Status(ctx)
	}
	switch {
	case host.IsAboutHost(err):
		c.sayError(Mend, what, err)
		return nil, nil, nil
	case err != nil:
		return nil, nil, fmt.Errorf("asking the host what it has booted: %w", err)
	}
	by := "rpm-ostree"
	if _, err := c.Detect(ctx, host.ModeBootc); err == nil {
		by = "bootc"
	}
	switch err := s.CheckStaging(); {
	case err != nil:
		c.sayError(Mend, what, err)
	case s.Booted.Digest == "":
		c.say(Mend, what, "by %s, of no image: bring the host to an image once, by %s", by, map[string]string{"bootc": "bootc switch", "rpm-ostree": "rpm-ostree rebase"}[by])
	default:
		c.say(OK, what, "by %s; %s has booted", by, fault.Clean(pinned(s.Booted)))
	}
	if s.UsrIsUnlocked {
		c.say(Limited, "/usr", "%s", host.SaysUsrUnlocked)
	}
	if s.IsComposefs {
		c.say(Limited, "composefs", "bootc's composefs store, without ostree: no kernel arguments, no lock, no soft reboot, and what is staged can't be removed")
	} else {
		c.say(OK, "composefs", "%s", map[bool]string{true: "the root is one of ostree's", false: "not used"}[isOverlay(c.Root)])
	}
	return h, &s, nil
}

// files reports whether the agent can write /etc, and whether who pulls images can read what says
// how.
func (c *checker) files() {
	if err := host.CheckEtc(c.Root); err != nil {
		c.sayError(Mend, "/etc", err)
	} else {
		c.say(OK, "/etc", "writable")
	}
	unreadable, err := unreadableFiles(c.Root)
	const what = "/etc/containers"
	switch {
	case err != nil:
		c.sayError(Mend, what, err)
	case len(unreadable) > 0:
		c.say(Mend, what, "images are pulled by a user without rights, who can't read it: %s", fault.Cut(strings.Join(unreadable, ", ")))
	default:
		c.say(OK, what, "readable by the user without rights who pulls images")
	}
}

// plainName is of paths that a shell takes as they are.
var plainName = regexp.MustCompile(`^[a-zA-Z0-9/._:@+-]+$`)

// unreadableFiles are commands that mend modes. A person may paste them into a shell: the maker of
// an image chooses the names.
func unreadableFiles(root string) (commands []string, err error) {
	err = filepath.WalkDir(filepath.Join(root, "etc/containers"), func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.Type()&fs.ModeSymlink != 0 {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		name := "/" + strings.TrimPrefix(strings.TrimPrefix(path, filepath.Clean(root)), "/")
		needed, is := readable.Unreadable(name, entry.IsDir(), int(info.Mode().Perm()))
		switch {
		case is && !plainName.MatchString(name):
			commands = append(commands, "something whose name has special characters")
		case is:
			commands = append(commands, fmt.Sprintf("chmod %04o %s", needed, name))
		}
		return nil
	})
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return commands, err
}

// policy reports whether the host lets signed images through. The controller brings a policy with a
// pool's first configuration, so that a host without one can be used.
func (c *checker) policy(s *host.Status) (admits bool) {
	const what = "signature policy"
	content, err := nodestate.Open(c.Root).SignaturePolicy()
	if err == nil && content != nil {
		admits, err = host.Admits(content, mcfgv1.ImageDigestFormat(pinned(s.Booted)))
	}
	switch {
	case err != nil:
		c.sayError(Mend, what, err)
	case admits:
		c.say(OK, what, "does not keep signed images of the booted image's repository away")
	default:
		c.say(Limited, what, "signed images wait for a policy: the controller brings one with --enforce-signatures, else give the pool a policy of your own")
	}
	return admits
}

// probe is a kernel argument that means nothing to the kernel.
const probe = "layerwright.hostcheck"

// arguments reports whether kernel arguments can be changed, and what they are; nil where they
// can't.
func (c *checker) arguments(ctx context.Context, h host.KernelArguments) []string {
	const what = "kernel arguments"
	line, err := h.KernelArguments(ctx)
	if err == nil {
		err = h.CheckKernelArguments(ctx, host.ArgumentChange{From: line, To: append(slices.Clone(line), probe)})
	}
	switch {
	case fault.Reason(err) == mcfgv1.ReasonKernelArgumentsUnsupported:
		c.sayError(Limited, what, err)
		return nil
	case err != nil:
		c.sayError(Mend, what, err)
		return nil
	}
	c.say(OK, what, "%d of them, which can be changed", len(line))
	return line
}

// lock reports whether a staged image can be kept from booting.
func (c *checker) lock(s *host.Status) bool {
	const what = "lock"
	can, err := host.FinalizationIn(c.Root).CanLock()
	switch {
	case err != nil:
		c.sayError(Mend, what, err)
	case !can || s.IsComposefs:
		c.say(Limited, what, "none: any reboot boots what is staged")
	default:
		c.say(OK, what, "by ostree: what is staged boots in the node's turn only")
		return true
	}
	return false
}

// lastBoot reports whether what was staged for this boot has booted.
func (c *checker) lastBoot(ctx context.Context, h host.Lock) {
	if why := h.WhyNotBooted(ctx); why != "" {
		c.say(Mend, "last boot", "what was staged did not boot: %s", why)
		return
	}
	c.say(OK, "last boot", "nothing that was staged has failed to boot")
}

// softReboot says what the host itself says of deployments; it is never done.
func (c *checker) softReboot(deployments ...*host.Deployment) {
	for _, d := range deployments {
		if d != nil && d.SoftReboots {
			c.say(OK, "soft reboot", "the host says that it can")
			return
		}
	}
	c.say(Limited, "soft reboot", "the host says of nothing that it has, beside what runs, that it could get there by one")
}
