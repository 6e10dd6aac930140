package export_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/cmd/layerwright/export"
	"github.com/layerwright/layerwright/machineconfigs"
)

const image = "registry.example.com/os/worker@sha256:1111111111111111111111111111111111111111111111111111111111111111"

func parsed(t *testing.T, ignition string, spec mcfgv1.MachineConfigSpec) *machineconfigs.Config {
	t.Helper()
	spec.Config = runtime.RawExtension{Raw: []byte(ignition)}
	config, err := machineconfigs.Parse(&mcfgv1.MachineConfig{ObjectMeta: metav1.ObjectMeta{Name: "rendered-worker-1"}, Spec: spec})
	require.NoError(t, err)
	return config
}

func TestConfigMapsOfFiles(t *testing.T) {
	t.Parallel()
	config := parsed(t, `{"ignition":{"version":"3.5.0"},
		"storage":{
			"directories":[{"path":"/etc/app","mode":448},{"path":"/etc/empty"}],
			"files":[
				{"path":"/etc/app/b.conf","mode":384,"user":{"name":"app"},"group":{"id":7},"contents":{"source":"data:,b"}},
				{"path":"/etc/app/a.conf","mode":384,"user":{"name":"app"},"group":{"id":7},"contents":{"source":"data:;base64,/wA="}},
				{"path":"/etc/app/c.conf","contents":{"source":"data:,c"}},
				{"path":"/etc/app/no key","contents":{"source":"data:,d"}},
				{"path":"/etc/fetched","contents":{"source":"https://example.com/x","verification":{"hash":"sha256-e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"}}}],
			"links":[{"path":"/etc/link","target":"/etc/app"}]},
		"systemd":{"units":[{"name":"app.service","enabled":true,"contents":"[Unit]\n","dropins":[{"name":"10.conf","contents":"[Service]\n"}]}]},
		"passwd":{"users":[{"name":"core","sshAuthorizedKeys":["ssh-ed25519 AAAA"]}]}}`,
		mcfgv1.MachineConfigSpec{KernelArguments: []string{"quiet"}, Extensions: []string{"usbguard"}})
	configMaps, left, err := export.ConfigMaps("worker", "layerwright", config)
	require.NoError(t, err)
	require.Len(t, configMaps, 4)
	own := configMaps[0]
	assert.Equal(t, "worker-files-0", own.Name)
	assert.Equal(t, "layerwright", own.Namespace)
	assert.Equal(t, map[string]string{
		"bootc.coreos.io/configMap": "true", "machineconfiguration.openshift.io/machineConfigPool": "worker",
		"bootc.coreos.io/baseDir": "/etc/app", "bootc.coreos.io/baseDirMode": "0700", "bootc.coreos.io/fileMode": "0600",
		"bootc.coreos.io/userOwner": "app", "bootc.coreos.io/groupOwner": "7",
	}, own.Annotations)
	assert.Equal(t, map[string]string{"b.conf": "b"}, own.Data)
	assert.Equal(t, map[string][]byte{"a.conf": {0xff, 0}}, own.BinaryData, "what is no text")
	assert.Equal(t, "0644", configMaps[1].Annotations["bootc.coreos.io/fileMode"], "Ignition's mode where none is given")
	assert.Equal(t, "root", configMaps[1].Annotations["bootc.coreos.io/userOwner"])
	assert.Equal(t, "/etc/systemd/system", configMaps[2].Annotations["bootc.coreos.io/baseDir"])
	assert.Equal(t, map[string]string{"app.service": "[Unit]\n"}, configMaps[2].Data)
	assert.Equal(t, "/etc/systemd/system/app.service.d", configMaps[3].Annotations["bootc.coreos.io/baseDir"])
	for _, what := range []string{
		"file /etc/fetched: its content is at an address, and has to be downloaded", "folder /etc/empty", "link /etc/link", "unit app.service: enabled", "user core",
		"kernel arguments quiet", "extensions usbguard",
	} {
		assert.Contains(t, left, what)
	}
	require.Len(t, left, 8, "%v", left)
	assert.Contains(t, left[1], "file /etc/app/no key: ")
}

func TestConfigMapsAreNotTooLarge(t *testing.T) {
	t.Parallel()
	const files = 4
	large := strings.Repeat("x", 300<<10)
	text := `{"ignition":{"version":"3.5.0"},"storage":{"files":[`
	for i := range files {
		if i > 0 {
			text += ","
		}
		text += fmt.Sprintf(`{"path":"/etc/large%d","contents":{"source":"data:,%s"}}`, i, large)
	}
	configMaps, left, err := export.ConfigMaps("worker", "layerwright", parsed(t, text+`]}}`, mcfgv1.MachineConfigSpec{}))
	require.NoError(t, err)
	assert.Empty(t, left)
	require.Len(t, configMaps, files/2)
	assert.Len(t, configMaps[1].Data, 2)
}

func TestShells(t *testing.T) {
	t.Parallel()
	line, err := export.Podman(image)
	require.NoError(t, err)
	assert.Equal(t, "podman run --rm --interactive --tty --entrypoint /bin/sh "+image, line)
	pod, err := export.Pod("worker", "layerwright", image)
	require.NoError(t, err)
	assert.Equal(t, "shell-worker", pod.Name)
	assert.False(t, *pod.Spec.AutomountServiceAccountToken)
	security := pod.Spec.Containers[0].SecurityContext
	assert.True(t, *security.RunAsNonRoot, "the namespace's policy refuses others")
	assert.NotZero(t, *security.RunAsUser, "the image's user is root")
	assert.Equal(t, corev1.SeccompProfileTypeRuntimeDefault, security.SeccompProfile.Type)
	for _, bad := range []string{"registry.example.com/os/worker:latest", image + "; reboot", "", "$(reboot)", "--env-host=a.b/" + image} {
		_, err := export.Podman(bad)
		require.ErrorContains(t, err, "no name@digest", bad)
		_, err = export.Pod("worker", "layerwright", bad)
		require.Error(t, err, bad)
	}
}

func TestTrim(t *testing.T) {
	t.Parallel()
	object := map[string]any{
		"metadata": map[string]any{
			"name": "50-kargs", "uid": "1", "resourceVersion": "7", "labels": map[string]any{"role": "worker"},
			"annotations": map[string]any{"kubectl.kubernetes.io/last-applied-configuration": "{}"},
		},
		"spec": map[string]any{"fips": true}, "status": map[string]any{},
	}
	export.Trim(object)
	assert.Equal(t, map[string]any{
		"metadata": map[string]any{"name": "50-kargs", "labels": map[string]any{"role": "worker"}}, "spec": map[string]any{"fips": true},
	}, object)
}
