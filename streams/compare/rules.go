package compare

import (
	"bytes"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Finding is something in the configuration that the move breaks, or may break.
type Finding struct {
	// Rule is the name of what was looked for.
	Rule string `json:"rule"`
	// Object is what has to be changed, such as `MachineConfig "50-runc"`; empty where nothing
	// does. Place is where in it: a path, with a line where there is one.
	Object string `json:"object,omitempty"`
	Place  string `json:"place,omitempty"`
	// Found is what is there, Why what is wrong with that on the other stream, and Fix what to do.
	Found string `json:"found"`
	Why   string `json:"why"`
	Fix   string `json:"fix"`

	isWarning bool
}

// rule is one thing that is known to break.
type rule struct {
	name string
	// isWarning reports whether nothing of it keeps the pool from moving.
	isWarning bool
	// ofConfig reports whether the configuration and the major version say it all, so that no image
	// has to be read.
	ofConfig bool
	check    func(*Move) []Finding
}

// Names of rules.
const (
	RuleDowngrade       = "Downgrade"
	RuleRuncDefault     = "RuncDefaultRuntime"
	RuleCgroupV1        = "CgroupV1"
	RuleNetworkScripts  = "NetworkScripts"
	RuleLegacyIptables  = "LegacyIptables"
	RuleCPULevel        = "CPULevel"
	RuleExtensions      = "ExtensionNotAvailable"
	RuleMissingUnit     = "MissingUnit"
	RuleMissingPackage  = "MissingPackage"
	RuleOtherMajor      = "ImageOfOtherMajor"
	RulePackagesUnknown = "PackagesNotKnown"
)

const el9, el10 = 9, 10

// rules are what is known to break.
func rules() []rule {
	return []rule{
		{name: RuleDowngrade, check: downgrade},
		{name: RuleRuncDefault, ofConfig: true, check: onEL10(runcDefault)},
		{name: RuleCgroupV1, ofConfig: true, check: onEL10(cgroupV1)},
		{name: RuleNetworkScripts, ofConfig: true, check: networkScripts},
		{name: RuleLegacyIptables, isWarning: true, check: onEL10(legacyIptables)},
		{name: RuleCPULevel, isWarning: true, check: onEL10(cpuLevel)},
		{name: RuleExtensions, check: extensions},
		{name: RuleMissingUnit, check: missingUnits},
		{name: RuleMissingPackage, isWarning: true, check: missingPackages},
		{name: RuleOtherMajor, isWarning: true, check: otherMajor},
		{name: RulePackagesUnknown, isWarning: true, check: packagesUnknown},
	}
}

// onEL10 limits a rule to moves onto version 10 of enterprise Linux, or a younger one.
func onEL10(check func(*Move) []Finding) func(*Move) []Finding {
	return func(m *Move) []Finding {
		if m.To.Major() < el10 {
			return nil
		}
		return check(m)
	}
}

func downgrade(m *Move) []Finding {
	from, to := m.From.Major(), m.To.Major()
	if to == 0 || to >= from {
		return nil
	}
	return []Finding{{
		Found: fmt.Sprintf("stream %q has the major version %d, the pool is on %d", m.To.Stream, to, from),
		Why:   "the older version may not understand what the newer version wrote to the node's disk", Fix: "make a new pool with new nodes for the older stream",
	}}
}

var runcLine = regexp.MustCompile(`^\s*default_runtime\s*=\s*["']?runc["']?\s*(#.*)?$`)

// runcDefault finds CRI-O configuration that names runc as the runtime of pods.
func runcDefault(m *Move) []Finding {
	if m.To.has("/usr/bin/runc") {
		return nil
	}
	return inFiles(m, func(p string) bool {
		return p == "/etc/crio/crio.conf" || strings.HasPrefix(p, "/etc/crio/crio.conf.d/")
	}, runcLine, Finding{
		Why: "version 10 has no runc, so that no container would start",
		Fix: `set default_runtime = "crun", or remove the line (on OpenShift: defaultRuntime in the ContainerRuntimeConfig), and let the nodes run with crun before they move`,
	})
}

var cgroupArguments = []string{"systemd.unified_cgroup_hierarchy=0", "systemd.unified_cgroup_hierarchy=no", "systemd.unified_cgroup_hierarchy=false", "systemd.legacy_systemd_cgroup_controller"}

func cgroupV1(m *Move) []Finding {
	var found []Finding
	for _, argument := range m.Config.KernelArguments {
		known := argument.Text
		if !slices.Contains(cgroupArguments, known) {
			known, _, _ = strings.Cut(argument.Text, "=") // without a value that may be a secret
		}
		if slices.Contains(cgroupArguments, known) {
			found = append(found, Finding{
				Object: argument.Object, Place: "spec.kernelArguments", Found: "the kernel argument " + known,
				Why: "version 10 has only cgroup v2: with this argument the node does not boot, or the kubelet does not start",
				Fix: "remove the argument (on OpenShift: cgroupMode v2 in nodes.config.openshift.io), and let the nodes run with cgroup v2 before they move",
			})
		}
	}
	return found
}

// networkScripts finds the configuration of networks that NetworkManager reads with a plugin that
// version 10 has no more.
func networkScripts(m *Move) []Finding {
	if m.To.Major() < el9 {
		return nil
	}
	var found []Finding
	for _, file := range m.Config.Files {
		dir, name := path.Split(file.Path)
		kind, _, _ := strings.Cut(name, "-")
		if dir != "/etc/sysconfig/network-scripts/" || !slices.Contains([]string{"ifcfg", "route", "route6", "rule", "rule6", "keys"}, kind) {
			continue
		}
		f := Finding{
			Object: file.Object, Place: file.Path, Found: "a network-scripts file",
			Why: "NetworkManager of version 10 does not read it, so that the network would not come up",
			Fix: "write it as a keyfile below /etc/NetworkManager/system-connections (`nmcli connection migrate` converts it), or use nmstate",
		}
		if m.To.Major() < el10 {
			f.isWarning, f.Why = true, "NetworkManager of version 9 still reads it, and says that it is deprecated; that of version 10 does not"
		}
		found = append(found, f)
	}
	return found
}

var iptablesModule = regexp.MustCompile(`^\s*(ip6?_tables|ip6?table_\w+|ipt_\w+|ebtables|arp_tables)\s*$`)

func legacyIptables(m *Move) []Finding {
	fix := "use nftables: `iptables-translate` converts rules; iptables-nft goes on working where the package is installed"
	why := "version 10 has neither the iptables services nor the kernel modules of legacy iptables"
	var found []Finding
	for _, file := range m.Config.Files {
		if slices.Contains([]string{"/etc/sysconfig/iptables", "/etc/sysconfig/ip6tables"}, file.Path) {
			found = append(found, Finding{Object: file.Object, Place: file.Path, Found: "rules of the iptables service", Why: why, Fix: fix})
		}
	}
	return append(found, inFiles(m, func(p string) bool { return strings.HasPrefix(p, "/etc/modules-load.d/") }, iptablesModule, Finding{Why: why, Fix: fix})...)
}

func cpuLevel(m *Move) []Finding {
	if m.From.Major() >= el10 || !slices.Contains(m.Config.Architectures, "amd64") {
		return nil
	}
	return []Finding{{
		Found: "nodes of the architecture amd64", Why: "version 10 runs on CPUs of level x86-64-v3 or younger only (Haswell, Excavator, and later); the image says nothing of the nodes' CPUs",
		Fix: "on each node, `/lib64/ld-linux-x86-64.so.2 --help | grep x86-64-v3` has to say \"supported\"; look the hardware up in the vendor's catalog too",
	}}
}

// extensions finds what is not among the packages of the stream's extensions image.
func extensions(m *Move) []Finding {
	var found []Finding
	for _, want := range m.Config.Wanted {
		f := Finding{Object: want.Object, Found: want.What, Fix: "leave it out of this pool's configuration, or use a stream that has it"}
		if !m.To.HasExtensions {
			f.Why = fmt.Sprintf("stream %q has no extensions image", m.To.Stream)
			found = append(found, f)
			continue
		}
		if m.To.Extensions == nil {
			continue
		}
		var missing []string
		for _, p := range want.Packages {
			if !slices.Contains(m.To.Extensions, p) {
				missing = append(missing, p)
			}
		}
		if len(missing) > 0 {
			f.Why = fmt.Sprintf("the extensions image of stream %q lacks %s", m.To.Stream, strings.Join(missing, ", "))
			found = append(found, f)
		}
	}
	return found
}

// missingUnits finds units that are turned on, that the OS of the pool brings, and that of the
// other stream does not.
func missingUnits(m *Move) []Finding {
	if m.From.Has == nil || m.To.Has == nil {
		return nil
	}
	var found []Finding
	for _, unit := range m.Config.Units {
		if unit.IsOwn || !m.From.hasUnit(unit.Name) || m.To.hasUnit(unit.Name) {
			continue
		}
		found = append(found, Finding{
			Object: unit.Object, Place: "unit " + unit.Name, Found: "a unit that is turned on",
			Why: fmt.Sprintf("the OS image of stream %q does not have it", m.To.Stream),
			Fix: "turn it on for the other stream only, bring it along (extension, Containerfile, contents of the unit), or leave it out",
		})
	}
	return found
}

func missingPackages(m *Move) []Finding {
	if m.From.Packages == nil || m.To.Packages == nil {
		return nil
	}
	gone := map[string]bool{}
	for _, p := range m.From.Packages {
		gone[p.Name] = true
	}
	for _, p := range m.To.Packages {
		delete(gone, p.Name)
	}
	var found []Finding
	for _, file := range m.Config.Containerfiles {
		for _, mention := range file.Packages {
			if gone[mention.Text] {
				found = append(found, Finding{
					Object: file.Name, Place: "line " + strconv.Itoa(mention.Line), Found: "it installs the package " + mention.Text,
					Why: fmt.Sprintf("the OS of stream %q had it, that of %q has it no more, nor maybe its repositories", m.From.Stream, m.To.Stream),
					Fix: "see what has replaced it, or make the line depend on VERSION_ID in /etc/os-release",
				})
			}
		}
	}
	return found
}

// otherMajor finds images in Containerfiles whose names have the major version that the pool is
// about to leave.
func otherMajor(m *Move) []Finding {
	from, to := m.From.Major(), m.To.Major()
	if from == 0 || to == 0 || from == to {
		return nil
	}
	named := regexp.MustCompile(`(?i)(^|[^a-z])(rhel|el|ubi|centos|stream|rhcos|scos|alma|almalinux|rocky|rockylinux|oraclelinux)([-_:/]|-?stream-?:?)?` + strconv.Itoa(from) + `([^0-9]|$)`)
	var found []Finding
	for _, file := range m.Config.Containerfiles {
		for _, mention := range file.Images {
			if named.MatchString(mention.Text) {
				found = append(found, Finding{
					Object: file.Name, Place: "line " + strconv.Itoa(mention.Line), Found: "the image " + mention.Text,
					Why: fmt.Sprintf("its name says version %d: what is copied from it may need libraries that version %d does not have", from, to),
					Fix: fmt.Sprintf("use the image for version %d, or make sure that what is copied needs no libraries", to),
				})
			}
		}
	}
	return found
}

func packagesUnknown(m *Move) []Finding {
	var found []Finding
	for _, side := range []*Side{&m.From, &m.To} {
		if side.Packages == nil {
			found = append(found, Finding{
				Object: side.Image, Found: "no package database", Why: fmt.Sprintf("what the move to stream %q does to packages is not known", m.To.Stream),
				Fix: "compare the release notes of the images",
			})
		}
	}
	return found
}

// inFiles finds lines in files of the configuration.
func inFiles(m *Move, isMeant func(path string) bool, line *regexp.Regexp, like Finding) []Finding {
	var found []Finding
	for _, file := range m.Config.Files {
		if !isMeant(file.Path) {
			continue
		}
		for i, text := range bytes.Split(file.Content, []byte("\n")) {
			if line.Match(text) {
				f := like
				f.Object, f.Place, f.Found = file.Object, file.Path+":"+strconv.Itoa(i+1), strings.TrimSpace(string(text))
				found = append(found, f)
			}
		}
	}
	return found
}

// has reports whether the OS is known to have a path.
func (s *Side) has(path string) bool { return s.Has != nil && s.Has(path) }

// hasUnit reports whether the OS brings a unit, of an instance its template.
func (s *Side) hasUnit(name string) bool {
	names := []string{name}
	if at, dot := strings.IndexByte(name, '@'), strings.LastIndexByte(name, '.'); at >= 0 && dot > at {
		names = append(names, name[:at+1]+name[dot:])
	}
	for _, n := range names {
		if s.has("/usr/lib/systemd/system/"+n) || s.has("/etc/systemd/system/"+n) {
			return true
		}
	}
	return false
}
