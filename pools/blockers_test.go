package pools

import (
	"fmt"
	"net/url"
	"testing"

	"github.com/stretchr/testify/assert"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
)

// writing makes a MachineConfig that writes a file with a text.
func writing(name, path, text string) *mcfgv1.MachineConfig {
	mc := newConfig(name, "worker", path)
	mc.Spec.Config.Raw = fmt.Appendf(nil, `{"ignition":{"version":"3.4.0"},"storage":{"files":[{"path":%q,"mode":420,"contents":{"source":"data:,%s"}}]}}`,
		path, url.PathEscape(text))
	return mc
}

// TestStreamBlockersStopTheMove as a trial of the stream says that it would be stopped.
func TestStreamBlockersStopTheMove(t *testing.T) {
	t.Parallel()
	arguments := newConfig("50-bad", "worker", "/etc/a")
	arguments.Spec.KernelArguments = []string{"systemd.unified_cgroup_hierarchy=0"}
	tests := map[string]struct {
		bad              *mcfgv1.MachineConfig
		rule, place, fix string
	}{
		"runc as the default runtime": {
			writing("50-bad", "/etc/crio/crio.conf.d/99-runc", "[crio.runtime]\ndefault_runtime = \"runc\"\n"),
			"RuncDefaultRuntime", "/etc/crio/crio.conf.d/99-runc:2", `set default_runtime = "crun"`,
		},
		"cgroup v1":       {arguments, "CgroupV1", "spec.kernelArguments", "remove the argument"},
		"network scripts": {writing("50-bad", "/etc/sysconfig/network-scripts/ifcfg-eth0", "DEVICE=eth0\n"), "NetworkScripts", "ifcfg-eth0", "write it as a keyfile"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, newPool("worker"), newConfig("00-a", "worker", "/etc/other"), tt.bad.DeepCopy(), newStream("rhel-9", "rhel-10"))
			r := w.reconciler()
			w.settle(r, "worker")
			before := w.wants("worker")
			assert.Equal(t, streamImage("rhel-9"), w.config(before).Spec.OSImageURL, "version 9 takes it")

			w.editPool("worker", naming("rhel-10"))
			w.settle(r, "worker")
			says := w.condition("worker", typeRenderDegraded)
			for _, part := range []string{"True BlockedOnStream ", `MachineConfig "50-bad"`, tt.place, tt.fix, mcfgv1.AnnotationAcceptBlockers + ": " + tt.rule} {
				assert.Contains(t, says, part)
			}
			assert.NotContains(t, says, "00-a")
			assert.Equal(t, before, w.wants("worker"), "the pool keeps what it has")

			w.editPool("worker", func(p *mcfgv1.MachineConfigPool) {
				p.Annotations[mcfgv1.AnnotationAcceptBlockers] = "Another, " + tt.rule
			})
			w.settle(r, "worker")
			assert.Equal(t, "False AsExpected", w.condition("worker", typeRenderDegraded))
			assert.Equal(t, streamImage("rhel-10"), w.config(w.wants("worker")).Spec.OSImageURL)
		})
	}
}
