package mirrorsets_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/layerwright/layerwright/internal/apitest"
	"github.com/layerwright/layerwright/internal/fault"
	"github.com/layerwright/layerwright/internal/registry/mirrors"
	"github.com/layerwright/layerwright/internal/registry/mirrorsets"
)

var (
	digestSet     = schema.GroupVersionKind{Group: "config.openshift.io", Version: "v1", Kind: "ImageDigestMirrorSet"}
	tagSet        = schema.GroupVersionKind{Group: "config.openshift.io", Version: "v1", Kind: "ImageTagMirrorSet"}
	contentPolicy = schema.GroupVersionKind{Group: "operator.openshift.io", Version: "v1alpha1", Kind: "ImageContentSourcePolicy"}
)

// set is an object with mirrors.
func set(kind schema.GroupVersionKind, field string, entries ...any) *unstructured.Unstructured {
	object := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{field: entries}}}
	object.SetGroupVersionKind(kind)
	object.SetName("mirrors")
	return object
}

func entry(source string, places ...any) map[string]any {
	return map[string]any{"source": source, "mirrors": places}
}

func configMap(text string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "os", Name: "registry-mirrors"}, Data: map[string]string{"mirrors.yaml": text}}
}

func reader(t *testing.T, c client.Reader, kinds ...schema.GroupVersionKind) *mirrorsets.Reader {
	t.Helper()
	mapper := meta.NewDefaultRESTMapper(nil)
	for _, kind := range kinds {
		mapper.Add(kind, meta.RESTScopeRoot)
	}
	r, err := mirrorsets.New(mapper, c, c, "os")
	require.NoError(t, err)
	require.Len(t, r.Watched(), len(kinds))
	return r
}

func cluster(t *testing.T, objects ...client.Object) client.WithWatch {
	t.Helper()
	return fake.NewClientBuilder().WithScheme(apitest.Scheme(t)).WithObjects(objects...).Build()
}

func TestRulesOfAllKinds(t *testing.T) {
	t.Parallel()
	closed := entry("quay.io/a", "here/a", "there/a")
	closed["mirrorSourcePolicy"] = "NeverContactSource"
	c := cluster(
		t, set(digestSet, "imageDigestMirrors", closed, map[string]any{"mirrors": []any{"of nothing"}}, "odd"),
		set(tagSet, "imageTagMirrors", entry("quay.io/a", "tags/a")), set(contentPolicy, "repositoryDigestMirrors", entry("quay.io/old", "here/old")),
		configMap("- {source: docker.io, mirrors: [here/hub]}\n"),
	)
	rules, err := reader(t, c, digestSet, tagSet, contentPolicy).Rules(t.Context())
	require.NoError(t, err)
	assert.Equal(t, mirrors.Rules{
		{Prefix: "quay.io/a", Blocked: true, Mirrors: []mirrors.Mirror{
			{Location: "here/a", Use: mirrors.DigestsOnly}, {Location: "there/a", Use: mirrors.DigestsOnly}, {Location: "tags/a", Use: mirrors.TagsOnly},
		}},
		{Prefix: "quay.io/old", Mirrors: []mirrors.Mirror{{Location: "here/old", Use: mirrors.DigestsOnly}}},
		{Prefix: "docker.io", Mirrors: []mirrors.Mirror{{Location: "here/hub", Use: mirrors.DigestsOnly}}},
	}, rules)
}

// TestNoConfigMapTakesNoRequest has each image ask for mirrors several times.
func TestNoConfigMapTakesNoRequest(t *testing.T) {
	t.Parallel()
	c := cluster(t)
	asked := 0
	live := interceptor.NewClient(c, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
			asked++
			return c.Get(ctx, key, object, options...)
		},
	})
	r, err := mirrorsets.New(meta.NewDefaultRESTMapper(nil), c, live, "os")
	require.NoError(t, err)
	rules, err := r.Rules(t.Context())
	require.NoError(t, err)
	assert.Empty(t, rules)
	assert.Zero(t, asked)
	require.NoError(t, c.Create(t.Context(), configMap("- {source: docker.io, mirrors: [here/hub]}\n")))
	rules, err = r.Rules(t.Context())
	require.NoError(t, err)
	assert.Len(t, rules, 1)
	assert.Equal(t, 1, asked)
}

func TestClustersWithoutTheKinds(t *testing.T) {
	t.Parallel()
	c := interceptor.NewClient(cluster(t), interceptor.Funcs{List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error {
		return errors.New("it has no such kind")
	}})
	rules, err := reader(t, c).Rules(t.Context())
	require.NoError(t, err)
	assert.Empty(t, rules)
	_, err = reader(t, c, contentPolicy).Rules(t.Context())
	require.ErrorContains(t, err, "listing ImageContentSourcePolicy: it has no such kind")
}

func TestConfigMapThatCannotBeUsed(t *testing.T) {
	t.Parallel()
	c := cluster(t, configMap("yes"), set(contentPolicy, "repositoryDigestMirrors", entry("quay.io/old", "here/old")))
	rules, err := reader(t, c, contentPolicy).Rules(t.Context())
	require.ErrorContains(t, err, `ConfigMap "registry-mirrors": key "mirrors.yaml": `)
	assert.True(t, fault.IsTerminal(err))
	assert.Len(t, rules, 1, "the others count")
}
