package recipe_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	mcfgv1alpha1 "github.com/layerwright/layerwright/api/machineconfiguration/v1alpha1"
	"github.com/layerwright/layerwright/builder/wanted/recipe"
	"github.com/layerwright/layerwright/containerfiles"
	"github.com/layerwright/layerwright/machineconfigs"
	"github.com/layerwright/layerwright/test/stored"
)

// TestStoredByEarlierVersions describes the images of builds that earlier versions made: one with
// other keys would be built again by an upgrade.
func TestStoredByEarlierVersions(t *testing.T) {
	t.Parallel()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, mcfgv1.AddToScheme, mcfgv1alpha1.AddToScheme} {
		require.NoError(t, add(scheme))
	}
	for version, objects := range stored.Objects(t, scheme) {
		rendered, sources, builds := map[string]*mcfgv1.MachineConfig{}, map[string][]containerfiles.Source{}, 0
		for _, object := range objects {
			switch o := object.(type) {
			case *mcfgv1.MachineConfig:
				rendered[o.Name] = o
			case *mcfgv1.MachineOSConfig:
				for _, file := range o.Spec.Containerfile {
					sources[o.Name] = append(sources[o.Name], containerfiles.Source{Arch: file.ContainerfileArch, Text: *file.Content})
				}
			}
		}
		for _, object := range objects {
			build, is := object.(*mcfgv1.MachineOSBuild)
			if !is {
				continue
			}
			builds++
			config, err := machineconfigs.Parse(rendered[build.Spec.MachineConfig.Name])
			require.NoError(t, err)
			decision := build.Spec.Decision
			described := &recipe.Recipe{
				Configuration: config, Sources: sources[build.Spec.MachineOSConfig.Name],
				Base: on(string(decision.BaseImage), recipe.Platform{Architecture: mcfgv1.Amd64, Open: opened(t, "etc/", "usr/bin/rpm-ostree")}),
			}
			require.NoError(t, described.Describe(t.Context()), build.Name)
			keys := described.Described.Keys
			assert.Equal(t, decision.BuildKey, keys.Build, "%s: %s", version, build.Name)
			assert.Equal(t, decision.ContentKey, keys.Content, "%s: %s", version, build.Name)
			assert.Contains(t, build.Name, keys.Build)
		}
		assert.NotZero(t, builds, version)
	}
}
