package retention_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientevents "k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/builder/retention"
	"github.com/layerwright/layerwright/images"
	"github.com/layerwright/layerwright/internal/apitest"
	"github.com/layerwright/layerwright/internal/events"
	"github.com/layerwright/layerwright/internal/registry"
	"github.com/layerwright/layerwright/internal/registry/credentials"
	"github.com/layerwright/layerwright/internal/registry/registrytest"
)

// TestRemovalsOfLargeClusters removes the images of 185 MachineOSConfigs that were deleted at once,
// while the controller of pools follows.
func TestRemovalsOfLargeClusters(t *testing.T) {
	t.Parallel()
	const many = 185
	server := registrytest.New(t, nil)
	c := fake.NewClientBuilder().WithScheme(apitest.Scheme(t)).WithStatusSubresource(&mcfgv1.MachineConfigPool{}).Build()
	require.NoError(t, c.Create(t.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "os", Name: "push"}, Type: corev1.SecretTypeDockerConfigJson,
		Data: map[string][]byte{corev1.DockerConfigJsonKey: fmt.Appendf(nil, `{"auths":{%q:{"username":"a","password":"b"}}}`, server.Host)},
	}))
	left, pushed := map[string]*mcfgv1.MachineOSBuild{}, []string{}
	for i := range many {
		pool := fmt.Sprintf("pool-%d", i)
		image := server.Push(t, "host/"+pool+":latest", imageOf(t, pool))
		pushed = append(pushed, image)
		p := &mcfgv1.MachineConfigPool{ObjectMeta: metav1.ObjectMeta{Name: pool}}
		p.Status.OSImagePullSpec = mcfgv1.ImageDigestFormat(image)
		build := &mcfgv1.MachineOSBuild{
			ObjectMeta: metav1.ObjectMeta{Name: pool + "-1", Annotations: map[string]string{mcfgv1.AnnotationRenderedImagePushSecret: "push"}},
			Spec: mcfgv1.MachineOSBuildSpec{
				MachineOSConfig: mcfgv1.MachineOSConfigReference{Name: pool}, RenderedImagePushSpec: mcfgv1.ImageTagFormat(server.Host + "/host/" + pool + ":latest"),
			},
		}
		build.Status.DigestedImagePushSpec = mcfgv1.ImageDigestFormat(image)
		require.NoError(t, c.Create(t.Context(), p))
		left[pool] = build
	}
	r := remover(c)
	for round := 0; len(left) > 0; round++ {
		require.Less(t, round, 10)
		for pool, build := range left {
			_, err := r.Remove(t.Context(), build)
			if err == nil {
				delete(left, pool)
				continue
			}
			require.ErrorIs(t, err, retention.ErrPoolNames)
			if len(pool)%3 == round%3 { // some are slower than others
				p := &mcfgv1.MachineConfigPool{ObjectMeta: metav1.ObjectMeta{Name: pool}}
				require.NoError(t, c.Status().Patch(t.Context(), p, client.RawPatch("application/merge-patch+json", []byte(`{"status":{"osImagePullSpec":null}}`))))
			}
		}
	}
	for _, image := range pushed {
		ref, err := name.ParseReference(image)
		require.NoError(t, err)
		_, err = remote.Head(ref)
		assert.Error(t, err, "%s is still there", ref)
	}
}

func remover(c client.Client) *retention.Remover {
	connect := func(keychain authn.Keychain) *registry.Client {
		return registry.New(registry.Options{Keychain: keychain, Backoff: remote.Backoff{Duration: time.Millisecond, Steps: 2}})
	}
	now, publisher := clocktesting.NewFakePassiveClock(time.Unix(0, 0)), events.NewPublisher(clientevents.NewFakeRecorder(1000))
	return retention.New(retention.Options{
		Client: c, Reader: c, Clock: now, Events: publisher,
		Credentials: &credentials.Source{Reader: c, Namespace: "os", Connect: connect},
		Images: images.New(images.Options{
			Client: c, Reader: c, Clock: now, Events: publisher, Credentials: &credentials.Source{Reader: c, Namespace: "os", Connect: connect},
		}),
	})
}

func imageOf(t *testing.T, content string) v1.Image {
	t.Helper()
	image, err := mutate.AppendLayers(empty.Image, registrytest.Layer(t, map[string]string{"a": content}))
	require.NoError(t, err)
	return image
}
