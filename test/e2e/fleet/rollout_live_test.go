//go:build e2e

package fleet

import (
	"strings"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	operatorv1 "github.com/layerwright/layerwright/api/operator/v1"
	"github.com/layerwright/layerwright/test/host/power"
)

// testLive changes a file that a policy needs no reboot for: no node goes away, and each boots the
// same afterwards.
func testLive(f *fleet) {
	f.setPolicies(`{"files":[{"path":"/etc/motd","actions":[{"type":"DaemonReload"}]}]}`)
	before, boots := map[string]string{}, map[string]string{}
	for node := range zones {
		before[node], boots[node] = f.booted(node), f.sh(node, "cat /proc/sys/kernel/random/boot_id")
	}
	f.next()
	begun := time.Now()
	f.write("live")
	image := f.have("live")
	f.t.Logf("live on %d nodes after %s", len(zones), time.Since(begun).Round(100*time.Millisecond))
	require.NotContains(f.t, strings.Join(f.nodes.Lines(), "\n"), "cordoned=true")
	for node := range zones {
		require.Equal(f.t, boots[node], f.sh(node, "cat /proc/sys/kernel/random/boot_id"), "%s was not rebooted", node)
		require.Equal(f.t, before[node], f.booted(node))
		require.Equal(f.t, image, f.nodes.Node(node).Annotations[mcfgv1.AnnotationCurrentImage])
		require.Equal(f.t, "daemon-reload", strings.TrimSpace(f.sh(node, "cat "+power.Dir+"/systemd")))
	}
	node := "node3"
	require.NoError(f.t, f.stack.HostLine(node).Ask(power.Reboot)) // by someone
	f.eventually(func(t *assert.CollectT) {
		id, err := f.try(node, "cat /proc/sys/kernel/random/boot_id")
		require.NoError(t, err)
		require.NotEqual(t, boots[node], id)
		text, err := f.try(node, "diff -r /etc/motd /usr/etc/motd && cat /etc/motd")
		require.NoError(t, err)
		assert.Equal(t, "live", text)
	})
	f.have("live")
	require.Equal(f.t, mcfgv1.ImageDigestFormat(image).Digest(), f.booted(node))

	f.setPolicies(`{"files":[{"path":"/etc/motd","actions":[{"type":"Reboot"}]}]}`)
	f.next()
	f.write("rebooted")
	f.arrive("rebooted")
	for node := range zones {
		require.NotEqual(f.t, boots[node], f.sh(node, "cat /proc/sys/kernel/random/boot_id"))
	}
}

// setPolicies gives the cluster node disruption policies.
func (f *fleet) setPolicies(policies string) {
	f.t.Helper()
	config := &operatorv1.MachineConfiguration{ObjectMeta: metav1.ObjectMeta{Name: operatorv1.MachineConfigurationName}}
	text := `{"apiVersion":"operator.openshift.io/v1","kind":"MachineConfiguration","metadata":{"name":"` + config.Name + `"},"spec":{"nodeDisruptionPolicy":` + policies + `}}`
	require.NoError(f.t, f.Patch(f.t.Context(), config, client.RawPatch(types.ApplyPatchType, []byte(text)), client.FieldOwner("test")))
}
