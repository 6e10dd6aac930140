package kargs_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/layerwright/layerwright/machineconfigs/cmdline"
	"github.com/layerwright/layerwright/rollout/agent/kargs"
)

// args are arguments of which those with a plus need only exist, and those with a minus must not.
func args(text string) cmdline.Arguments {
	var exist, unwanted, run []string
	for _, word := range cmdline.Split(text) {
		switch word[0] {
		case '+':
			exist = append(exist, word[1:])
		case '-':
			unwanted = append(unwanted, word[1:])
		default:
			run = append(run, word)
		}
	}
	return cmdline.Join(exist, unwanted, run)
}

func TestPlan(t *testing.T) {
	t.Parallel()
	const huge = "default_hugepagesz=1G hugepagesz=1G hugepages=16 hugepagesz=2M hugepages=16"
	tests := map[string]struct {
		line string
		// steps are what is wanted, and the line that comes of it.
		steps [][2]string
	}{
		"duplicates arrive and go in order": {"root=x ro", [][2]string{
			{huge + " y=0 z=4 y=1 z=4", "root=x ro " + huge + " y=0 z=4 y=1 z=4"}, {huge, "root=x ro " + huge}, {"", "root=x ro"},
		}},
		"a swapped pair is applied as a run": {"ro", [][2]string{{"a=1 a=2 b", "ro a=1 a=2 b"}, {"a=2 a=1 b", "ro a=2 a=1 b"}}},
		"a changed value keeps its place": {"ro", [][2]string{
			{"hugepagesz=1G hugepages=4 quiet", "ro hugepagesz=1G hugepages=4 quiet"}, {"hugepagesz=1G hugepages=8 quiet", "ro hugepagesz=1G hugepages=8 quiet"},
		}},
		"quoted words stay whole": {`ro x="a +p"`, [][2]string{
			{`dyndbg="file drivers/usb/* +p" kvm.dyndbg="file virt/kvm/* +p"`, `ro x="a +p" dyndbg="file drivers/usb/* +p" kvm.dyndbg="file virt/kvm/* +p"`}, {"", `ro x="a +p"`},
		}},
		"what must not exist comes back": {"ro mitigations=auto,nosmt rw", [][2]string{
			{"+mitigations=off -mitigations=auto,nosmt", "ro rw mitigations=off"},
			{"+mitigations=off", "ro rw mitigations=auto,nosmt mitigations=off"},
			{"", "ro rw mitigations=auto,nosmt"},
		}},
		"what must exist is there once":         {"ro quiet rw", [][2]string{{"+quiet +a", "ro quiet rw a"}, {"", "ro quiet rw"}}},
		"what the host had stays":               {"ro quiet rw", [][2]string{{"quiet", "ro quiet rw"}, {"", "ro quiet rw"}}},
		"what the host had stays in its place":  {"ro quiet rw", [][2]string{{"quiet nosmt", "ro quiet rw quiet nosmt"}, {"nosmt", "ro quiet rw nosmt"}, {"", "ro quiet rw"}}},
		"a run that others overrule is added":   {"console=tty0 console=ttyS0", [][2]string{{"console=tty0", "console=tty0 console=ttyS0 console=tty0"}}},
		"a run that the host has otherwise":     {"hugepages=16 ro", [][2]string{{"hugepagesz=2M hugepages=16", "hugepages=16 ro hugepagesz=2M hugepages=16"}}},
		"what is ours and then must not exist":  {"ro", [][2]string{{"a b", "ro a b"}, {"b -a", "ro b"}, {"", "ro"}}},
		"nothing is wanted of a host":           {"ro", [][2]string{{"", "ro"}}},
		"what is wanted may be all that it has": {"", [][2]string{{"a a", "a a"}, {"", ""}}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			record, line, current := kargs.Record{}, cmdline.Split(tt.line), cmdline.Arguments{}
			for _, step := range tt.steps {
				want := args(step[0])
				line = record.Plan(line, current, want)
				require.Equal(t, step[1], strings.Join(line, " "), "wanting %q", step[0])
				require.Equal(t, line, record.Plan(line, current, want), "it stays")
				current = cmdline.Arguments{} // the MachineConfig is deleted
			}
		})
	}
}

// TestPlanWithoutRecord has a host whose agent wrote none, and left out what was there already.
func TestPlanWithoutRecord(t *testing.T) {
	t.Parallel()
	record, line := kargs.Record{}, cmdline.Split("ro hugepagesz=1G hugepages=16 hugepagesz=2M quiet")
	current := args("hugepagesz=1G hugepages=16 hugepagesz=2M hugepages=16")
	line = record.Plan(line, current, current)
	require.Equal(t, "ro quiet hugepagesz=1G hugepages=16 hugepagesz=2M hugepages=16", strings.Join(line, " "))
	require.Equal(t, "ro quiet", strings.Join(record.Plan(line, current, args("")), " "))
}

func TestPlanOfLinesThatOthersChange(t *testing.T) {
	t.Parallel()
	record, want := kargs.Record{}, args("a=1 b")
	line := record.Plan([]string{"ro"}, cmdline.Arguments{}, want)
	byHand := append(slices.Clone(line), "own")
	require.Equal(t, byHand, record.Plan(byHand, cmdline.Arguments{}, want), "it has what it should")
	require.Equal(t, []string{"ro", "own"}, record.Plan(byHand, cmdline.Arguments{}, args("")))

	record = kargs.Record{}
	line = record.Plan([]string{"ro"}, cmdline.Arguments{}, want)
	require.Equal(t, []string{"ro", "a=1", "b"}, line)
	require.Equal(t, []string{"ro", "a=1", "b"}, record.Plan([]string{"ro"}, cmdline.Arguments{}, want), "the node came back without them")
}

// TestPlanOfAnyHistory has a host that goes back to a command line of before, at random.
func TestPlanOfAnyHistory(t *testing.T) {
	t.Parallel()
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 1)) //nolint:gosec // a seed makes it repeatable
		words := func(most int) (out []string) {
			for range r.IntN(most + 1) {
				out = append(out, fmt.Sprintf("%c=%d", "abc"[r.IntN(3)], r.IntN(2)))
			}
			return out
		}
		host := append([]string{"root=x"}, words(4)...)
		record, line, lines := kargs.Record{}, host, [][]string{host}
		for range 12 {
			if r.IntN(4) == 0 {
				line = lines[r.IntN(len(lines))]
			}
			want := cmdline.Join(words(2), nil, words(5))
			line = record.Plan(line, cmdline.Arguments{}, want)
			lines = append(lines, line)
			about := fmt.Sprintf("seed %d: host %v, wanted %v, line %v", seed, host, want, line)
			require.Equal(t, host, line[:len(host)], about)
			rest := line[len(host):]
			for _, word := range want.Exist {
				require.Contains(t, line, word, about)
			}
			exist := without(want.Exist, host)
			if !slices.Equal(rest, slices.Concat(exist, want.Run)) {
				require.ElementsMatch(t, exist, rest, about)
				require.Contains(t, " "+strings.Join(host, " ")+" ", " "+strings.Join(want.Run, " ")+" ", about)
			}
			require.Equal(t, line, record.Plan(line, cmdline.Arguments{}, want), about)
			record = reloaded(t, record)
		}
		require.Equal(t, host, record.Plan(line, cmdline.Arguments{}, cmdline.Arguments{}), "seed %d: what the host had", seed)
	}
}

// TestWhatIsUnwantedComesBack takes and gives back, at random.
func TestWhatIsUnwantedComesBack(t *testing.T) {
	t.Parallel()
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 2)) //nolint:gosec // a seed makes it repeatable
		host := []string{"root=x", "a", "b", "a", "c"}
		record, line := kargs.Record{}, host
		for range 6 {
			want := cmdline.Arguments{Run: []string{"d", "d"}, Unwanted: []string{string("abc"[r.IntN(3)])}}
			line = record.Plan(line, cmdline.Arguments{}, want)
			require.NotContains(t, line, want.Unwanted[0], "seed %d", seed)
			require.Equal(t, want.Run, line[len(line)-2:], "seed %d", seed)
		}
		line = record.Plan(line, cmdline.Arguments{}, cmdline.Arguments{})
		require.ElementsMatch(t, host, line, "seed %d", seed)
	}
}

func TestIsNeeded(t *testing.T) {
	t.Parallel()
	var record kargs.Record
	require.False(t, record.IsNeeded(args(""), args("")), "hosts without rpm-ostree are not asked")
	require.True(t, record.IsNeeded(args("a"), args("")))
	require.True(t, record.IsNeeded(args(""), args("-a")))
	record.Plan([]string{"ro"}, args(""), args("a"))
	require.True(t, record.IsNeeded(args(""), args("")))
}

func without(list, other []string) (out []string) {
	for _, word := range list {
		if !slices.Contains(other, word) {
			out = append(out, word)
		}
	}
	return out
}

func reloaded(t *testing.T, record kargs.Record) (out kargs.Record) {
	t.Helper()
	text, err := json.Marshal(record)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, &out))
	return out
}
