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
