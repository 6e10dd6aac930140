//go:build e2e

package e2e

import (
	"context"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/test/fixtures"
)

const (
	nine = string(fixtures.RHEL9)
	ten  = string(fixtures.RHEL10)
)

// fixtureStreams pushes the streams of the fixtures, and gives them by name.
func fixtureStreams(t *testing.T) map[string]mcfgv1.OSImageStreamImages {
	t.Helper()
	references, err := shared(t).PushFixtures(t.Context(), fixtures.Tiny, nil, t.Logf)
	require.NoError(t, err)
	all := map[string]mcfgv1.OSImageStreamImages{}
	for _, stream := range fixtures.Streams() {
		all[string(stream)] = mcfgv1.OSImageStreamImages{
			Name: string(stream), OSImage: mcfgv1.ImageReferenceFormat(references.OS[stream].String()),
			OSExtensionsImage: mcfgv1.ImageReferenceFormat(references.Extensions[stream].String()),
		}
	}
	return all
}

// offer makes these the streams of the cluster, as an administrator does, and waits until the
// controller has taken them. With the end of the test there are none: a policy keeps the object
// itself.
func (b *builds) offer(t *testing.T, byDefault string, images ...mcfgv1.OSImageStreamImages) *mcfgv1.OSImageStream {
	t.Helper()
	ctx := t.Context()
	object := &mcfgv1.OSImageStream{ObjectMeta: metav1.ObjectMeta{Name: mcfgv1.OSImageStreamName}}
	object.Spec.DefaultStream, object.Spec.Images = byDefault, images
	if err := b.Create(ctx, object); !apierrors.IsAlreadyExists(err) {
		require.NoError(t, err)
	}
	t.Cleanup(func() {
		b.changeStreams(context.WithoutCancel(t.Context()), t, func(spec *mcfgv1.OSImageStreamSpec) { spec.Images = nil })
	})
	names := make([]string, len(images))
	for i := range images {
		names[i] = images[i].Name
	}
	slices.Sort(names)
	// A new default has to be available already, and one that goes has to be the default no more.
	if b.streams(ctx, t).Spec.DefaultStream != byDefault && !slices.Contains(available(b.streams(ctx, t)), byDefault) {
		b.changeStreams(ctx, t, func(spec *mcfgv1.OSImageStreamSpec) { spec.Images = images })
		require.EventuallyWithT(t, func(t *assert.CollectT) {
			assert.Contains(t, available(b.streams(ctx, t)), byDefault)
		}, buildPatience, buildTick)
	}
	b.changeStreams(ctx, t, func(spec *mcfgv1.OSImageStreamSpec) { spec.DefaultStream, spec.Images = byDefault, images })
	require.EventuallyWithT(t, func(t *assert.CollectT) {
		object = b.streams(ctx, t)
		assert.Equal(t, names, available(object))
		assert.Equal(t, byDefault, object.Status.DefaultStream)
		assert.Equal(t, object.Generation, object.Status.ObservedGeneration)
	}, buildPatience, buildTick)
	return object
}

func available(object *mcfgv1.OSImageStream) []string {
	var names []string
	for i := range object.Status.AvailableStreams {
		names = append(names, object.Status.AvailableStreams[i].Name)
	}
	return names
}

func (b *builds) streams(ctx context.Context, t require.TestingT) *mcfgv1.OSImageStream {
	object := &mcfgv1.OSImageStream{}
	require.NoError(t, b.Get(ctx, client.ObjectKey{Name: mcfgv1.OSImageStreamName}, object))
	return object
}

func (b *builds) changeStreams(ctx context.Context, t *testing.T, change func(*mcfgv1.OSImageStreamSpec)) {
	t.Helper()
	require.EventuallyWithT(t, func(t *assert.CollectT) {
		object := b.streams(ctx, t)
		change(&object.Spec)
		require.NoError(t, b.Update(ctx, object))
	}, buildPatience, buildTick)
}
