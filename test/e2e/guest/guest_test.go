//go:build e2e

package guest

import (
	"archive/tar"
	"bytes"
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/util/intstr"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/test/guest"
)

// What the node gets, in its first image.
const (
	configured = "from the configuration"
	userKey    = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGd1ZXN0 admin@example"
	// installing installs a package of Debian's, and makes the user that the key is for.
	installing = `FROM os-base-image
RUN --mount=type=bind,source=hello.deb,target=/tmp/hello.deb dpkg --install /tmp/hello.deb
RUN echo core:x:1000:1000::/var/home/core:/bin/bash >> /etc/passwd && echo core:x:1000: >> /etc/group
`
)

// TestGuest tells the life of a node that really boots, in one order: each step begins where the
// one before has left the node.
func TestGuest(t *testing.T) {
	f := newFleet(t)
	for _, step := range []struct {
		name string
		test func(*fleet)
	}{
		{"an image with everything is signed, staged and booted", testBoots},
		{"an edited file of the configuration is reported, and stays", testDrift},
		{"the host returns by itself if an image breaks the kubelet", testReturns},
		{"the node's own policy refuses an unsigned image", testUnsigned},
	} {
		if !t.Run(step.name, func(t *testing.T) { step.test(f.in(t)) }) {
			return
		}
	}
}

// machineConfig asks for one thing of each kind.
func (f *fleet) machineConfig() *mcfgv1.MachineConfig {
	mc := f.named("50-guest")
	mc.Spec.OSImageURL = f.base
	mc.Spec.KernelArguments = []string{"lw.guest=1"}
	mc.Spec.Config.Raw = fmt.Appendf(nil, `{"ignition":{"version":"3.5.0"},
"passwd":{"users":[{"name":"core","sshAuthorizedKeys":[%q]}]},
"storage":{"files":[{"path":"/etc/lw/guest.conf","mode":420,"contents":{"source":"data:,%[2]s"}},
  {"path":"/var/lib/lw/state","mode":384,"contents":{"source":"data:,%[2]s"}}]},
"systemd":{"units":[{"name":"lw-guest.service","enabled":true,"contents":%[3]q}]}}`, userKey, url.PathEscape(configured), `[Unit]
Description=What the configuration wants to run
Wants=network.target
After=network.target
[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/usr/bin/cp /etc/lw/guest.conf /run/lw-guest
[Install]
WantedBy=multi-user.target
`)
	return mc
}

func testBoots(f *fleet) {
	f.sh(`! touch /usr/x 2>/dev/null && echo mine > /etc/lw-local && echo motd >> /etc/hosts && mkdir -p /var/lib/kept && echo kept > /var/lib/kept/file`)
	before := f.sh("cat /proc/sys/kernel/random/boot_id")
	f.ask(installing)
	image := f.arrive()
	require.NotEqual(f.t, before, f.sh("cat /proc/sys/kernel/random/boot_id"))
	require.Equal(f.t, []string{"stages", "holds the image", "cordoned", "reboots", "runs the image"}, f.log.of(image))
	for command, want := range map[string]string{
		"systemctl is-active lw-guest.service":               "active",
		"cat /run/lw-guest":                                  configured,
		"cat /etc/lw/guest.conf /usr/etc/lw/guest.conf":      configured + configured,
		"cat /var/lib/lw/state":                              configured,
		"cat /var/home/core/.ssh/authorized_keys.d/ignition": userKey,
		"stat -c %u:%a /home/core/.ssh/authorized_keys.d":    "1000:700",
		"hello": "Hello, world!",
		"cat /etc/lw-local; tail -n 1 /etc/hosts":           "mine\nmotd",
		"cat /var/lib/kept/file":                            "kept",
		"findmnt -no OPTIONS /usr | cut -d , -f 1":          "ro",
		"touch /usr/x 2>/dev/null || echo read-only":        "read-only",
		"tr ' ' '\\n' < /proc/cmdline | grep lw.guest":      "lw.guest=1",
		". /etc/os-release && echo $VERSION_ID":             "10.1",
		"systemctl is-active kubelet.service":               "active",
		"systemctl list-units --failed --plain --no-legend": "",
		"ls /etc/systemd/system | grep layerwright || true": "",
		"systemctl is-enabled ostree-finalize-staged.path":  "enabled",
	} {
		assert.Equal(f.t, want, f.sh(command), command)
	}
	require.Equal(f.t, digestIn(image), f.status().Status.Booted.digest())
	require.JSONEq(f.t, `"containerPolicy"`, string(f.status().Status.Booted.Image.Image.Signature), "the node's policy has verified it")
	require.Equal(f.t, digestIn(f.installed), f.status().Status.Rollback.digest())
}

func testDrift(f *fleet) {
	f.sh("echo edited > /etc/lw/guest.conf")
	f.eventually(func(t *assert.CollectT) {
		a := f.node(t).Annotations
		assert.Equal(t, mcfgv1.NodeStateDegraded, a[mcfgv1.AnnotationState])
		assert.Contains(t, a[mcfgv1.AnnotationReason], "/etc/lw/guest.conf has other content")
		assert.Equal(t, "True", f.condition(t, mcfgv1.PoolDegraded))
	})
	require.Equal(f.t, "edited", f.sh("cat /etc/lw/guest.conf"))
	f.sh("cp -a /usr/etc/lw/guest.conf /etc/lw/guest.conf")
	f.eventually(func(t *assert.CollectT) {
		assert.Equal(t, mcfgv1.NodeStateDone, f.node(t).Annotations[mcfgv1.AnnotationState])
		assert.Equal(t, "False", f.condition(t, mcfgv1.PoolDegraded))
	})
}

func testReturns(f *fleet) {
	good := f.status().Status.Booted.digest()
	f.changePool(func(pool *mcfgv1.MachineConfigPool) {
		pool.Spec.Rollout = &mcfgv1.RolloutSpec{RebootTimeout: "1m", HaltThreshold: new(intstr.FromInt32(1))}
	})
	broken := f.named("60-broken")
	broken.Spec.Config.Raw = []byte(`{"ignition":{"version":"3.5.0"},"systemd":{"units":[{"name":"kubelet.service","dropins":[
{"name":"10-broken.conf","contents":"[Service]\nExecStart=\nExecStart=/usr/bin/false\n"}]}]}}`)
	require.NoError(f.t, f.Create(f.t.Context(), broken))
	var bad string
	f.eventually(func(t *assert.CollectT) { // the port of the machine answers where the kubelet does not
		booted := f.status().Status.Booted.digest()
		require.NotEqual(t, good, booted)
		bad = booted
	})
	require.NotEqual(f.t, "active", f.sh("systemctl is-active kubelet.service || true"))
	f.eventually(func(t *assert.CollectT) {
		assert.Equal(t, good, f.status().Status.Booted.digest())
		assert.Equal(t, bad, f.status().Status.Rollback.digest())
		assert.True(t, isReady(f.node(t)))
		assert.Equal(t, "True", f.condition(t, mcfgv1.PoolRolloutDegraded))
		assert.EqualValues(t, 1, f.pool(t).Status.Rollout.FailedMachineCount)
	})
	// systemd shortens names on the console, and shows a unit that has run when the machine goes.
	require.Positive(f.t, strings.Count(f.console(), "te of this node was not confirmed"), "an agent told it to")
	f.eventually(func(t *assert.CollectT) { // and does not try again
		assert.Equal(t, digestIn(f.node(t).Annotations[mcfgv1.AnnotationCurrentImage]), good)
		assert.False(t, f.node(t).Spec.Unschedulable)
	})
	require.Equal(f.t, configured, f.sh("cat /etc/lw/guest.conf"))
	require.Equal(f.t, "kept", f.sh("cat /var/lib/kept/file"))
}

func testUnsigned(f *fleet) {
	registry, err := playground.Registry(f.t.Context())
	require.NoError(f.t, err)
	tag, err := name.NewTag(string(f.config(f.t).Spec.RenderedImagePushSpec))
	require.NoError(f.t, err)
	pinned, err := name.NewDigest(string(f.config(f.t).Status.CurrentImagePullSpec))
	require.NoError(f.t, err)
	options := registry.Options(f.t.Context(), "push")
	image, err := remote.Image(pinned, options...)
	require.NoError(f.t, err)
	var content bytes.Buffer
	w := tar.NewWriter(&content)
	require.NoError(f.t, w.WriteHeader(&tar.Header{Name: "etc/evil", Typeflag: tar.TypeReg, Mode: 0o644}))
	require.NoError(f.t, w.Close())
	image, err = mutate.AppendLayers(image, static.NewLayer(content.Bytes(), types.OCIUncompressedLayer))
	require.NoError(f.t, err)
	require.NoError(f.t, remote.Write(tag, image, options...))

	// What the agent logged in with for the last image is gone since the reboot.
	f.sh("install -D -m 600 /var/lib/kubelet/config.json /run/ostree/auth.json")
	_, err = f.control.Run(f.t.Context(), "bootc switch --enforce-container-sigpolicy "+tag.String())
	var exit *guest.ExitError
	require.ErrorAs(f.t, err, &exit)
	require.Contains(f.t, exit.Output, "A signature was required, but no signature exists")
	require.Nil(f.t, f.status().Status.Staged)
	require.Equal(f.t, "no", strings.TrimSpace(f.sh("test -e /etc/evil && echo yes || echo no")))
}
