package layer_test

import (
	"bytes"
	"encoding/json"
	"path"
	"strings"
	"testing"

	"github.com/coreos/ignition/v2/config/v3_5/types"
	"github.com/stretchr/testify/require"

	"github.com/layerwright/layerwright/machineconfigs"
	"github.com/layerwright/layerwright/machineconfigs/layer"
	"github.com/layerwright/layerwright/osimage/osindex"
)

// FuzzSplit takes any Ignition configuration, checked by no one, apart, over a fixed image. It
// holds that there is no panic, that the answer is always the same, that nothing is lost, and that
// every layer is sound.
func FuzzSplit(f *testing.F) {
	for _, groups := range alike() {
		for _, body := range groups {
			f.Add([]byte(body), "")
		}
	}
	for _, bad := range badInputs() {
		data, err := json.Marshal(bad.cfg.Ignition)
		require.NoError(f, err)
		f.Add(data, "/etc/x")
	}
	f.Add([]byte(fixtureConfig), "sshd.service")
	b := badBase()
	index := b.index(f)
	f.Fuzz(func(t *testing.T, data []byte, nodeOnly string) {
		cfg := &machineconfigs.Config{Name: "rendered-worker-1"}
		if err := json.Unmarshal(data, &cfg.Ignition); err != nil {
			return
		}
		cfg.NodeOnly = machineconfigs.NodeOnly{Files: []string{nodeOnly}, Units: []string{nodeOnly}}
		plan, err := layer.Split(cfg, index)
		again, errAgain := layer.Split(cfg, index)
		if err != nil {
			require.EqualError(t, errAgain, err.Error())
			require.NotEmpty(t, errorsOf(err))
			return
		}
		require.NoError(t, errAgain)
		require.Equal(t, plan.Items, again.Items)
		require.Equal(t, plan.NodeState, again.NodeState)
		require.Equal(t, plan.Notices, again.Notices)
		nothingLost(t, cfg.Ignition, plan)
		if len(plan.Remote) > 0 {
			return // what could be fetched for a hash that someone made up?
		}
		soundLayer(t, plan, again, b, index)
	})
}

func nothingLost(t *testing.T, c types.Config, p *layer.Plan) {
	t.Helper()
	kinds := map[string]int{}
	for _, i := range p.Items {
		kind, _, _ := strings.Cut(i.Name, " ")
		kinds[kind]++
	}
	require.Equal(t, len(c.Storage.Files), kinds["file"]+len(p.NodeState.Files))
	require.Equal(t, len(c.Storage.Directories), kinds["directory"]+len(p.NodeState.Directories))
	require.Equal(t, len(c.Storage.Links), kinds["link"]+len(p.NodeState.Links))
	require.Equal(t, len(c.Systemd.Units), kinds["unit"]+len(p.NodeState.Units))
	dropins := 0
	for _, u := range c.Systemd.Units {
		dropins += len(u.Dropins)
	}
	for _, u := range p.NodeState.Units {
		dropins -= len(u.Unit.Dropins)
	}
	require.Equal(t, dropins, kinds["drop-in"])
	require.Len(t, p.NodeState.Users, len(c.Passwd.Users))
	require.Len(t, p.NodeState.Groups, len(c.Passwd.Groups))
}

func soundLayer(t *testing.T, plan, again *layer.Plan, b base, index *osindex.Index) {
	t.Helper()
	inputs := layer.Inputs{Base: map[string][]byte{}}
	for _, wanted := range plan.Wanted {
		inputs.Base[wanted] = []byte(b[wanted[1:]])
	}
	l, err := plan.Build(inputs)
	require.NoError(t, err)
	checkLayer(t, l, b)
	for _, e := range l.Entries() {
		top, _, _ := strings.Cut(e.Path, "/")
		require.NotContains(t, []string{"var", "run", "tmp", "boot", "sysroot", "proc", "sys", "dev"}, top)
		if e.Type != layer.Whiteout {
			require.False(t, strings.HasPrefix(path.Base(e.Path), ".wh."), "%s is a whiteout by chance", e.Path)
		}
	}
	var first, second bytes.Buffer
	_, err = l.WriteTo(&first)
	require.NoError(t, err)
	l, err = again.Build(inputs)
	require.NoError(t, err)
	_, err = l.WriteTo(&second)
	require.NoError(t, err)
	require.True(t, bytes.Equal(first.Bytes(), second.Bytes()), "the same bytes")

	// The record is a MachineConfig, and the archive a layer.
	require.True(t, json.Valid(entries(l)[layer.RecordPath[1:]].Content))
	var copied bytes.Buffer
	require.NoError(t, index.Encode(&copied))
	over, err := osindex.Decode(&copied)
	require.NoError(t, err)
	require.NoError(t, over.Apply(&second))
	for at, entry := range map[string]osindex.Kind{"/bin": osindex.Symlink, "/etc/passwd": osindex.File, "/usr/bin": osindex.Directory} {
		if is, ok := over.Lookup(at); ok && entry != osindex.File && entry != osindex.Symlink {
			require.Equal(t, entry, is.Kind, at)
		}
	}
}
