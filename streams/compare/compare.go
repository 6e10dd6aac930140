package compare

import (
	"slices"
	"strconv"
	"strings"
)

// Side is the operating system of one stream.
type Side struct {
	// Stream is its name, and Image the OS image by digest.
	Stream, Image string
	// OSRelease are the fields of its os-release; empty where it has none.
	OSRelease map[string]string
	// Packages are those of the OS image, nil where it has no package database that is known.
	Packages []Package
	// Kernels are the versions of its kernels, as the folders of /usr/lib/modules are called.
	Kernels []string
	// Has reports whether the OS image has a path; nil says nothing.
	Has func(path string) bool
	// Extensions are the names of the packages in the stream's extensions image, nil where that is
	// not known, and HasExtensions whether the stream has such an image.
	Extensions    []string
	HasExtensions bool
}

// Package is an installed package.
type Package struct {
	// Type is "rpm" or "deb": they order versions differently.
	Type    string `json:"-"`
	Name    string `json:"name"`
	Version string `json:"version"`
	Arch    string `json:"arch,omitempty"`
}

// Config is what administrators have configured for the pool.
type Config struct {
	Files           []File
	Units           []Unit
	KernelArguments []Argument
	// Wanted are what needs packages of the extensions image: extensions and kernel types.
	Wanted         []Want
	Containerfiles []Containerfile
	// Architectures are those of the image, as Go spells them.
	Architectures []string
}

// File is a file of the configuration.
type File struct {
	Path string
	// Content is its text; nil where it is not known here, such as that of a file named by URL.
	Content []byte
	// Object is what has it, such as `MachineConfig "50-motd"`.
	Object string
}

// Unit is a systemd unit that the configuration turns on.
type Unit struct {
	Name   string
	Object string
	// IsOwn reports whether the configuration has the unit's text too.
	IsOwn bool
}

// Argument is a kernel argument.
type Argument struct {
	Text   string
	Object string
}

// Want is something that takes packages from the extensions image.
type Want struct {
	// What is such as `extension "usbguard"`.
	What     string
	Packages []string
	Object   string
}

// Containerfile is what of one matters here.
type Containerfile struct {
	// Name says where it is.
	Name string
	// Images are the images that it names, and Packages those that its RUN lines install.
	Images, Packages []Mention
}

// Mention is a name on a line.
type Mention struct {
	Text string
	// Line counts from 1.
	Line int
}

// Change of the configuration that gets into the image.
type Change struct {
	// What is such as "file /etc/chrony.conf", and How is "added", "changed" or "removed".
	What string `json:"what"`
	How  string `json:"how"`
}

// Move is a pool's move from one stream to another.
type Move struct {
	Pool     string
	From, To Side
	Config   Config
	// Changes are how the configuration in the image differs, as it is rendered for each of the
	// streams.
	Changes []Change
	// Replaced are files that the configuration replaces and that the two OS images have in
	// different versions.
	Replaced []File
	// Findings are what others have found to be in the way.
	Blockers, Warnings []Finding
}

// Major is the major version of an enterprise Linux, 0 for another operating system or where
// nothing says so.
func (s *Side) Major() int {
	if platform, ok := strings.CutPrefix(s.OSRelease["PLATFORM_ID"], "platform:el"); ok {
		return leadingNumber(platform)
	}
	if version := s.OSRelease["RHEL_VERSION"]; version != "" {
		return leadingNumber(version)
	}
	kin := append(strings.Fields(s.OSRelease["ID_LIKE"]), s.OSRelease["ID"])
	if slices.Contains(kin, "rhel") || slices.Contains(kin, "centos") {
		return leadingNumber(s.OSRelease["VERSION_ID"])
	}
	return 0
}

func leadingNumber(text string) int {
	end := strings.IndexFunc(text, func(r rune) bool { return r < '0' || r > '9' })
	if end >= 0 {
		text = text[:end]
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		return 0
	}
	return n
}

// name is how people call the operating system.
func (s *Side) name() string {
	if pretty := s.OSRelease["PRETTY_NAME"]; pretty != "" {
		return pretty
	}
	return strings.TrimSpace(s.OSRelease["NAME"] + " " + s.OSRelease["VERSION"])
}

// Compare says what the move changes. It sorts everything, so that the same move gives the same
// report.
func Compare(m *Move) *Report {
	r := &Report{
		Pool: m.Pool,
		From: OS{Stream: m.From.Stream, Image: m.From.Image, Name: m.From.name(), Kernels: sorted(m.From.Kernels)},
		To:   OS{Stream: m.To.Stream, Image: m.To.Image, Name: m.To.name(), Kernels: sorted(m.To.Kernels)},
	}
	if m.From.Packages != nil && m.To.Packages != nil {
		r.Packages = Packages(m.From.Packages, m.To.Packages)
	}
	r.Config = slices.Clone(m.Changes)
	for _, f := range m.Replaced {
		r.Replaced = append(r.Replaced, Replaced{Path: f.Path, Object: f.Object})
	}
	r.Blockers, r.Warnings = slices.Clone(m.Blockers), slices.Clone(m.Warnings)
	for _, rule := range rules() {
		for _, found := range rule.check(m) {
			found.Rule = rule.name
			if found.isWarning || rule.isWarning {
				r.Warnings = append(r.Warnings, found)
			} else {
				r.Blockers = append(r.Blockers, found)
			}
		}
	}
	r.sort()
	return r
}

// ConfigBlockers are what of the configuration can't work on the stream, as far as can be said
// without its image.
func ConfigBlockers(m *Move) []Finding {
	var blockers []Finding
	for _, rule := range rules() {
		if !rule.ofConfig || rule.isWarning {
			continue
		}
		for _, found := range rule.check(m) {
			if found.Rule = rule.name; !found.isWarning {
				blockers = append(blockers, found)
			}
		}
	}
	return blockers
}

func sorted(list []string) []string { return slices.Sorted(slices.Values(list)) }
