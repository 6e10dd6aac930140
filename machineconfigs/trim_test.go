package machineconfigs

import (
	"testing"

	"github.com/stretchr/testify/require"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
)

func TestTrim(t *testing.T) {
	t.Parallel()
	const applied = "kubectl.kubernetes.io/last-applied-configuration"
	rendered := func(config string) *mcfgv1.MachineConfig {
		mc := machineConfig("rendered-worker-1", config)
		mc.Annotations = map[string]string{mcfgv1.AnnotationGeneratedByControllerVersion: "v1", applied: "{}"}
		return mc
	}
	written := machineConfig("50-a", `{"a":1}`)
	written.Annotations = map[string]string{applied: "{}", "other": "stays"}
	Trim(written)
	require.Equal(t, map[string]string{"other": "stays"}, written.Annotations)
	require.JSONEq(t, `{"a":1}`, string(written.Spec.Config.Raw), "it is rendered")

	full, trimmed := rendered(`{"a": 1, "b": [2]}`), rendered(`{"b":[2],"a":1}`)
	for range 2 { // as caches do
		Trim(trimmed)
	}
	require.Empty(t, trimmed.Spec.Config.Raw)
	require.True(t, IsSameContent(full, trimmed))
	require.True(t, IsSameContent(trimmed, trimmed))
	require.False(t, IsSameContent(rendered(`{"a":1,"b":[3]}`), trimmed))
	require.False(t, IsSameContent(rendered(`no JSON`), rendered(`no JSON`)))

	forged := rendered(`{"a":2}`)
	forged.Annotations[annotationTrimmed] = trimmed.Annotations[annotationTrimmed]
	require.False(t, IsSameContent(forged, full), "content counts before an annotation")
	Untrim(trimmed)
	require.False(t, IsSameContent(full, trimmed))
}
