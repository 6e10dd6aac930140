package render

import (
	"slices"
	"strings"
)

const (
	// extensionsDir is where an extensions image has its packages (published).
	extensionsDir = "/usr/share/rpm-ostree/extensions"
	// extensionsMount is where the build sees them, for the one RUN that wants them.
	extensionsMount = "/tmp/coreos-extensions"
	// extensionsRepo is the repository's file (published); it is gone at the end of the RUN.
	extensionsRepo = "/etc/yum.repos.d/coreos-extensions.repo"
	// extensionsTmpfiles makes the directories that extensions want below /var (published).
	extensionsTmpfiles = "/usr/lib/tmpfiles.d/usbguard_ipsec.conf"
)

// repoLines are the repository. Its packages are not verified by key, because they are verified by
// digest: with the image.
var repoLines = []string{
	"[coreos-extensions]", "name=coreos-extensions", "baseurl=file://" + extensionsMount, "enabled=1", "gpgcheck=0", "metadata_expire=1m",
	"skip_if_unavailable=False",
}

// writeExtensions installs the extensions. Every word in it is a constant, a name of the table, or
// a checked reference.
func (r *rendering) writeExtensions() {
	if len(r.extension) == 0 {
		return
	}
	var packages, dirs []string
	for _, name := range r.extension {
		packages = append(packages, extensionPackages[name]...)
		dirs = append(dirs, extensionDirs[name]...)
	}
	slices.Sort(packages)
	commands := append([]string{writeLines(repoLines, extensionsRepo)}, r.install(packages)...)
	commands = append(commands, "rm "+extensionsRepo)
	if len(dirs) > 0 {
		commands = append(commands, writeLines(dirs, extensionsTmpfiles))
	}
	r.addRun("the extensions "+strings.Join(r.extension, ", "), commands)
}

func (r *rendering) install(packages []string) []string {
	names := strings.Join(packages, " ")
	if r.in.PackageManager == DNF {
		return []string{"dnf install -y " + names, "dnf clean all"}
	}
	return []string{"rpm-ostree install " + names, "rpm-ostree cleanup -m"}
}

// writeKernel replaces the kernel, whichever the base image has.
func (r *rendering) writeKernel() {
	if r.in.Kernel == KernelDefault {
		return
	}
	k := kernels[r.in.Kernel]
	commands := []string{
		"if rpm -q " + k.Packages[0] + " >/dev/null 2>&1; then echo 'The base image has the kernel already.'; exit 0; fi",
		writeLines(repoLines, extensionsRepo),
		"old=",
		"for name in " + strings.Join(otherKernels(r.in.Kernel), " ") + `; do if rpm -q "$name" >/dev/null 2>&1; then old="$old $name"; fi; done`,
		`if [ -z "$old" ]; then echo 'The base image has no kernel that is known.' >&2; exit 1; fi`,
		"new='" + strings.Join(k.Packages, " ") + "'",
	}
	if k.Optional != "" {
		commands = append(commands,
			"if ls "+extensionsMount+"/"+k.Optional+`-[0-9]*.rpm >/dev/null 2>&1; then new="$new `+k.Optional+`"; fi`)
	}
	commands = append(commands, r.swap()...)
	r.addRun("the kernel "+string(r.in.Kernel), append(commands, "rm "+extensionsRepo))
}

// swap replaces the packages in $old with those in $new.
func (r *rendering) swap() []string {
	if r.in.PackageManager == DNF {
		return []string{
			"dnf install -y $new",
			// The kernel that is running is that of the machine that builds.
			"dnf remove -y --setopt=protect_running_kernel=False --setopt=clean_requirements_on_remove=False $old",
			"dnf clean all",
		}
	}
	return []string{
		"install=",
		`for name in $new; do install="$install --install $name"; done`,
		"rpm-ostree override remove $old $install",
		"rpm-ostree cleanup -m",
	}
}

// otherKernels are the packages of all kernels but one.
func otherKernels(wanted KernelType) []string {
	others := slices.Clone(defaultKernel)
	for _, name := range []KernelType{KernelRealtime, Kernel64kPages} {
		if name == wanted {
			continue
		}
		others = append(others, kernels[name].Packages...)
		if kernels[name].Optional != "" {
			others = append(others, kernels[name].Optional)
		}
	}
	return others
}

// addRun adds a RUN instruction that sees the extensions image and ends with the first command that
// fails.
func (r *rendering) addRun(origin string, commands []string) {
	origin += " from " + r.in.ExtensionsImage
	more := ` \`
	if r.c != nil {
		more = " " + string(r.c.Escape)
	}
	r.add(origin, "RUN --mount=type=bind,from="+r.in.ExtensionsImage+",source="+extensionsDir+",target="+extensionsMount+",z"+more)
	r.add(origin, "    set -eu;"+more)
	for i, command := range commands {
		if i < len(commands)-1 {
			command += ";" + more
		}
		r.add(origin, "    "+command)
	}
}

// writeLines is a command that writes lines without single quotes to a file.
func writeLines(lines []string, file string) string {
	return `printf '%s\n' '` + strings.Join(lines, "' '") + "' > " + file
}
