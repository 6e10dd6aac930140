package selected_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/internal/apitest"
	"github.com/layerwright/layerwright/internal/selected"
)

func TestConfigsOfAPool(t *testing.T) {
	t.Parallel()
	config := func(name string, labels map[string]string) client.Object {
		return &mcfgv1.MachineConfig{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}
	}
	role := func(name string) map[string]string { return map[string]string{mcfgv1.LabelRole: name} }
	world := fake.NewClientBuilder().WithScheme(apitest.Scheme(t)).WithIndex(&mcfgv1.MachineConfig{}, selected.FieldRole, selected.RoleOf).WithObjects(
		config("a-worker", role("worker")), config("b-infra", role("infra")), config("c-other", role("other")),
		config("d-old", map[string]string{mcfgv1.LabelRole: "worker", "old": "true"}), config("e-none", map[string]string{"team": "x"}),
	).Build()
	in := func(key string, operator metav1.LabelSelectorOperator, values ...string) metav1.LabelSelectorRequirement {
		return metav1.LabelSelectorRequirement{Key: key, Operator: operator, Values: values}
	}
	for name, c := range map[string]struct {
		selector *metav1.LabelSelector
		want     []string
	}{
		"none":                       {nil, nil},
		"an empty one":               {&metav1.LabelSelector{}, nil},
		"one that can't be read":     {&metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{in(mcfgv1.LabelRole, "Like", "a")}}, nil},
		"one role":                   {&metav1.LabelSelector{MatchLabels: role("infra")}, []string{"b-infra"}},
		"a role that is named twice": {&metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{in(mcfgv1.LabelRole, metav1.LabelSelectorOpIn, "worker", "infra", "worker")}}, []string{"a-worker", "b-infra", "d-old"}},
		"a role and more": {&metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
			in("old", metav1.LabelSelectorOpDoesNotExist), in(mcfgv1.LabelRole, metav1.LabelSelectorOpIn, "worker", "infra"),
		}}, []string{"a-worker", "b-infra"}},
		"all but one role": {&metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{in(mcfgv1.LabelRole, metav1.LabelSelectorOpNotIn, "worker")}}, []string{"b-infra", "c-other", "e-none"}},
		"another label":    {&metav1.LabelSelector{MatchLabels: map[string]string{"team": "x"}}, []string{"e-none"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pool := &mcfgv1.MachineConfigPool{Spec: mcfgv1.MachineConfigPoolSpec{MachineConfigSelector: c.selector}}
			live, err := selected.Configs(t.Context(), world, pool, func(*mcfgv1.MachineConfig) bool { return false })
			require.NoError(t, err)
			cached, err := selected.Cached(t.Context(), world, pool)
			require.NoError(t, err)
			indexed, err := selected.Indexed(t.Context(), world, pool)
			require.NoError(t, err)
			for _, found := range [][]*mcfgv1.MachineConfig{live, cached, indexed} {
				var names []string
				for _, mc := range found {
					names = append(names, mc.Name)
				}
				slices.Sort(names)
				assert.Equal(t, c.want, names)
			}
		})
	}
}

// TestPages has an API server that gives one MachineConfig at a time.
func TestPages(t *testing.T) {
	t.Parallel()
	all := []string{"a", "rendered-b", "c"}
	var selectors []string
	var limits []int64
	live := interceptor.NewClient(fake.NewClientBuilder().WithScheme(apitest.Scheme(t)).Build(), interceptor.Funcs{
		List: func(_ context.Context, _ client.WithWatch, l client.ObjectList, options ...client.ListOption) error {
			asked := (&client.ListOptions{}).ApplyOptions(options)
			selectors, limits = append(selectors, asked.AsListOptions().LabelSelector), append(limits, asked.Limit)
			at := 0
			if asked.Continue != "" {
				at = slices.Index(all, asked.Continue)
			}
			out, isConfigs := l.(*mcfgv1.MachineConfigList)
			require.True(t, isConfigs)
			out.Items = []mcfgv1.MachineConfig{{ObjectMeta: metav1.ObjectMeta{Name: all[at]}}}
			if at+1 < len(all) {
				out.Continue = all[at+1]
			}
			return nil
		},
	})
	pool := &mcfgv1.MachineConfigPool{}
	isRendered := func(mc *mcfgv1.MachineConfig) bool { return strings.HasPrefix(mc.Name, "rendered-") }
	found, err := selected.Configs(t.Context(), live, pool, isRendered)
	require.NoError(t, err)
	assert.Empty(t, found)
	assert.Empty(t, selectors, "a pool that selects nothing asks for nothing, and not for all there are")

	pool.Spec.MachineConfigSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}
	found, err = selected.Configs(t.Context(), live, pool, isRendered)
	require.NoError(t, err)
	require.Len(t, found, 2)
	assert.Equal(t, []string{"a", "c"}, []string{found[0].Name, found[1].Name})
	assert.Equal(t, []string{"a=b", "a=b", "a=b"}, selectors)
	assert.Equal(t, []int64{100, 100, 100}, limits)

	limits = nil
	pool.Spec.MachineConfigSelector = &metav1.LabelSelector{MatchLabels: map[string]string{mcfgv1.LabelRole: "worker"}}
	_, err = selected.Configs(t.Context(), live, pool, isRendered)
	require.NoError(t, err)
	assert.Zero(t, limits[0], "who names roles matches no rendered one, and asks for no pages")
}

func TestVersion(t *testing.T) {
	t.Parallel()
	a, b := &mcfgv1.MachineConfig{}, &mcfgv1.MachineConfig{}
	a.Name, b.Name, a.ResourceVersion, b.ResourceVersion = "a", "b", "1", "1"
	of := func(configs ...*mcfgv1.MachineConfig) string { return selected.Version(configs) }
	assert.Equal(t, of(a, b), of(a, b, nil))
	assert.NotEqual(t, of(a), of(a, b))
	before := of(a)
	a.ResourceVersion = "2"
	assert.NotEqual(t, before, of(a))
}
