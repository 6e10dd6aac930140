package signing_test

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/secure-systems-lab/go-securesystemslib/encrypted"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	imagetypes "go.podman.io/image/v5/types"

	"github.com/layerwright/layerwright/trust"
	"github.com/layerwright/layerwright/trust/sign"
	"github.com/layerwright/layerwright/trust/sign/signtest"
	"github.com/layerwright/layerwright/trust/signaturepolicy"
)

// trusting is a node that insists on the cluster's key in os/worker, and on what a trust policy
// says of os/hotfix, of os/both and of all below corp.
func (c *cluster) trusting() *imagetypes.SystemContext {
	c.t.Helper()
	dir := c.t.TempDir()
	in := func(name string, below bool, keys ...signtest.Pair) signaturepolicy.Repository {
		out := signaturepolicy.Repository{Name: c.host + name, Below: below}
		for _, key := range keys {
			out.Keys = append(out.Keys, key.Public)
		}
		return out
	}
	c.writeFor(dir, in("/os/worker", false, ours()), in("/os/hotfix", false, others()), in("/os/both", false, others(), third()), in("/corp", true, third()))
	return system(dir)
}

// gate asks the trust policy that trusting is of, as the controller does of images built elsewhere.
func (c *cluster) gate(image string) error {
	c.t.Helper()
	policy, err := trust.Parse(fmt.Appendf(nil,
		"repositories:\n- {repository: %[1]s/os/hotfix, publicKeys: %[2]q}\n- {repository: %[1]s/os/both, publicKeys: %[3]q}\n- {repository: %[1]s/corp/*, publicKeys: %[4]q}\n",
		c.host, others().Public, string(others().Public)+string(third().Public), third().Public))
	require.NoError(c.t, err)
	resolved, err := c.client.Resolve(c.t.Context(), image)
	require.NoError(c.t, err)
	repository, err := trust.RepositoryOf(resolved.Image)
	require.NoError(c.t, err)
	rule, has := policy.For(repository)
	if !has {
		return fmt.Errorf("no signer is trusted for %q", repository)
	}
	_, err = rule.Verify(c.t.Context(), c.client, resolved.Image, time.Time{})
	return err
}

// signedBy pushes an image and signs it.
func (c *cluster) signedBy(key signtest.Pair, repository string) string {
	c.t.Helper()
	image := c.push(repository, "one")
	c.sign(key, image)
	return image
}

// as copies an image with its signatures into another repository.
func (c *cluster) as(image, repository string) string {
	c.t.Helper()
	_, digest, _ := strings.Cut(image, "@")
	there := c.host + "/" + repository + "@" + digest
	c.copy(image, there)
	c.copy(signatureTag(image), signatureTag(there))
	return there
}

func TestNodesAcceptTrustedImages(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	node := c.trusting()
	for _, good := range []string{
		c.signedBy(others(), "os/hotfix"), c.host + "/os/hotfix:one", c.signedBy(others(), "os/both"), c.signedBy(third(), "os/both"),
		c.signedBy(third(), "corp/a"), c.signedBy(third(), "corp/a/b"),
	} {
		require.NoError(t, c.pullAs(node, good), good)
		require.NoError(t, c.gate(good), "the controller says the same: %s", good)
	}
	index := c.pushIndex("os/hotfix")
	c.sign(others(), index)
	require.NoError(t, c.pullAs(node, index))
	require.NoError(t, c.pullAs(node, c.signedBy(ours(), "os/worker")), "and the cluster's own")
	require.NoError(t, c.pullAs(node, c.push("elsewhere/app", "one")), "and everything else as before")
}

func TestNodesRefuseUntrustedImages(t *testing.T) {
	t.Parallel()
	const unsigned, wrongKey, wrongName = "no signature exists", "cryptographic signature verification failed", "is not accepted"
	tests := map[string]struct {
		image func(*cluster) string
		want  string
	}{
		"unsigned":                              {func(c *cluster) string { return c.push("os/hotfix", "evil") }, unsigned},
		"unsigned, below a name":                {func(c *cluster) string { return c.push("corp/a", "evil") }, unsigned},
		"by a key for another repository":       {func(c *cluster) string { return c.signedBy(third(), "os/hotfix") }, wrongKey},
		"by the cluster's key":                  {func(c *cluster) string { return c.signedBy(ours(), "os/hotfix") }, wrongKey},
		"by the cluster's key, below a name":    {func(c *cluster) string { return c.signedBy(ours(), "corp/a") }, wrongKey},
		"by the cluster's key, where two count": {func(c *cluster) string { return c.signedBy(ours(), "os/both") }, wrongKey},
		"the cluster's own image": {
			func(c *cluster) string { return c.as(c.signedBy(ours(), "os/worker"), "os/hotfix") }, wrongKey,
		},
		"of a repository whose name begins alike": {
			func(c *cluster) string { return c.as(c.signedBy(others(), "os/hotfix-evil"), "os/hotfix") }, wrongName,
		},
		"of a name that begins alike": {func(c *cluster) string { return c.as(c.signedBy(third(), "corp-evil/a"), "corp/a") }, wrongName},
		"of another one below":        {func(c *cluster) string { return c.as(c.signedBy(third(), "corp/a"), "corp/b") }, wrongName},
		"of one deeper":               {func(c *cluster) string { return c.as(c.signedBy(third(), "corp/a/b"), "corp/a") }, wrongName},
		"below an exact name":         {func(c *cluster) string { return c.push("os/hotfix/below", "evil") }, unsigned},
		"below an exact name, with the signature of that": {
			func(c *cluster) string { return c.as(c.signedBy(others(), "os/hotfix"), "os/hotfix/below") }, wrongName,
		},
		"the name itself, of which all below is trusted": {func(c *cluster) string { return c.push("corp", "evil") }, unsigned},
		"the signature was deleted": {
			func(c *cluster) string {
				image := c.signedBy(others(), "os/hotfix")
				c.deleteSignatures(image)
				return image
			},
			unsigned,
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t)
			image := tt.image(c)
			err := c.pullAs(c.trusting(), image)
			require.ErrorContains(t, err, "Source image rejected")
			require.ErrorContains(t, err, tt.want)
			assert.Error(t, c.gate(image), "the controller says the same")
		})
	}
	t.Run("a trusted key in the cluster's repository", func(t *testing.T) {
		t.Parallel()
		c := newCluster(t)
		require.ErrorContains(t, c.pullAs(c.trusting(), c.signedBy(others(), "os/worker")), wrongKey)
	})
}

// TestNodesHaveOneScopeForANameAndAllBelow is what nodes can't be told, as docs/signing.md has it:
// whoever has a key that is trusted for a repository can have nodes take an image below it, and the
// other way round. The controller takes neither.
func TestNodesHaveOneScopeForANameAndAllBelow(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	node := c.trusting()
	for _, image := range []string{c.signedBy(others(), "os/hotfix/below"), c.signedBy(third(), "corp")} {
		require.NoError(t, c.pullAs(node, image))
		require.ErrorContains(t, c.gate(image), "no signer is trusted")
	}
}

// TestNodesVerifyRSA has the other kind of key that a trust policy takes.
func TestNodesVerifyRSA(t *testing.T) {
	t.Parallel()
	private, err := rsa.GenerateKey(rand.Reader, 2048)
	require.NoError(t, err)
	der, err := x509.MarshalPKCS8PrivateKey(private)
	require.NoError(t, err)
	sealed, err := encrypted.Encrypt(der, []byte(signtest.Password))
	require.NoError(t, err)
	key, err := sign.LoadKey(pem.EncodeToMemory(&pem.Block{Type: "ENCRYPTED SIGSTORE PRIVATE KEY", Bytes: sealed}), []byte(signtest.Password))
	require.NoError(t, err)
	c := newCluster(t)
	image := c.signedBy(signtest.Pair{Key: key}, "os/hotfix")
	both := signaturepolicy.Repository{Name: c.host + "/os/hotfix", Keys: [][]byte{ours().Public, key.Public().PEM()}}
	require.NoError(t, c.pullUnder(image, both))
	require.NoError(t, c.pullUnder(c.signedBy(ours(), "os/hotfix"), both), "kinds can be mixed")
}

// TestAllOfARegistry has a scope that is no repository at all.
func TestAllOfARegistry(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	dir := t.TempDir()
	c.writeFor(dir, signaturepolicy.Repository{Name: c.host, Below: true, Keys: [][]byte{ours().Public}})
	require.NoError(t, c.pullAs(system(dir), c.signedBy(ours(), "a/b")))
	require.ErrorContains(t, c.pullAs(system(dir), c.push("a", "evil")), "no signature exists")
}

// TestMirrors is what docs/signing.md says of nodes that pull from a mirror: keys and names are
// those of the repository that is mirrored, and whether signatures are looked for is asked about
// the mirror.
func TestMirrors(t *testing.T) {
	t.Parallel()
	c, mirror := newCluster(t), newCluster(t)
	good, evil, bare := c.signedBy(ours(), "os/worker"), c.signedBy(others(), "os/worker"), c.push("os/worker", "bare")
	mirrored := func(image string) string { return strings.Replace(image, c.host+"/os/", mirror.host+"/mirror/os/", 1) }
	for _, image := range []string{good, evil, signatureTag(good), signatureTag(evil), bare} {
		c.copy(image, mirrored(image))
	}
	c.server.Close()

	dir := t.TempDir()
	node := c.node(ours())
	node.DockerAuthConfig = nil
	node.AuthFilePath = filepath.Join(dir, "auth.json")
	login := base64.StdEncoding.EncodeToString([]byte(account.Name + ":" + account.Password))
	require.NoError(t, os.WriteFile(node.AuthFilePath, fmt.Appendf(nil, `{"auths":{%q:{"auth":%q}}}`, mirror.host, login), 0o600))
	node.SystemRegistriesConfPath = filepath.Join(dir, "registries.conf")
	require.NoError(t, os.WriteFile(node.SystemRegistriesConfPath, fmt.Appendf(nil,
		"[[registry]]\nlocation = \"%s/os\"\n[[registry.mirror]]\nlocation = \"%s/mirror/os\"\n", c.host, mirror.host), 0o600))
	require.ErrorContains(t, c.pullAs(node, good), "no signature exists", "no one looks for signatures on the mirror")

	also := filepath.Join(node.RegistriesDirPath, "mirrors.yaml")
	require.NoError(t, os.WriteFile(also, fmt.Appendf(nil, "docker:\n  %s/mirror/os:\n    use-sigstore-attachments: true\n", mirror.host), 0o600))
	require.NoError(t, c.pullAs(node, good))
	require.ErrorContains(t, c.pullAs(node, evil), "cryptographic signature verification failed")
	require.ErrorContains(t, c.pullAs(node, bare), "no signature exists")
	require.NoError(t, c.pullAs(node, mirrored(bare)), "the mirror by its own name is another repository")
	mirror.deleteSignatures(mirrored(good))
	require.ErrorContains(t, c.pullAs(node, good), "no signature exists", "signatures have to be mirrored too")
}
