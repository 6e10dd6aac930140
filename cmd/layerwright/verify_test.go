package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/spf13/cobra"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/cmd/layerwright/verdict"
	"github.com/layerwright/layerwright/internal/registry"
	"github.com/layerwright/layerwright/trust/sign"
	"github.com/layerwright/layerwright/trust/sign/signtest"
	"github.com/layerwright/layerwright/trust/signaturepolicy"
)

// signingPair signs in tests of this package.
var signingPair = sync.OnceValue(signtest.NewPair)

// signedCluster is an imageCluster whose newer image is signed, and has provenance.
func signedCluster(t *testing.T) *imageCluster {
	t.Helper()
	c := newImageCluster(t)
	push := registry.New(registry.Options{Keychain: authn.NewMultiKeychain()})
	signer := signingPair().Signer()
	_, err := signer.Sign(t.Context(), push, string(c.newer))
	require.NoError(t, err)
	_, err = signer.Attest(t.Context(), push, string(c.newer), sign.Statement{PredicateType: sign.PredicateProvenance, Predicate: json.RawMessage(`{}`)})
	require.NoError(t, err)
	return c
}

// trusting is the rendered MachineConfig of the pool, whose nodes trust a key.
func (c *imageCluster) trusting(t *testing.T, key []byte) *mcfgv1.MachineConfig {
	t.Helper()
	files, err := signaturepolicy.MakeFiles(nil, []signaturepolicy.Repository{{Name: c.server.Host + "/os/worker", Keys: [][]byte{key}}})
	require.NoError(t, err)
	rendered, err := signaturepolicy.MachineConfig("worker", files)
	require.NoError(t, err)
	rendered.Name = "rendered-worker-2"
	pool, isPool := c.objects[0].(*mcfgv1.MachineConfigPool)
	require.True(t, isPool)
	pool.Spec.Configuration.Name = rendered.Name
	return rendered
}

// verifyImage runs the command on a cluster, which may be nil.
func verifyImage(t *testing.T, from client.Reader, image string, change func(*verifyOptions)) (string, error) {
	t.Helper()
	o := &verifyOptions{image: image, cluster: newClusterFlags(&cobra.Command{})}
	o.output.Value = "text"
	if change != nil {
		change(o)
	}
	cluster := func() (client.Reader, error) { return from, nil }
	if from == nil {
		cluster = func() (client.Reader, error) { return nil, errors.New("no cluster") }
	}
	var out bytes.Buffer
	err := o.run(t.Context(), cluster, &out, time.Unix(1_800_000_000, 0))
	return out.String(), err
}

func TestVerifyAsNodesDo(t *testing.T) {
	t.Parallel()
	c := signedCluster(t)
	pair := signingPair()
	from := c.client(t, c.trusting(t, pair.Public))
	for _, name := range []string{string(c.newer), "worker-2", c.newer.Short(), c.server.Host + "/os/worker:worker-" + buildKey2} {
		out, err := verifyImage(t, from, name, nil)
		require.NoError(t, err, name)
		assert.Contains(t, out, string(c.newer))
		assert.Contains(t, out, "by "+pair.ID())
		assert.Regexp(t, `(?m)^provenance +signed by the same$`, out)
		assert.Regexp(t, `(?m)^SBOM +no: `, out)
	}
	out, err := verifyImage(t, from, "worker-1", nil)
	var ended *endError
	require.ErrorAs(t, err, &ended)
	assert.Equal(t, exitDegraded, ended.code)
	require.ErrorContains(t, err, "not trusted: ")
	require.ErrorContains(t, err, "it has no signature")
	assert.Regexp(t, `(?m)^signed +not trusted$`, out)

	other := signtest.NewPair()
	from = c.client(t, c.trusting(t, other.Public))
	_, err = verifyImage(t, from, "worker-2", nil)
	require.ErrorAs(t, err, &ended)
	require.ErrorContains(t, err, "none of its signatures is by a trusted key")
}

func TestVerifyWhereNodesAskForNothing(t *testing.T) {
	t.Parallel()
	c := signedCluster(t)
	rendered := &mcfgv1.MachineConfig{}
	rendered.Name = c.trusting(t, signingPair().Public).Name
	_, err := verifyImage(t, c.client(t, rendered), "worker-2", nil)
	var ended *endError
	require.ErrorAs(t, err, &ended, "nothing was verified")
	require.ErrorContains(t, err, "take any image of the repository")
	_, err = verifyImage(t, c.client(t), "worker-2", nil)
	require.ErrorContains(t, err, "pool worker has no rendered MachineConfig")
}

func TestVerifyWithFiles(t *testing.T) {
	t.Parallel()
	c := signedCluster(t)
	folder := t.TempDir()
	write := func(name, text string) string {
		file := filepath.Join(folder, name)
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
		return file
	}
	key := write("cosign.pub", string(signingPair().Public))
	byKey := func(o *verifyOptions) { o.key = key }
	out, err := verifyImage(t, nil, string(c.newer), func(o *verifyOptions) {
		byKey(o)
		o.output.Value = "json"
	})
	require.NoError(t, err, "without a cluster")
	var v verdict.Verdict
	require.NoError(t, json.Unmarshal([]byte(out), &v))
	assert.True(t, v.Trusted)
	assert.Equal(t, signingPair().ID(), v.KeyID)

	indented := "      " + strings.ReplaceAll(strings.TrimSpace(string(signingPair().Public)), "\n", "\n      ")
	repository := c.server.Host + "/os/worker"
	for name, test := range map[string]struct{ policy, says string }{
		"trusted":         {"repositories:\n  - repository: " + repository + "\n    publicKeys: |\n" + indented + "\n", ""},
		"too little":      {"repositories:\n  - repository: " + repository + "\n    builders: [https://ci]\n    publicKeys: |\n" + indented + "\n", "signed but not trusted"},
		"another's":       {"repositories:\n  - repository: " + repository + "-evil\n    publicKeys: |\n" + indented + "\n", "names no signer for the repository"},
		"a spelling slip": {"repositores: []\n", "line 1"},
	} {
		file := write(strings.ReplaceAll(name, " ", "-"), test.policy)
		_, err := verifyImage(t, nil, string(c.newer), func(o *verifyOptions) { o.policy = file })
		if test.says == "" {
			require.NoError(t, err, name)
			continue
		}
		require.ErrorContains(t, err, test.says, name)
	}
	_, err = verifyImage(t, nil, string(c.newer), func(o *verifyOptions) { o.key = write("empty.pub", "") })
	require.ErrorContains(t, err, "it has no public key in PEM")
	_, err = verifyImage(t, nil, "worker-2", byKey)
	require.ErrorContains(t, err, "no cluster", "an object's name is looked up there")
	_, err = verifyImage(t, c.client(t), "worker-3", byKey)
	require.ErrorContains(t, err, `there is no MachineOSImage "worker-3"`)
	_, err = verifyImage(t, c.client(t), c.server.Host+"/os/base:latest", nil)
	require.ErrorContains(t, err, "say who is trusted with --pool, --trust-policy or --key")

	c.server.Answer(func(w http.ResponseWriter, _ *http.Request) bool {
		w.WriteHeader(http.StatusForbidden)
		return true
	})
	_, err = verifyImage(t, nil, string(c.newer), byKey)
	var failed *failedError
	require.ErrorAs(t, err, &failed, "who can't read knows nothing")
	var stdout, stderr bytes.Buffer
	assert.Equal(t, exitUsage, execute(t.Context(), []string{"verify", "quay.io/a/b", "--key", "a", "--pool", "b"}, &stdout, &stderr))
}
