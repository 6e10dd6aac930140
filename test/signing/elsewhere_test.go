package signing_test

import (
	"bytes"
	"fmt"
	"io"
	"log"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	memory "github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/stretchr/testify/require"

	"github.com/layerwright/layerwright/internal/registry"
	"github.com/layerwright/layerwright/test/cluster/toolchain"
	"github.com/layerwright/layerwright/trust"
)

// TestCosignSignaturesAreAccepted does what docs/signing.md says about images built elsewhere,
// with cosign, and asks a trust policy.
func TestCosignSignaturesAreAccepted(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(memory.New(memory.Logger(log.New(io.Discard, "", 0))))
	t.Cleanup(server.Close)
	repository := strings.TrimPrefix(server.URL, "http://") + "/os/hotfix"
	index, err := random.Index(64, 1, 2)
	require.NoError(t, err)
	digest, err := index.Digest()
	require.NoError(t, err)
	ref, err := name.NewDigest(repository + "@" + digest.String())
	require.NoError(t, err)
	require.NoError(t, remote.WriteIndex(ref, index))

	run, home := cosignAtHome(t)
	run("generate-key-pair")
	public, err := os.ReadFile(filepath.Join(home, "cosign.pub"))
	require.NoError(t, err)
	now := time.Date(2026, 8, 1, 12, 0, 0, 0, time.UTC)
	policy, err := trust.Parse(fmt.Appendf(nil, "repositories:\n- repository: %s\n  publicKeys: %q\n  builders: [https://ci.example.com/os-images]\n  notOlderThan: 24h\n", repository, public))
	require.NoError(t, err)
	rule, has := policy.For(repository)
	require.True(t, has)
	verify := func() error {
		_, err := rule.Verify(t.Context(), registry.New(registry.Options{}), ref.String(), now)
		return err
	}

	require.ErrorContains(t, verify(), "it has no signature")
	run("sign", "--key", "cosign.key", "--tlog-upload=false", "--recursive", ref.String())
	require.ErrorContains(t, verify(), "has no trusted statement https://slsa.dev/provenance/v1")
	require.NoError(t, os.WriteFile(filepath.Join(home, "provenance.json"), []byte(`{
		"buildDefinition": {"buildType": "https://ci.example.com/bootc", "externalParameters": {}},
		"runDetails": {"builder": {"id": "https://ci.example.com/os-images"}, "metadata": {"finishedOn": "2026-08-01T11:00:00Z"}}
	}`), 0o600))
	run("attest", "--key", "cosign.key", "--tlog-upload=false", "--type", "slsaprovenance1", "--predicate", "provenance.json", ref.String())
	require.NoError(t, verify())
	now = now.Add(24 * time.Hour)
	require.ErrorContains(t, verify(), "and is older than 24h0m0s")
}

// cosignAtHome is the program, in a home of its own.
func cosignAtHome(t *testing.T) (run func(args ...string), home string) {
	t.Helper()
	root, err := toolchain.RepositoryRoot(".")
	require.NoError(t, err)
	cache, err := toolchain.CacheDir()
	require.NoError(t, err)
	bin, err := toolchain.New(root, cache).Find(t.Context(), toolchain.Cosign)
	require.NoError(t, err)
	home = t.TempDir()
	return func(args ...string) {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), filepath.Join(bin, "cosign"), args...)
		cmd.Dir = home
		cmd.Env = append(os.Environ(), "HOME="+home, "DOCKER_CONFIG="+home, "COSIGN_PASSWORD=hunter2-elsewhere", "SIGSTORE_ROOT_FILE="+os.DevNull)
		var said bytes.Buffer
		cmd.Stdout, cmd.Stderr = &said, &said
		require.NoError(t, cmd.Run(), "cosign %v: %s", args, &said)
	}, home
}
