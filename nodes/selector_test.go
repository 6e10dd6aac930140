package nodes_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/layerwright/layerwright/nodes"
)

func TestSelector(t *testing.T) {
	t.Parallel()
	of := &metav1.LabelSelector{MatchLabels: map[string]string{"a": "1"}}
	for range 2 {
		selector, err := nodes.Selector(of)
		require.NoError(t, err)
		assert.True(t, selector.Matches(labels.Set{"a": "1"}))
		assert.False(t, selector.Matches(labels.Set{"a": "2"}))
	}
	of.MatchLabels["a"] = "2"
	selector, err := nodes.Selector(of)
	require.NoError(t, err)
	assert.True(t, selector.Matches(labels.Set{"a": "2"}), "another one in the same place")
	selector, err = nodes.Selector(nil)
	require.NoError(t, err)
	assert.False(t, selector.Matches(labels.Set{}), "none matches nothing")
	for range 2 {
		_, err = nodes.Selector(&metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Like"}}})
		require.Error(t, err)
	}
}

// TestSelectorsOfOneText has selectors whose words are the same, in other places.
func TestSelectorsOfOneText(t *testing.T) {
	t.Parallel()
	in := func(key string, values ...string) metav1.LabelSelectorRequirement {
		return metav1.LabelSelectorRequirement{Key: key, Operator: metav1.LabelSelectorOpIn, Values: values}
	}
	for name, c := range map[string]struct {
		of      *metav1.LabelSelector
		yes, no labels.Set
	}{
		"labels":                 {&metav1.LabelSelector{MatchLabels: map[string]string{"a": "In"}}, labels.Set{"a": "In"}, labels.Set{"a": "b"}},
		"an expression":          {&metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{in("a", "b", "c")}}, labels.Set{"a": "c"}, labels.Set{"a": "In"}},
		"two expressions":        {&metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{in("a", "b"), in("c", "d")}}, labels.Set{"a": "b", "c": "d"}, labels.Set{"a": "b"}},
		"one of more values":     {&metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{in("a", "b", "c", "d")}}, labels.Set{"a": "d"}, labels.Set{"a": "b,c"}},
		"labels and expressions": {&metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}, MatchExpressions: []metav1.LabelSelectorRequirement{in("c", "d")}}, labels.Set{"a": "b", "c": "d"}, labels.Set{"a": "b"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for range 2 {
				selector, err := nodes.Selector(c.of)
				require.NoError(t, err)
				assert.True(t, selector.Matches(c.yes))
				assert.False(t, selector.Matches(c.no))
			}
		})
	}
}
