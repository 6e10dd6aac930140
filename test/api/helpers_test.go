package api

import (
	"context"
	"maps"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/layerwright/layerwright/test/install"
)

func contextWithoutCancel(t *testing.T) context.Context {
	t.Helper()
	return context.WithoutCancel(t.Context())
}

// decode reads the one object of a text.
func decode(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	objects, err := install.Decode([]byte(text))
	require.NoError(t, err, text)
	require.Len(t, objects, 1, text)
	return objects[0]
}

// merge applies a merge patch (RFC 7386): objects are merged, anything else replaces, null removes.
func merge(target, patch map[string]any) map[string]any {
	merged := maps.Clone(target)
	if merged == nil {
		merged = map[string]any{}
	}
	for key, value := range patch {
		switch value := value.(type) {
		case nil:
			delete(merged, key)
		case map[string]any:
			before, _ := merged[key].(map[string]any)
			merged[key] = merge(before, value)
		default:
			merged[key] = value
		}
	}
	return merged
}
