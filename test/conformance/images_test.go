//go:build e2e

package conformance

import (
	"archive/tar"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/stretchr/testify/require"

	"github.com/layerwright/layerwright/test/host/deployments"
)

// nothing is a MachineConfig without configuration.
const nothing = `apiVersion: machineconfiguration.openshift.io/v1
kind: MachineConfig
metadata:
  name: 50-conformance
  labels:
    machineconfiguration.openshift.io/role: worker
spec:
  config:
    ignition:
      version: 3.5.0
`

// configuration has each kind of content that an image carries.
const configuration = nothing + `    storage:
      directories:
        - path: /etc/conformance.d
          mode: 0750
      files:
        - path: /etc/conformance.d/secret
          mode: 0600
          contents:
            source: data:,secret%0A
        - path: /etc/conformance.d/owned
          mode: 0640
          user:
            id: 990
          group:
            id: 991
          contents:
            source: data:,owned%0A
        - path: /etc/edited
          overwrite: true
          mode: 0644
          contents:
            source: data:,configured%0A
        - path: /usr/bin/conformance
          mode: 0755
          contents:
            source: data:,%23!%2Fbin%2Fsh%0A
      links:
        - path: /etc/conformance.d/link
          target: ../base.d/b
    systemd:
      units:
        - name: conformance.service
          enabled: true
          contents: |
            [Service]
            ExecStart=/bin/true
            [Install]
            WantedBy=multi-user.target
`

// containerfile changes a base in each way that layers can.
const containerfile = `FROM os-base-image
RUN cd /usr/share/base && rm removed && rm -r opaque && mkdir opaque && echo new >opaque/new \
 && rm -r folder && echo file >folder && rm file && mkdir file && echo x >file/x \
 && ln kept linked && echo more >>owned && : >empty-too && mkdir -m 1777 world && ln -s ../base/kept symbolic \
 && mkdir -p "a folder/of a name that takes more than one hundred characters because archives keep those in another way than others" \
 && echo ä >"a folder/of a name that takes more than one hundred characters because archives keep those in another way than others/ä"
RUN mv /usr/bin/capable /usr/bin/capable-moved && cp /usr/bin/setuid /usr/bin/setgid && chmod 2755 /usr/bin/setgid
RUN echo 'conformance:x:990:991::/var/lib/conformance:/bin/sh' >>/etc/passwd && echo 'conformance:x:991:' >>/etc/group \
 && echo mine >/usr/share/base/mine && chown 990:991 /usr/share/base/mine && chmod 4750 /usr/share/base/mine
RUN echo changed >>/etc/edited && rm /etc/removed && rm -r /etc/base.d && mkdir -m 700 /etc/base.d && echo a >/etc/base.d/new \
 && echo one >/etc/one && ln /etc/one /etc/two
RUN mkdir -p /var/opt/agent /var/lib/agent && echo agent >/opt/agent/program && echo state >/var/lib/agent/state
RUN mkdir /outside && echo outside >/outside/file
RUN cd /usr/lib/modules && old=$(ls) && cp -r "$old" 9.9.9 && echo new >>9.9.9/vmlinuz && rm -r "$old"
`

// TestImages has images as the product makes them deployed by the real importer and by the
// stand-in, and compares both with what is in the image.
func TestImages(t *testing.T) {
	w := newWorld(t)
	plain := w.plain("one")
	for kind, image := range map[string]v1.Image{"plain": plain, "native": w.native(plain, "native")} {
		t.Run(kind, func(t *testing.T) { testImages(t, w.in(t), kind, image) })
	}
}

func testImages(t *testing.T, w *world, kind string, image v1.Image) { //nolint:thelper // a case, not a helper
	base := w.base(kind, image)
	isNative := kind == "native"
	ours := standIn{newDisk(t, w.path(kind+"-standin"))}
	theirs := upstream{newDisk(t, w.path(kind+"-real"))}
	for _, tt := range []struct {
		name string
		order
	}{
		{"appended", order{base, configuration, ""}},
		{"built", order{base, nothing, containerfile}},
		{"built, then appended", order{base, configuration, containerfile}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := w.in(t)
			made := w.build(tt.order)
			content := w.pull(made)
			requireLabels(t, content, isNative)
			got := deployed(t, ours, made)
			requireContent(t, w, content, got)
			_, isThere := got["outside/file"]
			require.Equal(t, tt.containerfile != "", isThere, "hosts with composefs take what is outside of /usr too")
			if tt.config == configuration {
				requireDescribed(t, w.described(tt.order), got)
			}
			if !isNative {
				// Only newer ones than the importer take images without a commit.
				err := theirs.deploy(t.Context(), made)
				require.ErrorContains(t, err, "No ostree.final-diffid label found, not an ostree encapsulated container")
				return
			}
			requireEqual(t, deployed(t, theirs, made), got, "the stand-in deploys what the importer does")
			requireEqual(t, objects(t, theirs), objects(t, ours), "both have the same files on disk")
		})
	}
}

// requireLabels has the labels that hosts look at.
func requireLabels(t *testing.T, image v1.Image, isNative bool) {
	t.Helper()
	config, err := image.ConfigFile()
	require.NoError(t, err)
	require.Equal(t, "1", config.Config.Labels["containers.bootc"])
	require.Equal(t, "true", config.Config.Labels["ostree.bootable"])
	base := baseOf(t, image)
	require.Equal(t, isNative, base.Commit != "")
	if isNative {
		require.Greater(t, base.Layers, 2, "the base has several layers")
	}
}

func baseOf(t *testing.T, image v1.Image) deployments.Base {
	t.Helper()
	config, err := image.ConfigFile()
	require.NoError(t, err)
	var unpacked []string
	for _, d := range config.RootFS.DiffIDs {
		unpacked = append(unpacked, d.String())
	}
	base, err := deployments.FindBase(config.Config.Labels, unpacked)
	require.NoError(t, err)
	return base
}

// requireContent has a host take of an image what it says: /usr, and the /etc that is a default.
func requireContent(t *testing.T, w *world, image v1.Image, got tree) {
	t.Helper()
	content := flatten(t, image)
	for name, n := range flatten(t, w.plain("one")) {
		// The attributes of a native base's files are in a format of ostree's.
		same := n
		if same.xattrs = ""; content[name] == same {
			content[name] = n
		}
	}
	require.Contains(t, content, "usr/bin/setuid")
	requireEqual(t, content.below("usr").without("etc"), got.below("usr").without("etc").without("share/factory"), "/usr is that of the image")
	requireEqual(t, content.below("etc"), got.below("usr/etc"), "/etc is that of the image")
	requireEqual(t, got.below("usr/etc"), got.below("etc"), "/etc is as the image brings it")
	for name, n := range content.below("var") {
		if n.kind == tar.TypeReg {
			require.Equal(t, n, got["usr/share/factory/var/"+name], "what is below /var is where systemd-tmpfiles looks")
		}
	}
}

// requireDescribed has all of what `render` describes.
func requireDescribed(t *testing.T, described, got tree) {
	t.Helper()
	require.Greater(t, len(described), 8)
	found := tree{}
	for name := range described {
		if n, has := got[name]; has {
			found[name] = n
		}
	}
	requireEqual(t, described, found, "the configuration is what render describes")
}
