package main

import (
	"bytes"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/cmd/layerwright/survey"
)

const exportedImage = "registry.example.com/os/worker@sha256:1111111111111111111111111111111111111111111111111111111111111111"

// exported is a cluster with a pool that joins one MachineConfig and has an image, and one that has
// nothing yet.
func exported(t *testing.T) client.Reader {
	t.Helper()
	scheme, err := survey.Scheme()
	require.NoError(t, err)
	worker := &mcfgv1.MachineConfigPool{ObjectMeta: metav1.ObjectMeta{Name: "worker"}}
	worker.Spec.MachineConfigSelector = &metav1.LabelSelector{MatchLabels: map[string]string{mcfgv1.LabelRole: "worker"}}
	worker.Spec.Configuration.Name = "rendered-worker-1"
	worker.Status.Rollout = &mcfgv1.RolloutStatus{TargetImagePullSpec: exportedImage}
	config := func(name string, labels map[string]string) *mcfgv1.MachineConfig {
		mc := &mcfgv1.MachineConfig{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels, UID: "1"}}
		mc.Spec.Config = runtime.RawExtension{Raw: []byte(`{"ignition":{"version":"3.5.0"},"storage":{"files":[{"path":"/etc/motd","contents":{"source":"data:,hi"}}],"links":[{"path":"/etc/l","target":"/etc/motd"}]}}`)}
		return mc
	}
	rendered := config("rendered-worker-1", nil)
	rendered.OwnerReferences = []metav1.OwnerReference{{APIVersion: mcfgv1.GroupVersion.String(), Kind: "MachineConfigPool", Name: "worker"}}
	osConfig := &mcfgv1.MachineOSConfig{ObjectMeta: metav1.ObjectMeta{Name: "worker"}}
	osConfig.Spec.MachineConfigPool.Name = "worker"
	osConfig.Spec.CurrentImagePullSecret = &mcfgv1.ImageSecretObjectReference{Name: "pull"}
	return fake.NewClientBuilder().WithScheme(scheme).WithObjects(
		worker, &mcfgv1.MachineConfigPool{ObjectMeta: metav1.ObjectMeta{Name: "new"}}, osConfig, rendered,
		config("50-motd", map[string]string{mcfgv1.LabelRole: "worker"}), config("50-other", map[string]string{mcfgv1.LabelRole: "other"}),
	).Build()
}

func TestExport(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		pool, form string
		stdout     []string
		stderr     string
		err        string
	}{
		"MachineConfigs": {"worker", "yaml", []string{"---\napiVersion: machineconfiguration.openshift.io/v1\nkind: MachineConfig\n", "name: 50-motd", "path: /etc/motd"}, "", ""},
		"Ignition":       {"worker", "ignition", []string{`"path": "/etc/motd"`, `"version": "3.5.0"`}, "", ""},
		"ConfigMaps":     {"worker", "configmaps", []string{"kind: ConfigMap", "bootc.coreos.io/baseDir: /etc", "motd: hi", "namespace: mine"}, "not in the ConfigMaps: link /etc/l\n", ""},
		"podman":         {"worker", "podman", []string{"podman run --rm --interactive --tty --entrypoint /bin/sh " + exportedImage + "\n"}, "", ""},
		"pod":            {"worker", "pod", []string{"kind: Pod", "name: shell-worker", "image: " + exportedImage, "imagePullSecrets:\n  - name: pull", "automountServiceAccountToken: false"}, "", ""},
		"misspelt":       {"wroker", "yaml", nil, "", `do you mean "worker"?`},
		"no selector":    {"new", "yaml", nil, "", "joins no MachineConfig: see its spec.machineConfigSelector"},
		"not rendered":   {"new", "ignition", nil, "", `has no rendered MachineConfig yet: "layerwright status new" says why`},
		"no image":       {"new", "podman", nil, "", "pool new has no image yet"},
		"no base image":  {"worker", "containerfile", nil, "", "nothing names a base image"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := &exportOptions{render: *newRenderOptions(), cluster: newClusterFlags(&cobra.Command{}), pool: test.pool}
			o.form.Value, *o.cluster.Namespace, o.render.cacheDir = test.form, "mine", t.TempDir()
			var stdout, stderr bytes.Buffer
			err := o.run(t.Context(), exported(t), &stdout, &stderr)
			if test.err != "" {
				require.ErrorContains(t, err, test.err)
				return
			}
			require.NoError(t, err)
			for _, text := range test.stdout {
				assert.Contains(t, stdout.String(), text)
			}
			for _, text := range []string{"uid", "status:", "50-other", "rendered-worker-1", "creationTimestamp: \""} {
				assert.NotContains(t, stdout.String(), text)
			}
			assert.Equal(t, test.stderr != "", stderr.Len() > 0, stderr.String())
			assert.Contains(t, stderr.String(), test.stderr)
		})
	}
}
