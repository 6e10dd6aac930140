//go:build e2e

package e2e

import (
	"archive/tar"
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/internal/status"
	"github.com/layerwright/layerwright/test/cluster/stack"
	"github.com/layerwright/layerwright/test/fixtures"
)

// contentCase is content that someone asks for, and what comes of it. In its texts, HOST is the
// registry, PACKAGES an extensions image there, LACKING one without usbguard, SYSTEM another OS
// image, all by digest, and NONE a digest that nothing has.
type contentCase struct {
	containerfile string
	// amd64 is a Containerfile for that architecture alone, beside the other one.
	amd64 string
	// context are files beside the Containerfile, in a ConfigMap.
	context map[string]string
	// system is the OS image instead of the tiny one, and packages the extensions image.
	system, packages string
	extensions       []string
	kernel           string
	// refused and waits are what the MachineOSConfig says where no build begins: for good, and as
	// long as something is missing. failed is what the build says. Each is a condition's reason and
	// message.
	refused, waits, failed string
	// files are those that the image has, and gone those that it has not.
	files map[string]string
	gone  []string
	// pulled are images that it was built with and how they are named, as its provenance has to
	// say.
	pulled map[string]string
}

// records is where the fixtures' package manager keeps what is installed.
const records = "var/lib/dpkg/status.d/"

// contentBuilds succeed. What needs no cluster, test/e2e/engine builds.
var contentBuilds = map[string]contentCase{
	"package": {
		containerfile: `FROM os-base-image
RUN --mount=type=bind,from=PACKAGES,source=/usr/share/rpm-ostree/extensions,target=/tmp/packages <<EOF
set -eu
printf '[our]\nbaseurl=file:///tmp/packages\n' > /etc/yum.repos.d/our.repo
rpm-ostree install sysstat
rm /etc/yum.repos.d/our.repo
EOF
RUN rpm -q sysstat > /usr/share/said && bootc container lint
`,
		files: map[string]string{"usr/share/said": "sysstat-1.9.6-1.el9.x86_64\n", records + "sysstat": "Package: sysstat\nVersion: 1.9.6-1.el9\nArchitecture: x86_64\n"},
		gone:  []string{"tmp/packages", "etc/yum.repos.d/our.repo"},
	},
	"mounts-and-images": {
		containerfile: `FROM os-base-image AS tools
RUN mkdir /out && echo built > /out/agent
FROM PACKAGES AS packages
FROM os-base-image
COPY --from=packages /usr/share/rpm-ostree/extensions/repodata/repomd.xml /usr/share/packages
COPY --from=HOST/os/rhel10-coreos:tiny /etc/motd /usr/share/system
RUN --mount=type=bind,from=tools,source=/out,target=/tmp/tools cp /tmp/tools/agent /usr/share/bound
RUN --mount=type=bind,source=settings.conf,target=/tmp/settings.conf cp /tmp/settings.conf /usr/share/settings
RUN --mount=type=cache,target=/var/cache/tool echo cached > /var/cache/tool/file
RUN --mount=type=cache,target=/var/cache/tool cp /var/cache/tool/file /usr/share/cached
RUN --mount=type=tmpfs,target=/scratch echo gone > /scratch/file
`,
		context: map[string]string{"settings.conf": "fast\n"},
		files: map[string]string{
			"usr/share/bound": "built\n", "usr/share/settings": "fast\n", "usr/share/cached": "cached\n",
			"usr/share/packages": "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<repomd>\n  <data type=\"primary\">\n    <location href=\"repodata/primary.xml\"/>\n  </data>\n</repomd>\n",
			"usr/share/system":   "A stand-in for rhel10-coreos, version 10.1.20251202-0.\n",
		},
		gone:   []string{"tmp/tools", "tmp/settings.conf", "var/cache/tool/file", "scratch/file"},
		pulled: map[string]string{"HOST/os/rhel10-coreos:tiny": "SYSTEM", "PACKAGES": "PACKAGES"},
	},
	"architecture": {
		containerfile: "FROM os-base-image\nRUN exit 1\n",
		amd64:         "FROM os-base-image\nRUN uname -m > /usr/share/machine\n",
		files:         map[string]string{"usr/share/machine": "x86_64\n"},
	},
	"extensions": {
		packages: "PACKAGES", extensions: []string{"usbguard", "kerberos"}, kernel: mcfgv1.KernelTypeRealtime,
		containerfile: "FROM os-base-image\nRUN rpm -q usbguard libkadm5 kernel-rt-core > /usr/share/said\n",
		files: map[string]string{
			"usr/share/said": "usbguard-1.9.6-1.el9.x86_64\nlibkadm5-1.9.6-1.el9.x86_64\nkernel-rt-core-5.14.0-570.72.1.el9_6.x86_64\n",
			"usr/lib/systemd/system/usbguard.service": "[Unit]\nDescription=USBGuard daemon\n\n[Service]\nExecStart=/usr/bin/true\n\n[Install]\nWantedBy=basic.target\n",
			"usr/lib/tmpfiles.d/usbguard_ipsec.conf":  "d /var/log/usbguard 0755 root root -\n",
			records + "kernel-rt-kvm":                 "Package: kernel-rt-kvm\nVersion: 5.14.0-570.72.1.el9_6\nArchitecture: x86_64\n",
		},
		gone: []string{records + "kernel", records + "kernel-core", "etc/yum.repos.d/coreos-extensions.repo", "tmp/coreos-extensions"},
	},
}

// contentFailures end in the pod.
var contentFailures = map[string]contentCase{
	"run": {
		containerfile: "FROM os-base-image\n# The packages\nRUN echo first\n\nENV PLACE=/usr\n\nRUN echo looking; rpm-ostree install nothing\n",
		failed:        "BuildFailed Containerfile line 7: RUN echo looking; rpm-ostree install nothing: exit status 1\nlooking\nerror: Packages not found: nothing",
	},
	"source": {
		containerfile: "FROM os-base-image\nCOPY --from=PACKAGES /agent /usr/bin/agent\n",
		failed:        "BuildFailed Containerfile line 2: COPY --from=PACKAGES /agent /usr/bin/agent: \"/agent\": no such file or directory",
	},
	"lacking-package": {extensions: []string{"usbguard"}, packages: "LACKING", failed: "BuildFailed the extensions usbguard from LACKING: exit status 1\nerror: Packages not found: usbguard"},
	"lacking-packages": {
		extensions: []string{"usbguard"}, packages: "SYSTEM",
		failed: "BuildFailed the extensions usbguard from SYSTEM: \"usr/share/rpm-ostree/extensions\": no such file or directory",
	},
	"lacking-kernel": {
		kernel: mcfgv1.KernelTypeRealtime, packages: "SYSTEM",
		failed: "BuildFailed the kernel realtime from SYSTEM: \"usr/share/rpm-ostree/extensions\": no such file or directory",
	},
}

// contentRefusals begin no build. What else a Containerfile is refused for, package containerfiles
// tests.
var contentRefusals = map[string]contentCase{
	"image": {
		containerfile: "FROM os-base-image\nCOPY --from=HOST/none:1 /agent /usr/bin/agent\n",
		refused: `ImageNotFound spec.containerFile[NoArch].content line 2: resolving image "HOST/none:1": ` +
			"it does not exist (404 Not Found); check the name, or push it again",
	},
	"registry": {
		containerfile: "FROM os-base-image\nCOPY --from=registry.invalid/none:1 /agent /usr/bin/agent\n",
		waits:         `Retrying spec.containerFile[NoArch].content line 2: resolving image "registry.invalid/none:1": Get "https://registry.invalid/v2/": dial tcp: lookup registry.invalid`,
	},
	"system": {
		containerfile: "FROM os-base-image\nRUN true\n", system: "HOST/os/none@NONE",
		refused: `ImageNotFound MachineConfig "50-refused-system": spec.osImageURL: resolving image "HOST/os/none@NONE": it does not exist (404 Not Found); check the name, or push it again`,
	},
	"no-system": {
		containerfile: "FROM os-base-image\nRUN true\n", system: "PACKAGES",
		refused: `UnsuitableBaseImage MachineConfig "50-refused-no-system": spec.osImageURL: using image "PACKAGES" as a base: it is no bootable OS image: ` +
			`it has none of the labels "containers.bootc" and "ostree.bootable" with the value "1"`,
	},
	"other-system": {
		containerfile: "FROM HOST/os/rhel10-coreos:tiny\nRUN true\n",
		refused: `InvalidContainerfile spec.containerFile[NoArch].content line 1: the last stage, on line 1, starts from "HOST/os/rhel10-coreos:tiny", ` +
			"and not from os-base-image, os-base-image-with-configs or configs. Start the last stage from os-base-image, os-base-image-with-configs or configs",
	},
	"instruction": {
		containerfile: "FROM os-base-image\nRUN true\nWALK away\n",
		refused:       `InvalidContainerfile spec.containerFile[NoArch].content line 3: unknown instruction: "WALK". Correct the keyword, or end the line before with a backslash`,
	},
	"secret": {
		containerfile: "FROM os-base-image\nRUN --mount=type=secret,id=token cat /run/secrets/token\n",
		refused: "InvalidContainerfile spec.containerFile[NoArch].content line 2: RUN --mount=type=secret: builds get no secrets. " +
			"Put public files into the ConfigMap, and repositories and entitlements where the cluster keeps them",
	},
	"no-extensions": {
		extensions: []string{"usbguard"},
		waits: `WaitingForPool the pool's MachineConfigs can't be rendered: MachineConfig "50-refused-no-extensions": spec.osImageURL: osImageURL replaces the ` +
			"stream's OS image, so there is no image to install extensions (usbguard) from: set baseOSExtensionsContainerImage beside osImageURL, " +
			"to the extensions image that belongs to it",
	},
	"unknown-extensions": {
		extensions: []string{"usbguard"}, packages: "HOST/os/none@NONE",
		refused: `ImageNotFound MachineConfig "50-refused-unknown-extensions": spec.baseOSExtensionsContainerImage: resolving image "HOST/os/none@NONE": ` +
			"it does not exist (404 Not Found); check the name, or push it again",
	},
	"extension": {
		extensions: []string{"usbguard", "teleport"}, packages: "PACKAGES",
		refused: `InvalidMachineConfig unknown extension "teleport"; known are ipsec, kerberos, kernel-devel, sandboxed-containers, sysstat, two-node-ha, usbguard`,
	},
	"kernel": {
		kernel: mcfgv1.KernelType64kPages, packages: "PACKAGES",
		refused: "InvalidMachineConfig there is no kernel 64k-pages for AMD64; there is one for ARM64",
	},
}

// testContentCases has the deployed controller build, or refuse to build, each kind of content, and
// compares what it says and makes.
func testContentCases(t *testing.T) {
	b := newBuilds(t)
	b.patience = 3 * buildPatience // they take turns
	references := tinyFixtures(t)
	naming := strings.NewReplacer(
		"HOST", b.host, "NONE", "sha256:0123456789012345678901234567890123456789012345678901234567890123",
		"PACKAGES", b.host+strings.TrimPrefix(references.Extensions[fixtures.RHEL9].String(), b.registry.Host),
		"SYSTEM", b.host+strings.TrimPrefix(references.OS[fixtures.RHEL10].String(), b.registry.Host),
		"LACKING", b.host+strings.TrimPrefix(b.without(t, references.Extensions[fixtures.RHEL9], "usbguard"), b.registry.Host),
	)
	for kind, cases := range map[string]map[string]contentCase{"built": contentBuilds, "failed": contentFailures, "refused": contentRefusals} {
		for name, tt := range cases {
			t.Run(kind+" "+name, func(t *testing.T) {
				t.Parallel()
				for _, text := range []*string{&tt.containerfile, &tt.system, &tt.packages, &tt.refused, &tt.waits, &tt.failed} {
					*text = naming.Replace(*text)
				}
				pulled := map[string]string{}
				for as, image := range tt.pulled {
					pulled[naming.Replace(as)] = naming.Replace(image)
				}
				tt.pulled = pulled
				tt.require(t, b, kind+"-"+name)
			})
		}
	}
}

func tinyFixtures(t *testing.T) *fixtures.References {
	t.Helper()
	references, err := shared(t).PushFixtures(t.Context(), fixtures.Tiny, nil, t.Logf)
	require.NoError(t, err)
	return references
}

// read is an image of the playground's registry.
func (b *builds) read(t *testing.T, pinned name.Digest) v1.Image {
	t.Helper()
	image, err := remote.Image(pinned, b.registry.Options(t.Context(), "pull")...)
	require.NoError(t, err)
	return image
}

// without is an extensions image that lacks a package.
func (b *builds) without(t *testing.T, packages name.Digest, lacks string) (pinned string) {
	t.Helper()
	image := b.read(t, packages)
	removed := 0
	layer := newLayer(t, func(w *tar.Writer) {
		for path := range contentOf(t, image) {
			if folder, file, _ := strings.Cut(path, lacks+"-"); file != "" {
				removed++
				require.NoError(t, w.WriteHeader(&tar.Header{Name: folder + ".wh." + lacks + "-" + file, Typeflag: tar.TypeReg}))
			}
		}
	})
	require.Equal(t, 1, removed)
	image, err := mutate.AppendLayers(image, layer)
	require.NoError(t, err)
	digest, err := image.Digest()
	require.NoError(t, err)
	made := packages.Context().Digest(digest.String())
	require.NoError(t, remote.Write(made, image, b.registry.Options(t.Context(), "push")...))
	return made.String()
}

func newLayer(t *testing.T, fill func(*tar.Writer)) v1.Layer {
	t.Helper()
	var content bytes.Buffer
	w := tar.NewWriter(&content)
	fill(w)
	require.NoError(t, w.Close())
	return static.NewLayer(content.Bytes(), types.OCIUncompressedLayer)
}

// require has the content asked for, in a pool of that name, and compares.
func (tt *contentCase) require(t *testing.T, b *builds, name string) {
	t.Helper()
	p := b.unasked(t, name, func(mc *mcfgv1.MachineConfig) {
		mc.Spec.OSImageURL = cmp.Or(tt.system, mc.Spec.OSImageURL)
		mc.Spec.Extensions, mc.Spec.KernelType, mc.Spec.BaseOSExtensionsContainerImage = tt.extensions, tt.kernel, tt.packages
	})
	p.ask(func(c *mcfgv1.MachineOSConfig) {
		c.Spec.Containerfile = tt.containerfiles(p)
	})
	switch {
	case tt.refused != "":
		p.saysAll(status.Stalled, tt.refused)
		assert.Empty(t, p.machineOSBuilds(t.Context(), t), "no build begins")
	case tt.waits != "":
		p.says(status.Reconciling, "True "+tt.waits) // what follows are words of the machine's
		assert.Empty(t, p.machineOSBuilds(t.Context(), t), "no build begins")
	case tt.failed != "":
		p.saysFailed(tt.failed)
	default:
		p.says(status.Ready, "True Succeeded")
		image := string(p.config(t).Status.CurrentImagePullSpec)
		if len(tt.pulled) > 0 {
			p.requirePulled(image, tt.pulled)
		}
		content := contentOf(t, p.image(t, image))
		for path, want := range tt.files {
			if assert.Contains(t, slices.Sorted(maps.Keys(content)), path) {
				assert.Equal(t, want, content[path], path)
			}
		}
		for _, path := range tt.gone {
			assert.NotContains(t, slices.Sorted(maps.Keys(content)), path)
		}
	}
}

// saysAll waits until a condition of the MachineOSConfig is true with this reason and message.
func (p *layered) saysAll(conditionType, said string) {
	p.t.Helper()
	p.eventually(func(t *assert.CollectT) {
		assert.Equal(t, "True "+said, conditionText(p.config(t).Status.Conditions, conditionType))
	})
}

// saysFailed waits until the pool's one build has failed with this reason and message, and the
// MachineOSConfig says so with what to do.
func (p *layered) saysFailed(said string) {
	p.t.Helper()
	p.eventually(func(t *assert.CollectT) {
		builds := p.machineOSBuilds(p.t.Context(), t)
		require.Len(t, builds, 1)
		require.Equal(t, "True "+said, conditionText(builds[0].Status.Conditions, mcfgv1.BuildFailed))
		reason, message, _ := strings.Cut(said, " ")
		end := "; "
		if strings.Contains(message, "\n") {
			end = "\n"
		}
		if reason == mcfgv1.ReasonBuildFailed {
			end += "correct what failed, which starts a new build; if the cause was elsewhere, fix that, then, "
		} else {
			end += "once the cause is gone, "
		}
		require.Equal(t, "True "+reason+" build \""+builds[0].Name+"\" failed: "+message+end+"annotate the MachineOSConfig with "+mcfgv1.AnnotationRebuild,
			conditionText(p.config(t).Status.Conditions, status.Stalled))
	})
}

// containerfiles are those of spec. What has files beside it is in a ConfigMap.
func (tt *contentCase) containerfiles(p *layered) (all []mcfgv1.MachineOSContainerfile) {
	switch {
	case tt.context != nil:
		made := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: stack.Namespace, Name: p.name}, Data: maps.Clone(tt.context)}
		made.Data["Containerfile"] = tt.containerfile
		require.NoError(p.t, p.Create(p.t.Context(), made))
		p.t.Cleanup(func() { require.NoError(p.t, p.Delete(context.WithoutCancel(p.t.Context()), made)) })
		all = append(all, mcfgv1.MachineOSContainerfile{ConfigMapRef: &mcfgv1.ConfigMapKeyReference{Name: made.Name}})
	case tt.containerfile != "":
		all = append(all, mcfgv1.MachineOSContainerfile{ContainerfileArch: mcfgv1.NoArch, Content: &tt.containerfile})
	}
	if tt.amd64 != "" {
		all = append(all, mcfgv1.MachineOSContainerfile{ContainerfileArch: mcfgv1.Amd64, Content: &tt.amd64})
	}
	return all
}

// contentOf are the files of an image, by path without the leading slash.
func contentOf(t *testing.T, image v1.Image) map[string]string {
	t.Helper()
	archive := mutate.Extract(image)
	defer func() { require.NoError(t, archive.Close()) }()
	return filesOf(t, archive)
}

func filesOf(t *testing.T, archive io.Reader) map[string]string {
	t.Helper()
	files := map[string]string{}
	for r := tar.NewReader(archive); ; {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		require.NoError(t, err)
		content, err := io.ReadAll(r)
		require.NoError(t, err)
		files[strings.Trim(strings.TrimPrefix(header.Name, "./"), "/")] = string(content)
	}
}
