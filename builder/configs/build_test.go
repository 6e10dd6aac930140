package configs

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/builder/plan"
	"github.com/layerwright/layerwright/builder/wanted"
	"github.com/layerwright/layerwright/builder/wanted/recipe"
	"github.com/layerwright/layerwright/internal/apitest"
	"github.com/layerwright/layerwright/internal/fault"
)

// TestAnOldDefinitionOfBuilds has an API server that knows no spec.decision, and leaves it out.
func TestAnOldDefinitionOfBuilds(t *testing.T) {
	t.Parallel()
	world := interceptor.NewClient(fake.NewClientBuilder().WithScheme(apitest.Scheme(t)).Build(), interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, options ...client.CreateOption) error {
			build, isBuild := o.(*mcfgv1.MachineOSBuild)
			require.True(t, isBuild)
			build.Spec.Decision, build.Finalizers = nil, nil
			return c.Create(ctx, build, options...)
		},
	})
	config := &mcfgv1.MachineOSConfig{}
	config.Name, config.UID, config.Spec.RenderedImagePushSpec = "worker", "1", "registry.example.com/os/worker:latest"
	s := &scope{
		config: config, pool: &mcfgv1.MachineConfigPool{}, rendered: &mcfgv1.MachineConfig{},
		found:    &wanted.Image{Base: &recipe.Base{}, Record: (&plan.Inputs{Base: "sha256:1"}).Record()},
		decision: &plan.Decision{Action: plan.Append, Build: "worker-k1"},
	}
	err := New(Options{Client: world, Finder: wanted.New(wanted.Options{})}).ensureBuild(t.Context(), s)
	require.EqualError(t, err, "the CustomResourceDefinition of MachineOSBuilds is of an earlier version and has no spec.decision; "+
		"apply the CustomResourceDefinitions of this version")
	assert.Equal(t, fault.Waiting, fault.ClassOf(err))
	assert.Nil(t, s.build)
	var left mcfgv1.MachineOSBuildList
	require.NoError(t, world.List(t.Context(), &left))
	assert.Empty(t, left.Items, "nothing is left behind that someone has to delete")
}
