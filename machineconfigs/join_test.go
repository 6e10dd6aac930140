package machineconfigs

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/coreos/ignition/v2/config/v3_5"
	"github.com/coreos/ignition/v2/config/v3_5/types"
	"github.com/stretchr/testify/require"
)

// seeded gives the same numbers for the same seed.
func seeded(seed uint64) *rand.Rand {
	return rand.New(rand.NewPCG(seed, 0)) //nolint:gosec // a test that can be repeated wants no secret numbers
}

// randomConfig makes a configuration out of few names, so that many of them meet.
func randomConfig(random *rand.Rand) types.Config {
	cfg := empty()
	maybe := func() bool { return random.IntN(3) == 0 }
	for _, i := range random.Perm(6) {
		node := types.Node{Path: fmt.Sprintf("/etc/%d", i)}
		if maybe() {
			node.User.ID = ptr(random.IntN(3))
		}
		switch random.IntN(6) {
		case 0, 1:
			file := types.File{Node: node}
			if maybe() {
				file.Contents = types.Resource{Source: ptr(fmt.Sprintf("data:,%d", random.IntN(100)))}
			}
			if maybe() {
				file.Append = []types.Resource{{Source: ptr(fmt.Sprintf("data:,%d", random.IntN(100)))}}
			}
			if maybe() {
				file.Contents.HTTPHeaders = types.HTTPHeaders{{Name: "X", Value: ptr(fmt.Sprint(random.IntN(3)))}}
			}
			if maybe() {
				file.Contents.HTTPHeaders = types.HTTPHeaders{{Name: "X"}}
			}
			cfg.Storage.Files = append(cfg.Storage.Files, file)
		case 2:
			cfg.Storage.Directories = append(cfg.Storage.Directories, types.Directory{Node: node})
		case 3:
			cfg.Storage.Links = append(cfg.Storage.Links, types.Link{Node: node, LinkEmbedded1: types.LinkEmbedded1{Target: ptr(fmt.Sprint(random.IntN(3)))}})
		}
	}
	for _, i := range random.Perm(4) {
		if maybe() {
			unit := types.Unit{Name: fmt.Sprintf("%d.service", i), Enabled: ptr(maybe())}
			for _, j := range random.Perm(3) {
				unit.Dropins = append(unit.Dropins, types.Dropin{Name: fmt.Sprintf("%d.conf", j), Contents: ptr(fmt.Sprint(random.IntN(9)))})
			}
			cfg.Systemd.Units = append(cfg.Systemd.Units, unit)
		}
		if maybe() {
			cfg.Passwd.Users = append(cfg.Passwd.Users, types.PasswdUser{
				Name: fmt.Sprint(i), SSHAuthorizedKeys: []types.SSHAuthorizedKey{types.SSHAuthorizedKey(fmt.Sprint(random.IntN(3)))},
			})
		}
		argument := types.KernelArgument(fmt.Sprint(i))
		switch random.IntN(3) {
		case 0:
			cfg.KernelArguments.ShouldExist = append(cfg.KernelArguments.ShouldExist, argument)
		case 1:
			cfg.KernelArguments.ShouldNotExist = append(cfg.KernelArguments.ShouldNotExist, argument)
		}
		if maybe() {
			cfg.Storage.Luks = append(cfg.Storage.Luks, types.Luks{Name: fmt.Sprint(i), Clevis: types.Clevis{Tpm2: ptr(maybe())}})
		}
	}
	return cfg
}

func TestJoiningIsMerging(t *testing.T) {
	t.Parallel()
	for seed := range uint64(250) {
		random := seeded(seed)
		joiner := newJoiner()
		var merged types.Config
		for i := range 2 + random.IntN(6) {
			cfg := randomConfig(random)
			joiner.add(cfg)
			if i == 0 {
				merged = cfg
			} else {
				merged = v3_5.Merge(merged, cfg)
			}
		}
		// As JSON, because no list and an empty list are the same.
		want, err := json.Marshal(merged)
		require.NoError(t, err)
		got, err := json.Marshal(joiner.result())
		require.NoError(t, err)
		require.Equal(t, string(want), string(got), "differs from Ignition's Merge with seed %d", seed)
	}
}

func TestJoiningOneChangesNothing(t *testing.T) {
	t.Parallel()
	cfg := randomConfig(seeded(7))
	joiner := newJoiner()
	joiner.add(cfg)
	require.Equal(t, cfg, joiner.result())
}
