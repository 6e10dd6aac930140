//go:build e2e

package fleet

import (
	"strings"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
)

// testConfigurations makes the changes that need no image, and takes them back: the image stays,
// and nodes reboot for kernel arguments alone.
func testConfigurations(f *fleet) {
	const state = "60-state"
	image, builds := string(f.config(f.t).Status.CurrentImagePullSpec), f.builds()
	file := func(path string) string {
		return `"storage":{"files":[{"path":"` + path + `","contents":{"source":"data:,state"}}]}`
	}
	f.live("", "", func() { f.add(state, file("/var/lib/lw-config"), nil) })
	f.live("test -f /var/lib/lw-config", "a file below /var", func() {
		f.add("61-keys", `"passwd":{"users":[{"name":"root","sshAuthorizedKeys":["ssh-ed25519 AAAA test"]}]}`, nil)
	})
	f.live("test -f /var/lib/lw-config", "SSH keys", func() {
		f.add("62-secret", file("/etc/lw-secret"), func(mc *mcfgv1.MachineConfig) {
			metav1.SetMetaDataAnnotation(&mc.ObjectMeta, mcfgv1.AnnotationNodeOnly, "true")
		})
	})
	f.live("test -f /etc/lw-secret", "a file of nodes only", func() { // another name for the same content
		f.add("63-state", file("/var/lib/lw-config"), nil)
		f.remove(state)
	})
	f.live("test -f /var/lib/lw-config", "a new name", func() {
		for _, name := range []string{"61-keys", "62-secret", "63-state"} {
			f.remove(name)
		}
	})
	f.live("test ! -e /var/lib/lw-config && test ! -e /etc/lw-secret", "all of it taken back", nil)

	boots := f.bootIDs()
	f.add(state, "", func(mc *mcfgv1.MachineConfig) { mc.Spec.KernelArguments = []string{"lw.config=1"} })
	f.configured()
	for node := range zones {
		require.Contains(f.t, f.sh(node, "cat /proc/cmdline"), "lw.config=1")
		require.NotEqual(f.t, boots[node], f.bootIDs()[node])
	}
	f.remove(state)
	f.configured()
	for node := range zones {
		require.NotContains(f.t, f.sh(node, "cat /proc/cmdline"), "lw.config=1")
	}
	require.Equal(f.t, image, string(f.config(f.t).Status.CurrentImagePullSpec))
	require.Equal(f.t, builds, f.builds())
	require.Empty(f.t, f.brokenRules())
}

// live makes sure of what the change before has done, makes the next one, and waits until all nodes
// have it. No node reboots.
func (f *fleet) live(holds, what string, next func()) {
	f.t.Helper()
	for node := range zones {
		if holds != "" {
			f.sh(node, holds+" # "+what)
		}
	}
	if next == nil {
		return
	}
	boots := f.bootIDs()
	next()
	f.configured()
	require.Equal(f.t, boots, f.bootIDs())
	require.NotContains(f.t, strings.Join(f.nodes.Lines(), "\n"), "cordoned=true")
}

// configured waits until all nodes have the configuration that the pool's MachineConfigs make.
func (f *fleet) configured() {
	f.t.Helper()
	f.eventually(func(t *assert.CollectT) {
		var all mcfgv1.MachineConfigList
		require.NoError(t, f.List(f.t.Context(), &all, client.MatchingLabels{mcfgv1.LabelRole: f.pool}))
		var wanted, has []string
		for i := range all.Items {
			wanted = append(wanted, all.Items[i].Name)
		}
		pool := f.readPool(t)
		for _, source := range pool.Spec.Configuration.Source {
			has = append(has, source.Name)
		}
		require.ElementsMatch(t, wanted, has)
		require.NotNil(t, pool.Status.Rollout)
		require.Equal(t, pool.Spec.Configuration.Name, pool.Status.Rollout.TargetConfiguration)
		require.Equal(t, "3/3 updated", pool.Status.Rollout.Summary)
		require.Equal(t, "True", poolCondition(pool, "Updated"))
	})
}

// add gives the pool one more MachineConfig.
func (f *fleet) add(name, content string, change func(*mcfgv1.MachineConfig)) {
	f.t.Helper()
	mc := &mcfgv1.MachineConfig{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{mcfgv1.LabelRole: f.pool}}}
	if content != "" {
		mc.Spec.Config.Raw = []byte(`{"ignition":{"version":"3.5.0"},` + content + `}`)
	}
	if change != nil {
		change(mc)
	}
	require.NoError(f.t, f.Create(f.t.Context(), mc))
}

func (f *fleet) remove(name string) {
	f.t.Helper()
	require.NoError(f.t, f.Delete(f.t.Context(), &mcfgv1.MachineConfig{ObjectMeta: metav1.ObjectMeta{Name: name}}))
}

// builds are the names of all MachineOSBuilds.
func (f *fleet) builds() (names []string) {
	f.t.Helper()
	var list mcfgv1.MachineOSBuildList
	require.NoError(f.t, f.List(f.t.Context(), &list))
	for i := range list.Items {
		names = append(names, list.Items[i].Name)
	}
	return names
}

func (f *fleet) bootIDs() map[string]string {
	f.t.Helper()
	ids := map[string]string{}
	for node := range zones {
		ids[node] = f.sh(node, "cat /proc/sys/kernel/random/boot_id")
	}
	return ids
}
