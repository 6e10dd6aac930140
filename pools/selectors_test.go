package pools

import (
	"testing"

	"github.com/stretchr/testify/assert"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
)

func TestConfigSelectors(t *testing.T) {
	t.Parallel()
	s := configSelectors{byPool: map[string]configSelector{}}
	pool := newPool("infra")
	pool.UID, pool.Generation = types.UID("one"), 1
	selects := func(key, value string) bool { return s.of(pool).Matches(labels.Set{key: value}) }
	pool.Spec.MachineConfigSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"a": "1"}}
	assert.True(t, selects("a", "1"))

	pool.Spec.MachineConfigSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"a": "2"}}
	assert.True(t, selects("a", "1"), "what has been parsed stays")
	pool.Generation = 2
	assert.False(t, selects("a", "1"))
	assert.True(t, selects("a", "2"))

	pool.Spec.MachineConfigSelector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Like"}}}
	pool.UID = "two"
	assert.False(t, selects("a", "2"), "a selector that can't be read")

	s.forget("infra")
	assert.Empty(t, s.byPool)
}
