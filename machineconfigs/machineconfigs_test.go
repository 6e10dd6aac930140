package machineconfigs

import (
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
)

var update = flag.Bool("update", false, "write golden files anew")

// golden compares with a file in testdata.
func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, got, 0o644))
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, string(want), string(got))
}

// option changes a MachineConfig of a test.
type option func(*mcfgv1.MachineConfig)

// machineConfig makes a MachineConfig; config is the JSON of spec.config.
func machineConfig(name, config string, options ...option) *mcfgv1.MachineConfig {
	mc := &mcfgv1.MachineConfig{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       mcfgv1.MachineConfigSpec{Config: runtime.RawExtension{Raw: []byte(config)}},
	}
	for _, change := range options {
		change(mc)
	}
	return mc
}

func annotated(key, value string) option {
	return func(mc *mcfgv1.MachineConfig) { metav1.SetMetaDataAnnotation(&mc.ObjectMeta, key, value) }
}

func labelled(key, value string) option {
	return func(mc *mcfgv1.MachineConfig) { metav1.SetMetaDataLabel(&mc.ObjectMeta, key, value) }
}

func role(name string) option { return labelled(mcfgv1.LabelRole, name) }

func nodeOnly() option { return annotated(mcfgv1.AnnotationNodeOnly, "true") }

func spec(change func(*mcfgv1.MachineConfigSpec)) option {
	return func(mc *mcfgv1.MachineConfig) { change(&mc.Spec) }
}

// ignition makes a configuration of specification 3.4 of the JSON of its other sections.
func ignition(sections string) string {
	if sections == "" {
		return `{"ignition":{"version":"3.4.0"}}`
	}
	return `{"ignition":{"version":"3.4.0"},` + sections + `}`
}

func files(list string) string { return ignition(`"storage":{"files":[` + list + `]}`) }

// file is a file with plain content.
func file(path, content string) string {
	return `{"path":"` + path + `","mode":420,"contents":{"source":"data:,` + content + `"}}`
}
