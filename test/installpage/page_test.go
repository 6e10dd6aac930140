package installpage

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestRead(t *testing.T) {
	t.Parallel()
	page := Read("# A\n```console\n$ one 'a b'\nwhat it prints\n$ two\n```\n## B ##\nThen `three`:\n```yaml\n# pool.yaml\n# of workers\nkind: Pool\n```\n" +
		"```yaml\nspec: {}\n```\n```console\n# as root\n$ four\n```\n")
	assert.Equal(t, []Command{{"A", "one 'a b'"}, {"A", "two"}, {"B ##", "four"}}, page.Commands)
	assert.Equal(t, map[string]string{"pool.yaml": "# of workers\nkind: Pool\n"}, page.Files)
	assert.Equal(t, []Command{{"B ##", "four"}}, page.In("B ##"))
	assert.Empty(t, page.In("C"))
}
