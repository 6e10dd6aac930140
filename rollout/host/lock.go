package host

import (
	"context"
	"strings"

	"github.com/layerwright/layerwright/internal/fault"
)

var lockFinalization = []string{"ostree", "admin", "lock-finalization"}

// lockStaged locks what is staged, where ostree has a command for that.
func lockStaged(ctx context.Context, run Runner, s *Status, has asker) error {
	if s.Staged == nil || s.Staged.Locked || s.IsComposefs {
		return nil
	}
	return runLock(ctx, run, has)
}

// unlockStaged unlocks it. To say that of what is not locked does nothing.
func unlockStaged(ctx context.Context, run Runner, s *Status, has asker) error {
	if s.Staged == nil || !s.Staged.Locked || s.IsComposefs {
		return nil
	}
	return runLock(ctx, run, has, "--unlock")
}

func runLock(ctx context.Context, run Runner, has asker, flags ...string) error {
	can, err := has(ctx, lockFinalization...)
	if err != nil || !can {
		return err
	}
	_, err = run.Run(ctx, lockFinalization[0], append(append([]string{}, lockFinalization[1:]...), flags...)...)
	return err
}

// whyNotBooted asks the units of ostree that make bootable what is staged when the host shuts down,
// and that say at the next boot whether this failed.
func whyNotBooted(ctx context.Context, run Runner) string {
	for _, of := range [][]string{{"--boot=0", "--unit=ostree-boot-complete.service"}, {"--boot=-1", "--unit=ostree-finalize-staged.service"}} {
		out, err := run.Run(ctx, "journalctl", append([]string{"--quiet", "--no-pager", "--output=cat", "--lines=20"}, of...)...)
		if err != nil {
			continue
		}
		if why := finalizeError(string(out)); why != "" {
			return why
		}
	}
	return ""
}

// finalizeError is the line of a journal that says why what was staged is not bootable: the first
// error of ostree, or else what systemd says.
func finalizeError(journal string) string {
	of := ""
	for line := range strings.Lines(journal) {
		line = strings.TrimSpace(line)
		if said, is := strings.CutPrefix(line, "error: "); is {
			return fault.Clean("ostree-finalize-staged.service: " + strings.TrimPrefix(said, "ostree-finalize-staged.service failed on previous boot: "))
		}
		if of == "" && strings.HasPrefix(line, "ostree-finalize-staged.service: ") && (strings.Contains(line, "timed out") || strings.Contains(line, "Failed")) {
			of = line
		}
	}
	return fault.Clean(of)
}
