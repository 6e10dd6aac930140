package nodestate

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// labelName is the attribute that has SELinux's label of a file.
const labelName = "security.selinux"

// Runner runs programs of the host; that of rollout/host is one.
type Runner interface {
	Run(ctx context.Context, name string, args ...string) ([]byte, error)
}

// Labels gives files the labels that SELinux's policy of the host wants. What is new would
// otherwise have that of its folder, with which sshd could not read keys.
type Labels func(f *os.File, at string, kind Kind) error

// LabelsOf asks the policy of a host. It is nil where the host has no SELinux, or has turned it
// off: files then keep the label of what they replace.
func LabelsOf(ctx context.Context, run Runner) Labels {
	if _, err := run.Run(ctx, "selinuxenabled"); err != nil {
		return nil
	}
	return func(f *os.File, at string, kind Kind) error {
		label, err := labelOf(ctx, run, at, kind)
		if err != nil || label == "" {
			return err
		}
		if err := unix.Fsetxattr(int(f.Fd()), labelName, []byte(label), 0); err != nil {
			return fmt.Errorf("labelling %s with %s: %w", at, label, err)
		}
		return nil
	}
}

// labelOf is the label of a path; empty where the policy has none.
func labelOf(ctx context.Context, run Runner, at string, kind Kind) (string, error) {
	mode := "file"
	if kind == Directory {
		mode = "dir"
	}
	out, err := run.Run(ctx, "matchpathcon", "-n", "-m", mode, at)
	if err != nil {
		return "", fmt.Errorf("asking the host's SELinux policy about %s: %w", at, err)
	}
	label := strings.TrimSpace(string(out))
	if label == "<<none>>" {
		return "", nil
	}
	const parts = 4 // user:role:type:level
	if strings.Count(label, ":") < parts-1 || strings.ContainsAny(label, " \n") {
		return "", fmt.Errorf("asking the host's SELinux policy about %s: %q is no label", at, label)
	}
	return label, nil
}

// Labelled is the host with labels for what is written from now on.
func (h *Host) Labelled(labels Labels) *Host {
	labelled := *h
	labelled.tree.labels = labels
	return &labelled
}

// label gives a new file or folder its label.
func (t tree) label(f *os.File, at string, kind Kind) error {
	if t.labels == nil {
		return nil
	}
	return t.labels(f, at, kind)
}

// copyLabel gives a file the label of the one that it takes the place of.
func copyLabel(dir *os.Root, name string, to *os.File) error {
	from, err := open(dir, name)
	if err != nil {
		return err
	}
	defer func() { _ = from.Close() }()
	const most = 256
	label := make([]byte, most)
	n, err := unix.Fgetxattr(int(from.Fd()), labelName, label)
	if errors.Is(err, unix.ENODATA) || errors.Is(err, unix.ENOTSUP) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading the label of %s: %w", name, err)
	}
	if err := unix.Fsetxattr(int(to.Fd()), labelName, label[:n], 0); err != nil && !errors.Is(err, unix.ENOTSUP) {
		return fmt.Errorf("labelling %s: %w", name, err)
	}
	return nil
}
