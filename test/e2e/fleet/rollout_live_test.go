//go:build e2e

package fleet

import (
	"strings"
	"time"

	openshiftv1 "github.com/openshift/api/operator/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	operatorv1 "github.com/layerwright/layerwright/api/operator/v1"
	"github.com/layerwright/layerwright/test/host/power"
)

// testLive changes a file that a policy needs no reboot for: no node goes away, and each boots the
// same afterwards.
func testLive(f *fleet) {
	f.setPolicies(openshiftv1.NodeDisruptionPolicyConfig{Files: []openshiftv1.NodeDisruptionPolicySpecFile{
		{Path: "/etc/motd", Actions: []openshiftv1.NodeDisruptionPolicySpecAction{{Type: openshiftv1.DaemonReloadSpecAction}}},
	}})
	before, boots := map[string]string{}, map[string]string{}
	for node := range zones {
		before[node], boots[node] = f.booted(node), f.sh(node, "cat /proc/sys/kernel/random/boot_id")
	}
	f.next()
	begun := time.Now()
	f.write("live")
	image := f.have("live")
	f.t.Logf("live on %d nodes after %s", len(zones), time.Since(begun).Round(100*time.Millisecond))
	require.Empty(f.t, f.nodes.order(), "no node was cordoned")
	for node := range zones {
		require.Equal(f.t, boots[node], f.sh(node, "cat /proc/sys/kernel/random/boot_id"), "%s was not rebooted", node)
		require.Equal(f.t, before[node], f.booted(node))
		require.Equal(f.t, image, f.nodes.node(node).Annotations[mcfgv1.AnnotationCurrentImage])
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

	f.setPolicies(openshiftv1.NodeDisruptionPolicyConfig{})
	f.next()
	f.write("rebooted")
	f.arrive("rebooted")
	require.Len(f.t, f.nodes.order(), len(zones), "without the policy each node reboots")
	for node := range zones {
		require.NotEqual(f.t, boots[node], f.sh(node, "cat /proc/sys/kernel/random/boot_id"))
	}
}

// setPolicies gives the cluster node disruption policies.
func (f *fleet) setPolicies(policies openshiftv1.NodeDisruptionPolicyConfig) {
	f.t.Helper()
	f.eventually(func(t *assert.CollectT) {
		config := &operatorv1.MachineConfiguration{ObjectMeta: metav1.ObjectMeta{Name: operatorv1.MachineConfigurationName}}
		err := f.Get(f.t.Context(), client.ObjectKeyFromObject(config), config)
		config.Spec.NodeDisruptionPolicy = policies
		if apierrors.IsNotFound(err) {
			err = f.Create(f.t.Context(), config)
		} else if err == nil {
			err = f.Update(f.t.Context(), config)
		}
		require.NoError(t, err)
	})
}
