package words_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/layerwright/layerwright/rollout/words"
)

func TestReadLineIsTheOtherWayRound(t *testing.T) {
	t.Parallel()
	nodes := []string{"a", "b", "c.example.com", "d"}
	isNode := func(name string) bool { return slices.Contains(nodes, name) }
	var p words.Progress
	for _, name := range nodes {
		p.Holds = append(p.Holds, words.Hold{Node: name, Reason: "waits for a slot: a is rebooting, b: is not"})
	}
	p.Holds = append(p.Holds, words.Hold{Node: "d", Reason: words.NoAgent})
	p.Total = len(nodes)
	lines := p.WaitingFor()
	require.Equal(t, words.Line{Nodes: nodes[:3], More: 1, Reason: p.Holds[0].Reason}, words.ReadLine(lines[0], isNode))
	require.Equal(t, words.Line{Nodes: nodes[3:], Reason: words.NoAgent}, words.ReadLine(lines[1], isNode))

	for _, text := range []string{
		"", "check Ready: it is in quarantine", "the pool has no configuration yet", "and 3 more reasons", "a", "nodes a, x and 3 more: is not Ready",
		"$(reboot): is not Ready", "a, b and 99999999999999999999 more: x",
	} {
		require.Equal(t, words.Line{Reason: text}, words.ReadLine(text, isNode), "it is about all nodes")
	}
}

func TestHasText(t *testing.T) {
	t.Parallel()
	require.True(t, words.HasText("is changing, and can't go on: no space", words.NoAgent, words.CannotGoOn))
	require.True(t, words.HasText("is changing, and can't go on: no space", words.Changing))
	require.False(t, words.HasText("its reason: is changing", words.Changing), "what others wrote later in the text")
}
