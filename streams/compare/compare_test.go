package compare

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write the golden files")

// el is an enterprise Linux of a major version with some paths.
func el(major string, paths ...string) Side {
	return Side{
		Stream: "rhel-" + major, Image: "quay.io/os@sha256:" + major, HasExtensions: true,
		OSRelease: map[string]string{"PLATFORM_ID": "platform:el" + major, "PRETTY_NAME": "Enterprise Linux " + major},
		Packages:  []Package{}, Kernels: []string{"5." + major},
		Has: func(path string) bool { return slices.Contains(paths, path) },
	}
}

// forward is a move from version 9 to 10.
func forward(config Config) *Move {
	return &Move{Pool: "worker", From: el("9"), To: el("10"), Config: config}
}

// found are the findings of a report in short, warnings in parentheses.
func found(r *Report) []string {
	var all []string
	for _, f := range r.Blockers {
		all = append(all, f.Short())
	}
	for _, f := range r.Warnings {
		all = append(all, "("+f.Short()+")")
	}
	return all
}

func file(path, content string) Config {
	return Config{Files: []File{{Path: path, Content: []byte(content), Object: "MachineConfig a"}}}
}

func TestRules(t *testing.T) {
	t.Parallel()
	const crio = "/etc/crio/crio.conf.d/50-runtime"
	arguments := func(text string) Config {
		return Config{KernelArguments: []Argument{{text, "MachineConfig a"}}}
	}
	to := func(config Config, from, to Side) *Move {
		return &Move{Pool: "worker", From: from, To: to, Config: config}
	}
	wants := Config{Wanted: []Want{{What: `extension "usbguard"`, Packages: []string{"usbguard", "protobuf"}, Object: "MachineConfig a"}}}
	with := func(s Side, change func(*Side)) Side { change(&s); return s }
	unit := func(name string, isOwn bool) Config {
		return Config{Units: []Unit{{Name: name, Object: "MachineConfig a", IsOwn: isOwn}}}
	}
	image := func(text string) Config {
		return Config{Containerfiles: []Containerfile{{Name: "Containerfile", Images: []Mention{{text, 3}}}}}
	}
	tests := map[string]struct {
		move *Move
		want []string
	}{
		"nothing": {move: forward(Config{})},

		"runc is the default runtime": {
			move: forward(file(crio, "[crio.runtime]\ndefault_runtime = \"runc\"\n")), want: []string{"RuncDefaultRuntime: MachineConfig a, " + crio + ":2"},
		},
		"runc without quotes, with a remark":      {move: forward(file("/etc/crio/crio.conf", "default_runtime=runc # old")), want: []string{"RuncDefaultRuntime: MachineConfig a, /etc/crio/crio.conf:1"}},
		"runc in a remark":                        {move: forward(file(crio, "# default_runtime = \"runc\"\n"))},
		"runc is one of the runtimes":             {move: forward(file(crio, "[crio.runtime.runtimes.runc]\n"))},
		"crun is the default runtime":             {move: forward(file(crio, "default_runtime = \"crun\"\n"))},
		"runc in a file that CRI-O does not read": {move: forward(file("/etc/other", "default_runtime = \"runc\"\n"))},
		"runc where the other stream has it":      {move: to(file(crio, "default_runtime = \"runc\"\n"), el("9"), el("10", "/usr/bin/runc"))},
		"runc where nothing moves":                {move: to(file(crio, "default_runtime = \"runc\"\n"), el("9"), el("9"))},
		"a file whose content is not known":       {move: forward(Config{Files: []File{{Path: crio}}})},

		"cgroup v1":                        {move: forward(arguments("systemd.unified_cgroup_hierarchy=0")), want: []string{"CgroupV1: MachineConfig a, spec.kernelArguments"}},
		"cgroup v1, in the other words":    {move: forward(arguments("systemd.legacy_systemd_cgroup_controller=1")), want: []string{"CgroupV1: MachineConfig a, spec.kernelArguments"}},
		"cgroup v2":                        {move: forward(arguments("systemd.unified_cgroup_hierarchy=1"))},
		"cgroup v1 on an older stream":     {move: to(arguments("systemd.unified_cgroup_hierarchy=0"), el("8"), el("9"))},
		"cgroup v1 where nothing is known": {move: to(arguments("systemd.unified_cgroup_hierarchy=0"), Side{Packages: []Package{}}, Side{Packages: []Package{}})},

		"network scripts":           {move: forward(file("/etc/sysconfig/network-scripts/ifcfg-eth0", "")), want: []string{"NetworkScripts: MachineConfig a, /etc/sysconfig/network-scripts/ifcfg-eth0"}},
		"routes of network scripts": {move: forward(file("/etc/sysconfig/network-scripts/route6-eth0", "")), want: []string{"NetworkScripts: MachineConfig a, /etc/sysconfig/network-scripts/route6-eth0"}},
		"network scripts on 9": {
			move: to(file("/etc/sysconfig/network-scripts/ifcfg-eth0", ""), el("8"), el("9")), want: []string{"(NetworkScripts: MachineConfig a, /etc/sysconfig/network-scripts/ifcfg-eth0)"},
		},
		"a readme among network scripts": {move: forward(file("/etc/sysconfig/network-scripts/readme.txt", ""))},

		"rules of iptables":         {move: forward(file("/etc/sysconfig/iptables", "*filter")), want: []string{"(LegacyIptables: MachineConfig a, /etc/sysconfig/iptables)"}},
		"modules of iptables":       {move: forward(file("/etc/modules-load.d/x.conf", "br_netfilter\niptable_nat\n")), want: []string{"(LegacyIptables: MachineConfig a, /etc/modules-load.d/x.conf:2)"}},
		"modules of something else": {move: forward(file("/etc/modules-load.d/x.conf", "nf_tables\n"))},

		"CPUs":                      {move: forward(Config{Architectures: []string{"arm64", "amd64"}}), want: []string{"(CPULevel: nodes of the architecture amd64)"}},
		"CPUs of arm":               {move: forward(Config{Architectures: []string{"arm64"}})},
		"CPUs that have it already": {move: to(Config{Architectures: []string{"amd64"}}, el("10"), el("10"))},

		"a package of an extension is missing": {
			move: to(wants, el("9"), with(el("10"), func(s *Side) { s.Extensions = []string{"usbguard"} })), want: []string{"ExtensionNotAvailable: MachineConfig a"},
		},
		"an extension is there":            {move: to(wants, el("9"), with(el("10"), func(s *Side) { s.Extensions = []string{"protobuf", "usbguard"} }))},
		"no extensions image":              {move: to(wants, el("9"), with(el("10"), func(s *Side) { s.HasExtensions = false })), want: []string{"ExtensionNotAvailable: MachineConfig a"}},
		"extensions that cannot be listed": {move: to(wants, el("9"), el("10"))},
		"an extensions image without any":  {move: to(wants, el("9"), with(el("10"), func(s *Side) { s.Extensions = []string{} })), want: []string{"ExtensionNotAvailable: MachineConfig a"}},

		"a unit that is gone":            {move: to(unit("tuned.service", false), el("9", "/usr/lib/systemd/system/tuned.service"), el("10")), want: []string{"MissingUnit: MachineConfig a, unit tuned.service"}},
		"a template that is gone":        {move: to(unit("getty@tty1.service", false), el("9", "/usr/lib/systemd/system/getty@.service"), el("10")), want: []string{"MissingUnit: MachineConfig a, unit getty@tty1.service"}},
		"a unit that stays":              {move: to(unit("sshd.service", false), el("9", "/usr/lib/systemd/system/sshd.service"), el("10", "/etc/systemd/system/sshd.service"))},
		"a unit that neither has":        {move: forward(unit("mine.service", false))},
		"a unit of one's own":            {move: to(unit("tuned.service", true), el("9", "/usr/lib/systemd/system/tuned.service"), el("10"))},
		"units where nothing is known":   {move: to(unit("tuned.service", false), with(el("9"), func(s *Side) { s.Has = nil }), el("10"))},
		"a downgrade":                    {move: to(Config{}, el("10"), el("9")), want: []string{`Downgrade: stream "rhel-9" has the major version 9, the pool is on 10`}},
		"an image for the older version": {move: forward(image("registry.access.redhat.com/ubi9/go-toolset:1.22")), want: []string{"(ImageOfOtherMajor: Containerfile, line 3)"}},
		"one of CentOS":                  {move: forward(image("quay.io/centos/centos:stream9")), want: []string{"(ImageOfOtherMajor: Containerfile, line 3)"}},
		"one with a hyphen":              {move: forward(image("quay.io/mine/tool:rhel-9.4")), want: []string{"(ImageOfOtherMajor: Containerfile, line 3)"}},
		"an image for the younger one":   {move: forward(image("registry.access.redhat.com/ubi10/ubi"))},
		"a number that only looks like":  {move: forward(image("quay.io/mine/el95:v9"))},
		"an image by digest":             {move: forward(image("quay.io/mine/model9@sha256:9"))},

		"a package database that is missing": {
			move: to(Config{}, el("9"), with(el("10"), func(s *Side) { s.Packages = nil })), want: []string{"(PackagesNotKnown: quay.io/os@sha256:10)"},
		},
		"a package that is gone": {
			move: to(Config{Containerfiles: []Containerfile{{Name: "Containerfile", Packages: []Mention{{"runc", 2}, {"vim", 2}, {"kept", 3}}}}},
				with(el("9"), func(s *Side) { s.Packages = []Package{{Name: "runc"}, {Name: "kept"}} }),
				with(el("10"), func(s *Side) { s.Packages = []Package{{Name: "kept"}} })),
			want: []string{"(MissingPackage: Containerfile, line 2)"},
		},
		"what others have found": {
			move: &Move{From: el("9"), To: el("10"), Blockers: []Finding{{Rule: "B", Found: "b"}}, Warnings: []Finding{{Rule: "W", Found: "w"}}}, want: []string{"B: b", "(W: w)"},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := Compare(tt.move)
			assert.Equal(t, tt.want, found(r))
			for _, f := range append(slices.Clone(r.Blockers), r.Warnings...) {
				if !strings.HasPrefix(name, "what others") {
					assert.NotEmpty(t, f.Why)
					assert.NotEmpty(t, f.Fix)
				}
			}
		})
	}
}

func TestMajor(t *testing.T) {
	t.Parallel()
	for want, sides := range map[int][]map[string]string{
		9:  {{"PLATFORM_ID": "platform:el9"}, {"RHEL_VERSION": "9.4", "VERSION_ID": "4.18"}, {"ID": "centos", "VERSION_ID": "9"}, {"ID": "rhcos", "ID_LIKE": "rhel fedora", "VERSION_ID": "9.6"}},
		10: {{"PLATFORM_ID": "platform:el10", "VERSION_ID": "4.20"}},
		0:  {nil, {"ID": "fedora", "VERSION_ID": "42", "PLATFORM_ID": "platform:f42"}, {"ID": "debian", "VERSION_ID": "12"}, {"ID": "rhel"}},
	} {
		for _, fields := range sides {
			assert.Equal(t, want, (&Side{OSRelease: fields}).Major(), fields)
		}
	}
}

func TestCompareVersions(t *testing.T) {
	t.Parallel()
	for _, ordered := range []struct {
		kind     string
		versions []string // from the oldest to the newest
	}{
		{"rpm", []string{"1.0~rc1-1", "1.0-1", "1.0^git1-1", "1.0.a-1", "1.0.1-1", "1.1-1", "1.10-1", "1:0.1-1"}},
		{"rpm", []string{"5.14.0-427.13.1.el9_4", "5.14.0-570.72.1.el9_6", "6.12.0-124.21.1.el10_1"}},
		{"rpm", []string{"2-1.el9", "2-1.el10", "2-2.el9"}},
		{"rpm", []string{"1a-1", "1b-1", "2-1", "99999999999999999999998-1", "99999999999999999999999-1"}},
		{"deb", []string{"1.0~rc1-1", "1.0-1", "1.0-1+b1", "1.0a-1", "1.0+x-1", "1.0.1-1", "1.10-1", "1:0.1"}},
	} {
		for i, a := range ordered.versions {
			assert.Zero(t, compareVersions(ordered.kind, a, a))
			for _, b := range ordered.versions[i+1:] {
				assert.Negative(t, compareVersions(ordered.kind, a, b), "%s: %s is older than %s", ordered.kind, a, b)
				assert.Positive(t, compareVersions(ordered.kind, b, a), "%s: %s is newer than %s", ordered.kind, b, a)
			}
		}
	}
	assert.Zero(t, compareVersions("rpm", "1.0-1", "1_0-01"), "separators only separate, zeros in front mean nothing")
	assert.Zero(t, compareVersions("rpm", "0:1-1", "1-1"))
}

func TestComparePackages(t *testing.T) {
	t.Parallel()
	of := func(words ...string) []Package {
		var all []Package
		for _, w := range words {
			f := strings.Fields(w)
			all = append(all, Package{Type: "rpm", Name: f[0], Version: f[1], Arch: f[2]})
		}
		return all
	}
	r := Compare(&Move{
		From: Side{Packages: of("bash 5.1-1 x86_64", "runc 1.1-1 x86_64", "glibc 2.34-1 x86_64", "glibc 2.34-1 i686", "podman 5-1 x86_64", "kernel 5-1 x86_64", "kernel 5-2 x86_64", "tz 1-1 noarch")},
		To:   Side{Packages: of("bash 5.2-1 x86_64", "crun 1.9-1 x86_64", "glibc 2.39-1 x86_64", "podman 4-1 x86_64", "kernel 5-2 x86_64", "kernel 6-1 x86_64", "tz 1-1 noarch")},
	})
	words := func(list []Package) string {
		var all []string
		for _, p := range list {
			all = append(all, p.Name+" "+p.Version)
		}
		return strings.Join(all, ", ")
	}
	assert.Equal(t, "crun 1.9-1, kernel 6-1", words(r.Packages.Added))
	assert.Equal(t, "glibc 2.34-1, kernel 5-1, runc 1.1-1", words(r.Packages.Removed))
	assert.Equal(t, []PackageVersion{{"bash", "x86_64", "5.1-1", "5.2-1"}, {"glibc", "x86_64", "2.34-1", "2.39-1"}}, r.Packages.Upgraded)
	assert.Equal(t, []PackageVersion{{"podman", "x86_64", "5-1", "4-1"}}, r.Packages.Downgraded)
	assert.Equal(t, 2, r.Packages.Same)
	assert.Nil(t, Compare(&Move{From: Side{Packages: of("bash 5.1-1 x86_64")}}).Packages, "without a database nothing can be said")
}

// TestText shows what people read, for a move with some of everything.
func TestText(t *testing.T) {
	t.Parallel()
	move := forward(Config{
		Files: []File{
			{Path: "/etc/crio/crio.conf.d/50-runc", Content: []byte("[crio.runtime]\ndefault_runtime = \"runc\"\n"), Object: `MachineConfig "50-runc"`},
			{Path: "/etc/sysconfig/network-scripts/ifcfg-eth1", Object: `MachineConfig "60-net"`},
		},
		KernelArguments: []Argument{{"systemd.unified_cgroup_hierarchy=0", `MachineConfig "40-cgroup"`}},
		Architectures:   []string{"amd64"},
	})
	move.From.Packages = []Package{{Type: "rpm", Name: "runc", Version: "4:1.1.12-2.el9"}, {Type: "rpm", Name: "bash", Version: "5.1.8-9.el9"}, {Type: "rpm", Name: "podman", Version: "5.2-1"}}
	move.To.Packages = []Package{{Type: "rpm", Name: "crun", Version: "1.21-1.el10"}, {Type: "rpm", Name: "bash", Version: "5.2.26-6.el10"}, {Type: "rpm", Name: "podman", Version: "5.1-1"}}
	move.Changes = []Change{{"file /etc/sysctl.d/50-x.conf", "changed"}, {"file /etc/a", "added"}}
	move.Replaced = []File{{Path: "/etc/chrony.conf", Object: `MachineConfig "50-chrony"`}}
	r := Compare(move)
	r.TrialImage = "registry.example.com/os/worker@sha256:abc"
	golden(t, "report.txt", r.Text())
	document, err := json.MarshalIndent(r, "", "  ")
	require.NoError(t, err)
	golden(t, "report.json", string(document)+"\n")
	again := Compare(move)
	again.TrialImage = r.TrialImage
	assert.Equal(t, r.Text(), again.Text(), "the same move gives the same report")
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		require.NoError(t, os.MkdirAll("testdata", 0o755))
		require.NoError(t, os.WriteFile(path, []byte(got), 0o600))
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err)
	assert.Equal(t, string(want), got)
}

func FuzzCompareVersions(f *testing.F) {
	f.Add("1.0~rc1-1", "1:2^git-3")
	f.Fuzz(func(t *testing.T, a, b string) {
		for _, kind := range []string{"rpm", "deb"} {
			if compareVersions(kind, a, b) != -compareVersions(kind, b, a) {
				t.Errorf("%s: %q and %q are both older, or both newer", kind, a, b)
			}
		}
	})
}
