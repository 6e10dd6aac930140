package agent

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/nodes"
	"github.com/layerwright/layerwright/nodes/nodestest"
)

// withArguments is a node that was installed with arguments, and the line that it boots with.
func withArguments(t *testing.T, installed string, configs ...client.Object) (w *world, line func() string) {
	t.Helper()
	w = newWorld(t, configs...)
	w.machine.arguments[w.machine.booted.Digest] = strings.Fields(installed)
	w.target("rendered-1", "1")
	w.settle()
	return w, func() string { return strings.Join(w.machine.arguments[w.machine.booted.Digest], " ") }
}

// ignitionArguments is a configuration with both lists of Ignition.
func ignitionArguments(name, exist, unwanted string) *mcfgv1.MachineConfig {
	mc := rendered(name, "1")
	mc.Spec.Config.Raw = fmt.Appendf(nil, `{"ignition":{"version":"3.5.0"},"kernelArguments":{"shouldExist":[%q],"shouldNotExist":[%q]}}`, exist, unwanted)
	return mc
}

func TestKernelArgumentsAreACommandLine(t *testing.T) {
	t.Parallel()
	huge := []string{"default_hugepagesz=1G", "hugepagesz=1G hugepages=16", "hugepagesz=2M", "hugepages=16"}
	quoted := []string{`dyndbg="file drivers/usb/* +p"`, `kvm.dyndbg="file virt/kvm/* +p"`}
	w, line := withArguments(t, "rw quiet", rendered("rendered-4", "1", huge...), rendered("rendered-5", "1", append(quoted, "z=4", "quiet", "z=4")...))
	w.target("rendered-4", "1")
	w.settle()
	assert.Equal(t, "rw quiet "+strings.Join(huge, " "), line())
	w.target("rendered-5", "1")
	w.settle()
	assert.Equal(t, "rw quiet "+strings.Join(quoted, " ")+" z=4 quiet z=4", line())
	w.target("rendered-1", "1")
	w.settle()
	assert.Equal(t, "rw quiet", line(), "what the host had is still there")
	assert.Equal(t, 3, w.machine.boots)
}

// TestKernelArgumentsOfIgnition are those of spec.config, on a host that was installed with some.
func TestKernelArgumentsOfIgnition(t *testing.T) {
	t.Parallel()
	w, line := withArguments(t, "mitigations=auto,nosmt rw", ignitionArguments("rendered-4", "mitigations=off", "mitigations=auto,nosmt"))
	w.target("rendered-4", "1")
	w.settle()
	assert.Equal(t, "rw mitigations=off", line())
	w.target("rendered-1", "1")
	w.settle()
	assert.Equal(t, "rw mitigations=auto,nosmt", line(), "the host has its own again")
}

// TestKernelArgumentsThatTheHostHad names what is there, which needs no reboot, and stays.
func TestKernelArgumentsThatTheHostHad(t *testing.T) {
	t.Parallel()
	w, line := withArguments(t, "rw quiet splash", rendered("rendered-4", "1", "quiet"))
	for _, config := range []string{"rendered-4", "rendered-1"} {
		w.target(config, "1")
		w.settle()
		assert.Equal(t, "rw quiet splash", line())
	}
	assert.Zero(t, w.machine.boots)
}

// TestKernelArgumentsOfADeletedMachineConfig go when nothing but the host's record knows them.
func TestKernelArgumentsOfADeletedMachineConfig(t *testing.T) {
	t.Parallel()
	w, line := withArguments(t, "rw", rendered("rendered-4", "1", "z=4", "z=4"))
	w.target("rendered-4", "1")
	w.settle()
	require.Equal(t, "rw z=4 z=4", line())
	require.NoError(t, w.Delete(t.Context(), &mcfgv1.MachineConfig{ObjectMeta: metav1.ObjectMeta{Name: "rendered-4"}}))
	w.start()
	w.target("rendered-1", "1")
	w.settle()
	assert.Equal(t, "rw", line())
}

// TestKernelArgumentsAfterTheWayBack has a host that returns to a deployment with other arguments.
func TestKernelArgumentsAfterTheWayBack(t *testing.T) {
	t.Parallel()
	w, line := withArguments(t, "rw quiet", rendered("rendered-4", "1", "a b"), rendered("rendered-5", "3", "b a"))
	w.target("rendered-4", "1")
	w.settle()
	require.Equal(t, "rw quiet a b", line())
	w.target("rendered-5", "3")
	w.settle()
	require.Equal(t, "rw quiet b a", line())
	w.target("rendered-4", "1")
	w.settle()
	require.Equal(t, "rw quiet a b", line())
	w.target("rendered-1", "1")
	w.settle()
	assert.Equal(t, "rw quiet", line())
}

// TestKernelArgumentsOfAnOlderAgent are on a host that has rebooted for them, without a record.
func TestKernelArgumentsOfAnOlderAgent(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ current, line string }{
		"after others": {"rendered-4", "ro root a b c"},
		"after none":   {"rendered-1", "ro root a b c"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, line := withArguments(t, tt.line, rendered("rendered-4", "1", "a", "b"), rendered("rendered-5", "1", "a", "b", "c"))
			w.annotate(mcfgv1.AnnotationCurrentConfig, tt.current, mcfgv1.AnnotationState, mcfgv1.NodeStateRebooting)
			w.target("rendered-5", "1")
			target := nodes.Target{Config: "rendered-5", Image: nodestest.Pinned("1")}
			require.NoError(t, w.agent.journal.write(Journal{
				Target: target, Image: mcfgv1.ImageDigestFormat(target.Image), BootID: "another", Ready: true,
			}))
			w.settle()
			a := w.node().Annotations
			assert.Equal(t, []string{"rendered-5", mcfgv1.NodeStateDone}, []string{a[mcfgv1.AnnotationCurrentConfig], a[mcfgv1.AnnotationState]}, a[mcfgv1.AnnotationReason])
			assert.Equal(t, tt.line, line())
			w.target("rendered-1", "1")
			w.settle()
			assert.Equal(t, "ro root", line())
		})
	}
}
