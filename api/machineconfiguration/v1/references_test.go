package v1

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime"
)

func TestDigest(t *testing.T) {
	t.Parallel()
	digest := strings.Repeat("0123456789abcdef", 4)
	tests := map[string]struct {
		image         ImageDigestFormat
		short, digest string
	}{
		"a digest":            {"quay.io/os/worker@sha256:" + ImageDigestFormat(digest), digest[:12], "sha256:" + digest},
		"a port is no digest": {"registry:5000/os/worker@sha256:" + ImageDigestFormat(digest), digest[:12], "sha256:" + digest},
		"a tag":               {"quay.io/os/worker:latest", "", ""},
		"a digest cut off":    {"quay.io/os/worker@sha256:0123", "", "sha256:0123"},
		"another algorithm":   {"quay.io/os/worker@sha512:" + ImageDigestFormat(digest), "", "sha512:" + digest},
		"nothing":             {},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			assert.Equal(t, test.short, test.image.Short())
			assert.Equal(t, test.digest, test.image.Digest())
		})
	}
}

func TestWithoutTag(t *testing.T) {
	t.Parallel()
	digest := "@sha256:" + strings.Repeat("0123456789abcdef", 4)
	for image, want := range map[string]string{
		"quay.io/os:1.2" + digest:       "quay.io/os" + digest,
		"registry:5000/os/x:1" + digest: "registry:5000/os/x" + digest,
		"registry:5000/os/x" + digest:   "registry:5000/os/x" + digest,
		"[fd00::1]:5000/os:1" + digest:  "[fd00::1]:5000/os" + digest,
		"quay.io/os:1.2":                "quay.io/os:1.2",
		"registry:5000/os":              "registry:5000/os",
		"":                              "",
	} {
		assert.Equal(t, want, WithoutTag(image))
	}
}

func TestArchitecture(t *testing.T) {
	t.Parallel()
	for _, architecture := range []Architecture{ArchitectureAMD64, ArchitectureARM64, ArchitecturePPC64LE, ArchitectureS390X} {
		back, known := ArchitectureFromOCI(architecture.OCI())
		assert.True(t, known)
		assert.Equal(t, architecture, back)
		assert.Equal(t, strings.ToLower(string(architecture)), architecture.OCI())
	}
	_, known := ArchitectureFromOCI("riscv64")
	assert.False(t, known)
}

func TestSchemeKnowsEveryKind(t *testing.T) {
	t.Parallel()
	scheme := runtime.NewScheme()
	require.NoError(t, AddToScheme(scheme))
	for _, kind := range []string{"MachineConfig", "MachineConfigPool", "MachineOSConfig", "MachineOSBuild", "MachineConfigNode", "OSImageStream"} {
		assert.True(t, scheme.Recognizes(GroupVersion.WithKind(kind)), kind)
		assert.True(t, scheme.Recognizes(GroupVersion.WithKind(kind+"List")), kind)
	}
	assert.Equal(t, "machineosconfigs.machineconfiguration.openshift.io", Resource("machineosconfigs").String())
}
