package nodes

import (
	"maps"
	"slices"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/lru"
)

// selectors are parsed ones by their text: reconciles ask for those of all pools, and holding names
// of labels against their grammar takes far longer than selecting.
var selectors = lru.New(4096)

// Selector is what a pool selects by. It is metav1.LabelSelectorAsSelector, which remembers.
func Selector(of *metav1.LabelSelector) (labels.Selector, error) {
	text := textOf(of)
	if known, has := selectors.Get(text); has {
		return known.(labels.Selector), nil //nolint:forcetypeassert // nothing else is in there
	}
	selector, err := metav1.LabelSelectorAsSelector(of)
	if err == nil {
		selectors.Add(text, selector)
	}
	return selector, err //nolint:wrapcheck // as the function that it stands for
}

// textOf differs for selectors that differ. Their own String asks for a tenth of all the memory
// that a controller of many pools does.
func textOf(of *metav1.LabelSelector) string {
	if of == nil {
		return "none"
	}
	var out []byte
	for _, key := range slices.Sorted(maps.Keys(of.MatchLabels)) {
		out = strconv.AppendQuote(strconv.AppendQuote(out, key), of.MatchLabels[key])
	}
	for _, e := range of.MatchExpressions {
		out = strconv.AppendQuote(strconv.AppendQuote(append(out, ','), e.Key), string(e.Operator))
		for _, value := range e.Values {
			out = strconv.AppendQuote(out, value)
		}
	}
	return string(out)
}
