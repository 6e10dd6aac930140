package machineconfigs

import (
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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
	require.Equal(t, map[string]string{"other": "stays", annotationTrimmed: trimmedHere}, written.Annotations)
	require.Empty(t, written.Spec.Config.Raw)
	require.False(t, IsSameContent(written, written))
	_, err := Parse(written)
	require.ErrorIs(t, err, errTrimmed)
	none := machineConfig("50-b", "")
	Trim(none)
	_, err = Parse(none)
	require.NoError(t, err, "it has no content")

	made := machineConfig("99-made", `{"a": 1}`)
	made.OwnerReferences = []metav1.OwnerReference{{Kind: "MachineOSConfig", Controller: new(true)}}
	untrimmed := made.DeepCopy()
	Trim(made)
	require.True(t, IsSameContent(untrimmed, made))

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
	forged.Spec.Config.Raw, forged.Annotations[annotationTrimmed] = nil, contentHash(full.Spec.Config.Raw)
	Trim(forged)
	require.False(t, IsSameContent(forged, full), "written by someone else")
	_, err = Parse(forged)
	require.NoError(t, err, "it has no content")
	Untrim(trimmed)
	require.False(t, IsSameContent(full, trimmed))
}
