package controlplane

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/layerwright/layerwright/test/cluster/daemon"
	"github.com/layerwright/layerwright/test/cluster/pki"
)

func newConfig(t *testing.T) *Config {
	t.Helper()
	store, err := pki.New(t.TempDir())
	require.NoError(t, err)
	return &Config{Cluster: "a", Bin: "/bin", Dir: t.TempDir(), PKI: store, Ports: StandardPorts}
}

func TestFreePortsDiffer(t *testing.T) {
	t.Parallel()
	p, err := FreePorts()
	require.NoError(t, err)
	all := []int{p.Etcd, p.EtcdPeer, p.API, p.ControllerManager, p.Scheduler}
	slices.Sort(all)
	require.Len(t, slices.Compact(all), 5)
	require.Positive(t, all[0])
}

func TestEverythingStaysOnLoopbackWithoutNodes(t *testing.T) {
	t.Parallel()
	c := newConfig(t)
	for _, spec := range []daemon.Spec{c.etcd(), c.apiServer(), c.controllerManager()} {
		line := strings.Join(spec.Argv, " ")
		require.NotContains(t, line, "0.0.0.0", spec.Name)
		require.Contains(t, line, "127.0.0.1", spec.Name)
	}
	require.Contains(t, c.apiServer().Argv, "--endpoint-reconciler-type=none")
	c.NodeAddress = "10.250.0.1"
	require.Contains(t, c.apiServer().Argv, "--advertise-address=10.250.0.1")
	require.Contains(t, c.apiServer().Argv, "--authorization-mode=Node,RBAC")
}

func TestEnsurePKIIsStable(t *testing.T) {
	t.Parallel()
	c := newConfig(t)
	require.NoError(t, c.EnsurePKI())
	before, err := c.Client()
	require.NoError(t, err)
	require.NoError(t, c.EnsurePKI())
	after, err := c.Client()
	require.NoError(t, err)
	require.Equal(t, before.CertData, after.CertData)
	require.Equal(t, "https://127.0.0.1:6443", after.Host)
	require.InDelta(t, -1, after.QPS, 0, "tests must not wait for a rate limit")

	c.AdminServer = "https://127.0.0.1:7443"
	require.NoError(t, c.EnsurePKI())
	after, err = c.Client()
	require.NoError(t, err)
	require.Equal(t, c.AdminServer, after.Host)
}

func TestIsPortTaken(t *testing.T) {
	t.Parallel()
	taken := &daemon.DiedError{Name: Etcd, LastLines: "listen tcp 127.0.0.1:2379: bind: address already in use"}
	require.True(t, IsPortTaken(fmt.Errorf("starting: %w", taken)))
	require.False(t, IsPortTaken(&daemon.DiedError{Name: Etcd, LastLines: "no space left on device"}))
	require.False(t, IsPortTaken(errors.New("address already in use")))
	require.False(t, IsPortTaken(nil))
}
