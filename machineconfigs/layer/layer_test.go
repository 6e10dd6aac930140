package layer_test

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestSmoke(t *testing.T) {
	t.Parallel()
	all := build(t, files(t, `{"path":"/etc/x","contents":{"source":"data:,hello"}},{"path":"/bin/tool","mode":493,"contents":{"source":"data:,x"}}`), ostree())
	require.Equal(t, []string{"etc/x", "usr/bin/tool"}, changes(all))
}
