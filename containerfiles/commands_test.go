package containerfiles_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/containerfiles/render"
)

// host is a small system in a folder, with the fixtures' stand-ins for rpm-ostree, dnf, ostree and
// rpm.
type host struct{ root, extensions string }

// tooling is where the stand-ins are, which test images have in /usr/bin.
const tooling = "../test/fixtures/content/tooling/usr/bin"

// records is where the stand-ins keep what is installed.
const records = "var/lib/dpkg/status.d"

func recordOf(name, version string) string {
	return "Package: " + name + "\nVersion: " + version + "\nArchitecture: x86_64\n"
}

func newHost(t *testing.T, installed, offered []string) host {
	t.Helper()
	h := host{root: t.TempDir(), extensions: t.TempDir()}
	for _, dir := range []string{"bin", "etc/yum.repos.d", records, "usr/lib/tmpfiles.d", "tmp", "var/tmp", "run"} {
		require.NoError(t, os.MkdirAll(filepath.Join(h.root, dir), 0o755))
	}
	for _, name := range installed {
		require.NoError(t, os.WriteFile(h.record(name), []byte(recordOf(name, "1")), 0o644))
	}
	for _, name := range offered {
		require.NoError(t, os.WriteFile(filepath.Join(h.extensions, name+"-1.0-1.x86_64.rpm"), packageOf(t, name), 0o644))
	}
	for program, script := range map[string]string{"rpm-ostree": "rpm-ostree", "dnf": "rpm-ostree", "ostree": "ostree", "rpm": "rpm"} {
		text, err := os.ReadFile(filepath.Join(tooling, script))
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(h.root, "bin", program), []byte(h.inside(string(text))), 0o755))
	}
	return h
}

// packageOf is a package as the fixtures make them: an archive with the record that it is
// installed.
func packageOf(t *testing.T, name string) []byte {
	t.Helper()
	buf := &bytes.Buffer{}
	zw := gzip.NewWriter(buf)
	tw := tar.NewWriter(zw)
	body := []byte(recordOf(name, "1.0-1"))
	require.NoError(t, tw.WriteHeader(&tar.Header{Name: records + "/" + name, Mode: 0o644, Size: int64(len(body))}))
	_, err := tw.Write(body)
	require.NoError(t, err)
	require.NoError(t, tw.Close())
	require.NoError(t, zw.Close())
	return buf.Bytes()
}

func (h host) record(name string) string {
	return filepath.Join(h.root, records, name)
}

// inside moves the paths of a script into the folder.
func (h host) inside(script string) string {
	return strings.NewReplacer(
		"/tmp/coreos-extensions", h.extensions, "/etc/yum.repos.d", h.root+"/etc/yum.repos.d", "-C /", "-C "+h.root,
		"/"+records, h.root+"/"+records, "/usr/lib/tmpfiles.d", h.root+"/usr/lib/tmpfiles.d",
		"/var/tmp/*", h.root+"/var/tmp/*", " /tmp/*", " "+h.root+"/tmp/*", "/run/.fixture", h.root+"/run/.fixture",
	).Replace(script)
}

// run runs the RUN lines of a rendered file as a build would, and returns what they print.
func (h host) run(t *testing.T, text string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	joined := strings.ReplaceAll(text, "\\\n", "")
	for line := range strings.Lines(joined) {
		script, ok := strings.CutPrefix(strings.TrimSpace(line), "RUN ")
		if !ok {
			continue
		}
		if strings.HasPrefix(script, "--mount=") {
			_, script, _ = strings.Cut(script, " ")
		}
		cmd := exec.CommandContext(t.Context(), "/bin/sh", "-c", h.inside(script))
		cmd.Env = []string{"PATH=" + filepath.Join(h.root, "bin") + ":/usr/bin:/bin"}
		cmd.Stdout, cmd.Stderr = &out, &out
		if err := cmd.Run(); err != nil {
			return out.String(), err
		}
	}
	return out.String(), nil
}

func (h host) installed(t *testing.T) []string {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join(h.root, records))
	require.NoError(t, err)
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// TestRenderedCommandsWork runs what is rendered for extensions and kernels.
func TestRenderedCommandsWork(t *testing.T) {
	t.Parallel()
	base := []string{"chrony", "kernel", "kernel-core", "kernel-modules", "kernel-modules-core", "kernel-modules-extra"}
	realtime := []string{"kernel-rt-core", "kernel-rt-kvm", "kernel-rt-modules", "kernel-rt-modules-extra"}
	pages := []string{"kernel-64k-core", "kernel-64k-modules", "kernel-64k-modules-core", "kernel-64k-modules-extra"}
	tests := map[string]struct {
		change             func(*render.Input)
		base, offered      []string
		want               []string
		tmpfiles, complain string
	}{
		"extensions": {
			change: withExtensions("usbguard", "kerberos"), base: []string{"chrony"}, offered: []string{"usbguard", "krb5-workstation", "libkadm5", "other"},
			want: []string{"chrony", "krb5-workstation", "libkadm5", "usbguard"}, tmpfiles: "d /var/log/usbguard 0755 root root -\n",
		},
		"an extension that the image lacks": {
			change: withExtensions("sysstat"), base: []string{"chrony"}, want: []string{"chrony"}, complain: "Packages not found: sysstat",
		},
		"realtime": {
			change: withKernel(render.KernelRealtime, mcfgv1.Amd64), base: base, offered: realtime, want: append([]string{"chrony"}, realtime...),
		},
		"realtime without the module for virtual machines": {
			change: withKernel(render.KernelRealtime, mcfgv1.Arm64), base: base, offered: []string{realtime[0], realtime[2], realtime[3]},
			want: []string{"chrony", realtime[0], realtime[2], realtime[3]},
		},
		"realtime on a base that has it": {
			change: withKernel(render.KernelRealtime, mcfgv1.Amd64), base: []string{"kernel-rt-core"}, want: []string{"kernel-rt-core"},
		},
		"64k pages instead of realtime": {
			change: withKernel(render.Kernel64kPages, mcfgv1.Arm64), base: realtime, offered: pages, want: pages,
		},
		"a base without a kernel": {
			change: withKernel(render.Kernel64kPages, mcfgv1.Arm64), offered: pages, complain: "no kernel that is known",
		},
		"both": {
			change: both(withKernel(render.Kernel64kPages, mcfgv1.Arm64), withExtensions("ipsec")), base: base,
			offered:  append([]string{"NetworkManager-libreswan", "libreswan", "openvswitch3.5-ipsec"}, pages...),
			want:     append(append([]string{"NetworkManager-libreswan", "chrony"}, pages...), "libreswan", "openvswitch3.5-ipsec"),
			tmpfiles: "d /var/lib/ipsec 0700 root root -\nd /var/lib/ipsec/nss 0700 root root -\n",
		},
	}
	for name, test := range tests {
		for _, manager := range []render.PackageManager{render.RPMOSTree, render.DNF} {
			t.Run(name+" with "+string(manager), func(t *testing.T) {
				t.Parallel()
				in := input(t, "")
				test.change(&in)
				in.PackageManager = manager
				rendered, err := render.Render(in)
				require.NoError(t, err)
				h := newHost(t, test.base, test.offered)
				out, err := h.run(t, rendered.Text)
				if test.complain != "" {
					require.Error(t, err)
					require.Contains(t, out, test.complain)
					return
				}
				require.NoError(t, err, out)
				require.Equal(t, test.want, h.installed(t))
				repos, err := os.ReadDir(filepath.Join(h.root, "etc/yum.repos.d"))
				require.NoError(t, err)
				require.Empty(t, repos, "the repository is gone")
				tmpfiles, err := os.ReadFile(filepath.Join(h.root, "usr/lib/tmpfiles.d/usbguard_ipsec.conf"))
				assert.Equal(t, test.tmpfiles == "", os.IsNotExist(err))
				assert.Equal(t, test.tmpfiles, string(tmpfiles))
			})
		}
	}
}
