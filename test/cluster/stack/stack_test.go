package stack

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/layerwright/layerwright/test/cluster/pki"
)

func TestAccept(t *testing.T) {
	t.Parallel()
	existing := state{Name: "a", Nodes: 2, Guests: 2, APIPort: 6443, RegistryPort: 5000}
	tests := map[string]struct {
		options UpOptions
		nodes   int
		err     string
	}{
		"keeps its nodes when none are asked for": {options: UpOptions{}, nodes: 2},
		"grows":                              {options: UpOptions{Nodes: 3}, nodes: 3},
		"keeps a port that it has":           {options: UpOptions{APIPort: 6443, RegistryPort: 5000}, nodes: 2},
		"refuses to shrink":                  {options: UpOptions{Nodes: 1}, err: "has 2 nodes and nodes are not taken away: `cluster down --name a` first"},
		"refuses another API port":           {options: UpOptions{APIPort: 7443}, err: "has its API server at port 6443, not 7443"},
		"refuses another registry port":      {options: UpOptions{RegistryPort: 5001}, err: "has its registry at port 5000, not 5001"},
		"refuses to become another kind":     {options: UpOptions{ControlPlaneOnly: true}, err: "control-plane-only=false"},
		"refuses Tekton where no pods run":   {options: UpOptions{Tekton: true, ControlPlaneOnly: true}, err: "runs no pods of Tekton"},
		"refuses to lose Layerwright":        {options: UpOptions{Bare: true}, err: `cluster "a" was not made with bare`},
		"keeps its guests":                   {options: UpOptions{Guests: 2}, nodes: 2},
		"refuses fewer guests":               {options: UpOptions{Guests: 1}, err: "has 2 guests and guests are not taken away"},
		"refuses more guests than addresses": {options: UpOptions{Guests: 21}, err: "21 guests are more than the 20"},
		"refuses guests where no nodes run":  {options: UpOptions{Guests: 2, ControlPlaneOnly: true}, err: "has no guests"},
		"refuses more nodes than addresses":  {options: UpOptions{Nodes: 1000}, err: "1000 nodes are more than"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			st := existing
			err := st.accept(tc.options)
			if tc.err != "" {
				require.ErrorContains(t, err, tc.err)
				return
			}
			require.NoError(t, err)
			require.Equal(t, tc.nodes, st.Nodes)
		})
	}
}

func TestNewRefusesNamesThatFitNoFileOrHost(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"", "A", "a/b", "-a", "a-", "a.b", "../x", "a123456789012345678901234567890123"} {
		_, err := New("", t.TempDir(), name)
		require.ErrorContains(t, err, "lower-case letters", name)
	}
	s, err := New("", t.TempDir(), "dev-1")
	require.NoError(t, err)
	require.Equal(t, "registry.dev-1.test", s.RegistryHost())
}

func TestState(t *testing.T) {
	t.Parallel()
	cache := t.TempDir()
	s, err := New("", cache, "a")
	require.NoError(t, err)
	_, err = s.load()
	var missing *NotFoundError
	require.ErrorAs(t, err, &missing)
	require.ErrorContains(t, err, "make up")

	require.NoError(t, os.MkdirAll(s.dir, 0o700))
	want := &state{Name: "a", Nodes: 1, Sysctls: map[string]string{"x": "1"}}
	require.NoError(t, s.save(want))
	got, err := s.load()
	require.NoError(t, err)
	require.Equal(t, want, got)
	names, err := Names(cache)
	require.NoError(t, err)
	require.Equal(t, []string{"a"}, names)

	other, err := New("", cache, "b")
	require.NoError(t, err)
	sysctls, err := other.othersSysctls()
	require.NoError(t, err)
	require.Equal(t, want.Sysctls, sysctls, "a second cluster must not remember what the first one's kubelet has set")

	require.NoError(t, os.WriteFile(filepath.Join(s.dir, stateFile), []byte("{"), 0o600))
	_, err = s.load()
	require.ErrorContains(t, err, "cluster down")
}

func TestLockNamesTheCluster(t *testing.T) {
	t.Parallel()
	s, err := New("", t.TempDir(), "a")
	require.NoError(t, err)
	unlock, err := s.lock()
	require.NoError(t, err)
	_, err = s.lock()
	require.ErrorContains(t, err, `cluster "a" is being changed by another`)
	unlock()
}

func TestLoadErrors(t *testing.T) {
	t.Parallel()
	s, err := New("", t.TempDir(), "a")
	require.NoError(t, err)
	_, err = s.Load(t.Context(), "quay.io/x/y:latest", nil)
	require.ErrorContains(t, err, "an image in a registry needs no loading")
	_, err = s.Load(t.Context(), t.TempDir(), nil)
	require.ErrorContains(t, err, "is a folder")
	archive := filepath.Join(t.TempDir(), "image.tar")
	require.NoError(t, os.WriteFile(archive, nil, 0o600))
	_, err = s.Load(t.Context(), archive, nil)
	var missing *NotFoundError
	require.ErrorAs(t, err, &missing)
}

func TestAddControllerChoosesOnce(t *testing.T) {
	t.Parallel()
	st := &state{Name: "a", ControlPlaneOnly: true}
	require.NoError(t, st.addController())
	require.NotZero(t, st.RegistryPort)
	require.NotZero(t, st.MetricsPort)
	require.NotEqual(t, st.RegistryPort, st.MetricsPort)
	require.Len(t, st.Accounts, 2)
	before := *st
	require.NoError(t, st.addController())
	require.Equal(t, before, *st, "what runs keeps its ports and passwords")
}

func TestRegistryHasTheNameThatTheUserCanHave(t *testing.T) {
	t.Parallel()
	s, err := New("", t.TempDir(), "a")
	require.NoError(t, err)
	require.Equal(t, "registry.a.test:5000", s.registry(&state{RegistryPort: 5000}))
	require.Equal(t, "localhost:5000", s.registry(&state{RegistryPort: 5000, ControlPlaneOnly: true}))
}

func TestHasNodes(t *testing.T) {
	t.Parallel()
	s, err := New("", t.TempDir(), "a")
	require.NoError(t, err)
	_, err = s.HasNodes()
	var missing *NotFoundError
	require.ErrorAs(t, err, &missing)
	require.NoError(t, os.MkdirAll(s.Dir(), 0o700))
	for _, only := range []bool{true, false} {
		require.NoError(t, s.save(&state{Name: "a", ControlPlaneOnly: only}))
		has, err := s.HasNodes()
		require.NoError(t, err)
		require.Equal(t, !only, has)
	}
}

func TestControllerProcess(t *testing.T) {
	t.Parallel()
	s, err := New("", t.TempDir(), "a")
	require.NoError(t, err)
	u := &up{Stack: s, state: &state{ControlPlaneOnly: true, MetricsPort: 8443}}
	u.pki, err = pki.New(filepath.Join(s.Dir(), "pki"))
	require.NoError(t, err)
	spec := u.controllerSpec("/bin/layerwright")
	require.Equal(t, []string{"/bin/layerwright", "controller", "--kubeconfig", u.pki.Kubeconfig("layerwright-controller")}, spec.Argv[:4])
	require.Contains(t, spec.Argv, "127.0.0.1:8443", "metrics are on loopback only")
	component, err := os.ReadFile("../../../deploy/components/signing/kustomization.yaml")
	require.NoError(t, err)
	for _, flag := range regexp.MustCompile(`value: (--\S+)`).FindAllStringSubmatch(string(component), -1) {
		if flag[1] == "--enforce-signatures" {
			continue // there are no nodes, which would verify signatures
		}
		require.Contains(t, strings.Join(spec.Argv, " ")+" ", strings.ReplaceAll(flag[1], "=", " ")+" ", "it signs as a Deployment does")
	}
	require.NotContains(t, strings.Join(spec.Argv, " "), u.Kubeconfig(), "the administrator's rights are not the controller's")
	require.Equal(t, "system:serviceaccount:layerwright:layerwright-controller", controllerUser.CommonName)
	require.Empty(t, u.registrySpec().NetNSOf)
	require.NotContains(t, u.registrySpec().Argv, "--listen", "the registry is on loopback only")
}
