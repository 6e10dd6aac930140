package nodes

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/lru"
)

// selectors are parsed ones by their text: reconciles ask for those of all pools, and holding names
// of labels against their grammar takes far longer than selecting.
var selectors = lru.New(4096)

// Selector is what a pool selects by. It is metav1.LabelSelectorAsSelector, which remembers.
func Selector(of *metav1.LabelSelector) (labels.Selector, error) {
	text := of.String()
	if known, has := selectors.Get(text); has {
		return known.(labels.Selector), nil //nolint:forcetypeassert // nothing else is in there
	}
	selector, err := metav1.LabelSelectorAsSelector(of)
	if err == nil {
		selectors.Add(text, selector)
	}
	return selector, err //nolint:wrapcheck // as the function that it stands for
}
