package host

import (
	"context"
	"encoding/binary"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/internal/fault"
	"github.com/layerwright/layerwright/machineconfigs/cmdline"
)

func TestChooseWay(t *testing.T) {
	t.Parallel()
	alone, both := abilities{loaderEntries: true}, abilities{true, true}
	tests := map[string]struct {
		can     abilities
		has     string
		tracked string
		to      string
		by      way
		calls   []string
		says    string
	}{
		"words are set":                         {both, "rw", "", "rw a b", byLoaderEntries, []string{"a b"}, ""},
		"words are changed":                     {alone, "rw a b", "a b", "rw a c", byLoaderEntries, []string{"a c"}, ""},
		"words are swapped":                     {alone, "rw a b", "a b", "rw b a", byLoaderEntries, []string{"b a"}, ""},
		"words are removed":                     {alone, "rw a b", "a b", "rw", byLoaderEntries, []string{""}, ""},
		"a quoted word is one":                  {alone, "rw", "", `rw x="a b"`, byLoaderEntries, []string{`x="a b"`}, ""},
		"values of one name repeat":             {alone, "rw console=tty0", "", "rw console=tty0 console=ttyS0", byLoaderEntries, []string{"console=ttyS0"}, ""},
		"what rpm-ostree had set goes":          {both, "rw a b", "", "rw c", byLoaderEntries, []string{"a b", "c"}, ""},
		"what rpm-ostree had set stays":         {alone, "rw a b", "", "rw a b c", byLoaderEntries, []string{"c"}, ""},
		"what rpm-ostree had set is swapped":    {alone, "rw a b", "", "rw b a", byLoaderEntries, []string{"a", "a"}, ""},
		"what the host was installed with goes": {alone, "rw a=1 quiet", "", "rw quiet a=2", byLoaderEntries, []string{"a=1", "a=2"}, ""},
		"and comes back":                        {alone, "rw quiet a=2", "a=2", "rw quiet a=1", byLoaderEntries, []string{"a=1"}, ""},
		"a stale record does no harm":           {both, "rw a", "a b", "rw c", byLoaderEntries, []string{"c"}, ""},
		"equal words need rpm-ostree":           {both, "rw", "", "rw p=1G n=16 p=2M n=16", byRPMOSTree, nil, ""},
		"also those that bootc takes for equal": {both, "rw", "", "rw a-b=1 a_b=1", byRPMOSTree, nil, ""},
		"equal words of the host need it":       {both, "rw quiet x", "", "rw quiet x quiet", byRPMOSTree, nil, ""},
		"equal words where there is none":       {alone, "rw", "", "rw p=1G n=16 p=2M n=16", 0, nil, "its bootc 1.16 keeps each argument once, and n would be there twice with the same value, and it has no rpm-ostree; change kernelArguments"},
		"without what bootc tracks":             {abilities{rpmOSTree: true}, "rw", "", "rw a", byRPMOSTree, nil, ""},
		"without anything":                      {abilities{}, "rw", "", "rw a", 0, nil, "its bootc 1.16 can't set kernel arguments and it has no rpm-ostree; update the host, or put them into the image: /usr/lib/bootc/kargs.d"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			line := &bootLine{words: cmdline.Split(tt.has), tracked: cmdline.Split(tt.tracked)}
			by, calls, err := chooseWay(tt.can, version{1, 16}, line, cmdline.Split(tt.to))
			if tt.says != "" {
				require.EqualError(t, err, tt.says)
				assert.Equal(t, mcfgv1.ReasonKernelArgumentsUnsupported, fault.Reason(err))
				assert.True(t, IsAboutHost(err))
				return
			}
			require.NoError(t, err)
			var joined []string
			for _, c := range calls {
				joined = append(joined, strings.Join(c, " "))
			}
			assert.Equal(t, tt.by, by)
			assert.Equal(t, tt.calls, joined)
		})
	}
}

// TestOptionsForAnyChange changes a command line at random. What bootc is told either leads there,
// or can't be said, which takes a word that is there twice.
func TestOptionsForAnyChange(t *testing.T) {
	t.Parallel()
	for seed := range uint64(500) {
		r := rand.New(rand.NewPCG(seed, 3)) //nolint:gosec // a seed makes it repeatable
		line := &bootLine{words: []string{"root=x", "rw"}}
		for range 8 {
			var added []string
			for _, i := range r.Perm(5)[:r.IntN(6)] {
				added = append(added, fmt.Sprintf("w%d=%d", i, r.IntN(2)))
			}
			to := slices.Concat([]string{"root=x", "rw"}, added)
			calls, can := optionsFor(line, to)
			require.True(t, can, "seed %d: %v to %v", seed, line, to)
			for _, options := range calls {
				line = &bootLine{words: withOptions(line.words, line.tracked, options), tracked: options}
			}
			require.Equal(t, to, line.words, "seed %d", seed)
			if r.IntN(3) == 0 {
				line.tracked = nil // as after a change by rpm-ostree
			}
		}
		calls, can := optionsFor(line, []string{"root=x", "rw"})
		require.True(t, can)
		require.LessOrEqual(t, len(calls), 2)
	}
}

// staged is what ostree writes of what is staged.
func staged(kargs []string, extra map[string]string) []byte {
	var list, pairs [][]byte
	for _, word := range kargs {
		list = append(list, append([]byte(word), 0))
	}
	for _, key := range slices.Sorted(maps.Keys(extra)) {
		pairs = append(pairs, pairOf(key, append([]byte(extra[key]), 0), 1))
	}
	entries := [][]byte{pairOf("kargs", append(arrayOf(list, 1), "\x00as"...), 8)}
	if extra != nil {
		entries = append(entries, pairOf("bootconfig-extra", append(arrayOf(pairs, 1), "\x00a{ss}"...), 8))
	}
	return arrayOf(append(entries, pairOf("locked", []byte{1, 0, 'b'}, 8)), 8)
}

// pairOf and arrayOf write what the package reads.
func pairOf(key string, value []byte, alignment int) []byte {
	out := append([]byte(key), 0)
	end := len(out)
	for len(out)%alignment != 0 {
		out = append(out, 0)
	}
	return withOffsets(append(out, value...), end)
}

func arrayOf(elements [][]byte, alignment int) []byte {
	var out []byte
	var ends []int
	for _, e := range elements {
		for len(out)%alignment != 0 {
			out = append(out, 0)
		}
		out = append(out, e...)
		ends = append(ends, len(out))
	}
	return withOffsets(out, ends...)
}

func withOffsets(out []byte, ends ...int) []byte {
	for _, size := range []int{1, 2, 4} {
		if len(out)+size*len(ends) < 1<<(8*size) {
			for _, end := range ends {
				out = append(out, binary.LittleEndian.AppendUint32(nil, uint32(end))[:size]...) //nolint:gosec // small
			}
			break
		}
	}
	return out
}

func TestReadBootLine(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 70_000) // offsets of four bytes
	entries := fstest.MapFS{
		"boot/loader/entries/ostree-1.conf": {Data: []byte("title old\nversion 1\noptions rw old ostree=/ostree/boot.1/a/0\n")},
		"boot/loader/entries/ostree-2.conf": {Data: []byte("title new\nversion 10\noptions root=x rw a=\"b c\" ostree=/ostree/boot.1/b/0\nx-options-source-tuned isolcpus=1\nx-options-source-layerwright a=\"b c\"\n")},
		"boot/loader/entries/windows.conf":  {Data: []byte("version 99\noptions x\n")},
	}
	with := func(content []byte) fstest.MapFS {
		out := maps.Clone(entries)
		out["run/ostree/staged-deployment"] = &fstest.MapFile{Data: content}
		return out
	}
	tests := map[string]struct {
		root fstest.MapFS
		want *bootLine
		says string
	}{
		"what boots next":         {entries, &bootLine{[]string{"root=x", "rw", `a="b c"`}, []string{`a="b c"`}}, ""},
		"what is staged":          {with(staged([]string{"rw", "ostree=/x", "b"}, map[string]string{"x-options-source-layerwright": "b", "x-options-source-tuned": "c"})), &bootLine{[]string{"rw", "b"}, []string{"b"}}, ""},
		"without what is tracked": {with(staged([]string{"rw", "z=" + strings.Repeat("y", 300)}, nil)), &bootLine{words: []string{"rw", "z=" + strings.Repeat("y", 300)}}, ""},
		"of any length":           {with(staged([]string{long, "b"}, nil)), &bootLine{words: []string{long, "b"}}, ""},
		"what can't be read":      {with([]byte("hello")), nil, "reading /run/ostree/staged-deployment: it is not a dictionary as GVariant writes it"},
		"no entries":              {fstest.MapFS{}, nil, "the boot loader has no entry below /boot/loader/entries"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			line, err := readBootLine(tt.root)
			if tt.says != "" {
				require.EqualError(t, err, tt.says)
				return
			}
			require.NoError(t, err)
			assert.Equal(t, tt.want.words, line.words)
			assert.ElementsMatch(t, tt.want.tracked, line.tracked)
		})
	}
}

func FuzzParseStaged(f *testing.F) {
	f.Add(staged([]string{"rw", "a"}, map[string]string{"x-options-source-layerwright": "a"}))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, content []byte) {
		if line, err := parseStaged(content); err == nil {
			for _, word := range line.words {
				require.LessOrEqual(t, len(word), len(content))
			}
		}
	})
}

// bootcOf is a host of bootc that answers, with an entry of the boot loader.
func bootcOf(t *testing.T, run *fakeRunner, options string) Host {
	t.Helper()
	h, err := (&Detector{run: run, can: map[string]bool{}, root: fstest.MapFS{
		"boot/loader/entries/ostree-1.conf": {Data: []byte("version 1\noptions " + options + "\n")},
	}}).Detect(t.Context(), ModeBootc)
	require.NoError(t, err)
	run.ran = nil
	return h
}

func TestKernelArgumentsOfBootc(t *testing.T) {
	t.Parallel()
	const help = "bootc loader-entries set-options-for-source"
	queued, running := string(read(t, "bootc-1.8.json")), string(read(t, "bootc-1.1.json"))
	set := func(ctx context.Context, h Host) error {
		return h.SetKernelArguments(ctx, ArgumentChange{From: []string{"rw", "pw=secret"}, To: []string{"rw", "a", "b"}})
	}
	tests := map[string]struct {
		answers map[string]string
		want    []string // of those that change the host
		says    string
	}{
		"bootc tracks them": {
			map[string]string{"bootc status": running, help: "", "ostree --version": "libostree:\n Version: '2026.4'\n"},
			[]string{help + " --source=layerwright --options=pw=secret", help + " --source=layerwright --options=a b"},
			"",
		},
		"an ostree that forgets them": {
			map[string]string{"bootc status": running, help: "", "ostree --version": "libostree:\n Version: '2025.2'\n"},
			nil,
			"its bootc 1.16 can't set kernel arguments and it has no rpm-ostree",
		},
		"a rollback that is queued is staged first": {
			map[string]string{"bootc status": queued, help: "", "ostree --version": "libostree:\n Version: '2026.4'\n"}, nil, ErrNotStaged.Error(),
		},
		"a composefs store is not asked": {
			map[string]string{"bootc status": string(read(t, "bootc-composefs.json")), help: "", "ostree": "2026.4", "rpm-ostree": ""},
			nil,
			"its bootc 1.16 can't set kernel arguments and it has no rpm-ostree",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tt.answers["bootc --version"] = "bootc 1.16.9"
			run := &fakeRunner{answers: tt.answers}
			h := bootcOf(t, run, "rw pw=secret ostree=/x")
			err := set(t.Context(), h)
			if tt.says == "" {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, tt.says)
			}
			var changes []string
			for _, command := range run.ran {
				if strings.Contains(command, "--source") {
					changes = append(changes, command)
				}
				if strings.Contains(name, "composefs") {
					assert.NotContains(t, command, "ostree")
				}
			}
			assert.Equal(t, tt.want, changes)
		})
	}
}

// TestKernelArgumentsThatCannotBeChanged are read all the same: a host whose image lost rpm-ostree
// may have all that is wanted.
func TestKernelArgumentsThatCannotBeChanged(t *testing.T) {
	t.Parallel()
	h := bootcOf(t, &fakeRunner{answers: map[string]string{"bootc --version": "bootc 1.12.0", "bootc status": string(read(t, "bootc-1.1.json"))}}, "rw a ostree=/x")
	line, err := h.KernelArguments(t.Context())
	require.NoError(t, err)
	assert.Equal(t, []string{"rw", "a"}, line)
	err = h.CheckKernelArguments(t.Context(), ArgumentChange{From: line, To: []string{"rw"}})
	assert.Equal(t, mcfgv1.ReasonKernelArgumentsUnsupported, fault.Reason(err))
}

// TestKernelArgumentsWithoutFilesOfOSTree are rpm-ostree's, as where /boot is not mounted.
func TestKernelArgumentsWithoutFilesOfOSTree(t *testing.T) {
	t.Parallel()
	run := &fakeRunner{answers: map[string]string{
		"bootc --version": "bootc 1.16.9", "bootc status": string(read(t, "bootc-1.1.json")), "bootc loader-entries": "", "ostree --version": "2026.4", "rpm-ostree kargs": "rw ostree=/x\n",
	}}
	h, err := detect(t, run, ModeBootc)
	require.NoError(t, err)
	line, err := h.KernelArguments(t.Context())
	require.NoError(t, err)
	assert.Equal(t, []string{"rw"}, line)
	require.NoError(t, h.SetKernelArguments(t.Context(), ArgumentChange{From: line, To: []string{"rw", "a"}}))
	assert.Equal(t, "rpm-ostree kargs --append=a", run.ran[len(run.ran)-1])
}

// TestAProgramThatIsKilledSaysNothing of what a host can do: it is asked again.
func TestAProgramThatIsKilledSaysNothing(t *testing.T) {
	t.Parallel()
	for _, killed := range []string{"bootc loader-entries", "ostree --version"} {
		run := &fakeRunner{
			answers: map[string]string{
				"bootc --version": "bootc 1.16.9", "bootc status": string(read(t, "bootc-1.1.json")), "bootc loader-entries": "", "ostree --version": "2026.4",
			},
			killed: killed,
		}
		h := bootcOf(t, run, "rw")
		change := ArgumentChange{From: []string{"rw"}, To: []string{"rw", "a"}}
		err := h.CheckKernelArguments(t.Context(), change)
		require.ErrorContains(t, err, "signal: killed")
		assert.False(t, IsAboutHost(err), killed)
		run.killed = ""
		require.NoError(t, h.CheckKernelArguments(t.Context(), change), killed)
	}
}

// TestHostsAreAskedOnce for what a program can do, and again when it is another version.
func TestHostsAreAskedOnce(t *testing.T) {
	t.Parallel()
	run := &fakeRunner{answers: map[string]string{"bootc --version": "bootc 1.15.0", "bootc status": string(read(t, "bootc-1.1.json"))}}
	d := &Detector{run: run, can: map[string]bool{}, root: fstest.MapFS{"boot/loader/entries/ostree-1.conf": {Data: []byte("version 1\noptions rw\n")}}}
	asked := func() (times int) {
		run.ran = nil
		for range 3 {
			h, err := d.Detect(t.Context(), ModeBootc)
			require.NoError(t, err)
			_, _ = h.KernelArguments(t.Context())
		}
		for _, command := range run.ran {
			if command == "bootc loader-entries set-options-for-source --help" {
				times++
			}
		}
		return times
	}
	assert.Equal(t, 1, asked())
	assert.Equal(t, 0, asked())
	run.answers["bootc --version"] = "bootc 1.16.0"
	assert.Equal(t, 1, asked())
}
