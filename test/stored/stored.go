package stored

import (
	"embed"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

//go:embed *.yaml
var files embed.FS

// Objects are those of each version. A field that is not known any more fails the test.
func Objects(tb testing.TB, scheme *runtime.Scheme) map[string][]client.Object {
	tb.Helper()
	entries, err := files.ReadDir(".")
	require.NoError(tb, err)
	decoder := serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDeserializer()
	versions := map[string][]client.Object{}
	for _, entry := range entries {
		text, err := files.ReadFile(entry.Name())
		require.NoError(tb, err)
		version := strings.TrimSuffix(entry.Name(), ".yaml")
		for document := range strings.SplitSeq(string(text), "\n---\n") {
			object, _, err := decoder.Decode([]byte(document), nil, nil)
			require.NoError(tb, err, "%s:\n%s", version, document)
			versions[version] = append(versions[version], object.(client.Object))
		}
	}
	return versions
}
