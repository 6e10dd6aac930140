package deployments

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/layerwright/layerwright/machineconfigs/cmdline"
)

// Deployment is one bootable state of a host.
type Deployment struct {
	// Checksum is that of its commit; Serial tells deployments of the same commit apart.
	Checksum string
	Serial   int
	// Booted runs, Staged becomes what boots next when the host shuts down.
	Booted, Staged bool
	// Digest and Version are those of its image, Reference is what its origin says.
	Digest, Reference, Version string
}

// statusLine is a deployment in what `ostree admin status` prints.
var statusLine = regexp.MustCompile(`(?m)^([* ]) (\S+) ([0-9a-f]{64})\.([0-9]+)(?: \((staged|pending|rollback)\))?$`)

// parseStatus reads what `ostree admin status` prints, in the order in which deployments boot.
func parseStatus(text string) ([]Deployment, error) {
	var list []Deployment
	for _, m := range statusLine.FindAllStringSubmatch(text, -1) {
		serial, err := strconv.Atoi(m[4])
		if err != nil {
			return nil, fmt.Errorf("reading the status of deployments: %w", err)
		}
		list = append(list, Deployment{Checksum: m[3], Serial: serial, Booted: m[1] == "*", Staged: m[5] == "staged"})
	}
	if len(list) == 0 {
		return nil, errors.New("the host has no deployments")
	}
	return list, nil
}

// List lists deployments in the order in which they boot.
func (s *Sysroot) List(ctx context.Context) ([]Deployment, error) {
	text, err := s.admin(ctx, "status")
	if err != nil {
		return nil, err
	}
	list, err := parseStatus(text)
	if err != nil {
		return nil, err
	}
	for i := range list {
		d := &list[i]
		about, err := s.metadata(ctx, d.Checksum)
		if err != nil {
			return nil, err
		}
		origin, err := os.ReadFile(s.path("ostree", "deploy", Stateroot, "deploy", fmt.Sprintf("%s.%d.origin", d.Checksum, d.Serial)))
		if err != nil {
			return nil, fmt.Errorf("reading where a deployment is from: %w", err)
		}
		d.Digest, d.Reference, d.Version = about[keyDigest], parseOrigin(string(origin)), about[keyVersion]
	}
	return list, nil
}

// entry is a BLS entry: what a boot loader offers.
type entry struct {
	path    string
	version int
	fields  map[string]string
}

// entries are those of the disk, what boots next first.
func (s *Sysroot) entries() ([]entry, error) {
	files, err := filepath.Glob(s.path("boot", "loader", "entries", "*.conf"))
	if err != nil {
		return nil, err
	}
	var all []entry
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		e, err := parseEntry(string(text))
		if err != nil {
			return nil, fmt.Errorf("reading %s: %w", file, err)
		}
		e.path = file
		all = append(all, e)
	}
	slices.SortFunc(all, func(a, b entry) int { return b.version - a.version })
	if len(all) == 0 {
		return nil, errors.New("the disk has no boot loader entry")
	}
	return all, nil
}

func parseEntry(text string) (entry, error) {
	e := entry{fields: map[string]string{}}
	for line := range strings.Lines(text) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		e.fields[key] = strings.TrimSpace(value)
	}
	var err error
	e.version, err = strconv.Atoi(e.fields["version"])
	return e, err
}

// NextBoot is the kernel command line of what boots next, as a boot loader passes it on.
func (s *Sysroot) NextBoot() (commandLine string, err error) {
	all, err := s.entries()
	if err != nil {
		return "", err
	}
	return all[0].fields["options"], nil
}

// NextArgs are the kernel arguments of what boots next, without ostree's own.
func (s *Sysroot) NextArgs() ([]string, error) {
	if fileExists(s.path(stagedFile)) {
		text, err := os.ReadFile(s.path(stagedArgs))
		return cmdline.Split(string(text)), err
	}
	line, err := s.NextBoot()
	return withoutLink(line), err
}

func withoutLink(options string) []string {
	return slices.DeleteFunc(cmdline.Split(options), func(a string) bool { return strings.HasPrefix(a, "ostree=") })
}

// SwapFirst makes the second deployment what boots next, and keeps the first one. ostree 2022.7 has
// no command for it; it takes the order from the versions of the entries. Entries of the same
// kernel keep their order, as ostree relies on it when it writes them next: what they lead to is
// exchanged instead.
func (s *Sysroot) SwapFirst() error {
	all, err := s.entries()
	if err != nil {
		return err
	}
	if len(all) < 2 {
		return errors.New("there is no rollback deployment")
	}
	first, second := all[0].deployment(), all[1].deployment()
	if filepath.Dir(first) == filepath.Dir(second) {
		return errors.Join(s.swapLinks(first, second), swapTexts(&all[0], &all[1]))
	}
	for i, version := range []int{all[1].version, all[0].version} {
		if err := all[i].setVersion(version); err != nil {
			return err
		}
	}
	return nil
}

// deployment is the link to what the entry boots.
func (e *entry) deployment() string {
	for _, option := range cmdline.Split(e.fields["options"]) {
		if path, is := strings.CutPrefix(option, "ostree="); is {
			return path
		}
	}
	return ""
}

// swapLinks exchanges the targets of two links of the disk.
func (s *Sysroot) swapLinks(a, b string) error {
	a, b = s.path(a), s.path(b)
	toA, err := os.Readlink(a)
	if err != nil {
		return err
	}
	toB, err := os.Readlink(b)
	if err != nil {
		return err
	}
	for link, target := range map[string]string{a: toB, b: toA} {
		if err := errors.Join(os.Symlink(target, link+".new"), os.Rename(link+".new", link)); err != nil {
			return err
		}
	}
	return nil
}

// swapTexts exchanges what entries say of their deployments, such as kernel arguments, but not
// their places.
func swapTexts(a, b *entry) error {
	ofA, err := os.ReadFile(a.path)
	if err != nil {
		return err
	}
	ofB, err := os.ReadFile(b.path)
	if err != nil {
		return err
	}
	return errors.Join(a.write(ofB, b), b.write(ofA, a))
}

// write gives the entry the text of another, but its own version and link.
func (e *entry) write(text []byte, of *entry) error {
	text = versionLine.ReplaceAll(text, []byte("version "+strconv.Itoa(e.version)))
	return replaceFile(e.path, bytes.Replace(text, []byte("ostree="+of.deployment()), []byte("ostree="+e.deployment()), 1))
}

var versionLine = regexp.MustCompile(`(?m)^version .*$`)

func (e *entry) setVersion(version int) error {
	text, err := os.ReadFile(e.path)
	if err != nil {
		return err
	}
	return replaceFile(e.path, versionLine.ReplaceAll(text, []byte("version "+strconv.Itoa(version))))
}

func replaceFile(path string, text []byte) error {
	if err := os.WriteFile(path+".new", text, 0o644); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}
