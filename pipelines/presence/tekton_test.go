package presence

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/builder/pods"
	"github.com/layerwright/layerwright/internal/apitest"
	"github.com/layerwright/layerwright/internal/fault"
)

func TestWhichVersionsAreSupported(t *testing.T) {
	t.Parallel()
	for _, release := range []string{"v1.9.0", "v1.15.0", "v2.0.0", "devel", ""} {
		require.NoError(t, checkRelease(release), release)
	}
	for _, release := range []string{"v0.44.0", "v1.8.3"} {
		assert.ErrorContains(t, checkRelease(release), "not supported", release)
	}
}

// TestTheDefinitionTells plays Tekton's definition coming and going.
func TestTheDefinitionTells(t *testing.T) {
	t.Parallel()
	told := 0
	tekton := New(nil, apitest.Scheme(t), nil, "layerwright", pods.Component)
	tekton.Notify(func(o client.Object) {
		assert.Nil(t, o)
		told++
	})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	assert.False(t, tekton.detect(ctx, fake.NewClientBuilder().WithScheme(apitest.Scheme(t)).Build()), "the definition tells when it comes")
	assert.Equal(t, 1, told)
	_, err := tekton.Reader(ctx)
	require.True(t, fault.IsWaiting(err))
	assert.Equal(t, mcfgv1.ReasonKindNotInstalled, fault.Reason(err))
	assert.ErrorContains(t, err, "Tekton is not installed")
}
