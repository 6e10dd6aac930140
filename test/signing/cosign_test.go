package signing_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/layerwright/layerwright/test/cosign"
	"github.com/layerwright/layerwright/trust/sign"
	"github.com/layerwright/layerwright/trust/sign/signtest"
)

const password = "hunter2-key"

// cosign is the program, logged in at the registry. Its home has the public key of a pair in
// cosign.pub.
func (c *cluster) cosign(public []byte) *cosign.Cosign {
	c.t.Helper()
	login, err := account.DockerConfig(c.host)
	require.NoError(c.t, err)
	program := cosign.New(c.t, cosign.Options{Login: login, Password: password})
	if public != nil {
		program.Write("cosign.pub", public)
	}
	return program
}

// trust trusts a key in a repository.
func (c *cluster) trust(public []byte, repository string) sign.Policy {
	c.t.Helper()
	keys, err := sign.ParsePublicKeys(public)
	require.NoError(c.t, err)
	return sign.Policy{{Repository: c.host + "/" + repository, Keys: keys}}
}

// TestCosignVerifies what Layerwright signs, as docs/signing.md says it, and nothing else.
func TestCosignVerifies(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	program := c.cosign(ours().Public)
	image, index, evil := c.push("os/worker", "one"), c.pushIndex("os/worker"), c.push("os/worker", "evil")
	c.sign(ours(), image)
	c.sign(ours(), index)
	c.sign(others(), evil)
	for _, signed := range append(c.children(index), image, index) {
		require.Contains(t, program.Run(cosign.Documented(t, signed, "verify")...), `"docker-manifest-digest":"`+signed[len(signed)-71:]+`"`)
	}
	_, err := program.Try(t.Context(), cosign.Documented(t, evil, "verify")...)
	require.ErrorContains(t, err, "no matching signatures", "another key")
	_, err = program.Try(t.Context(), cosign.Documented(t, c.push("os/worker", "other"), "verify")...)
	require.ErrorContains(t, err, "no signatures found")
}

// TestCosignSigns with its own key what Layerwright then verifies, alone and beside a signature of
// Layerwright's.
func TestCosignSigns(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	program := c.cosign(nil)
	program.Run("generate-key-pair")
	public := program.Read("cosign.pub")
	key, err := sign.LoadKey(program.Read("cosign.key"), []byte(password))
	require.NoError(t, err, "Layerwright reads its private key")
	read, err := sign.ParsePublicKeys(public)
	require.NoError(t, err)
	require.Equal(t, read[0].ID(), key.Public().ID())

	image, index, both := c.push("os/worker", "one"), c.pushIndex("os/worker"), c.push("os/worker", "both")
	c.sign(ours(), both)
	for _, to := range []string{image, both} {
		program.Run(signing(to)...)
	}
	program.Run(append([]string{"sign", "--recursive"}, signing(index)[1:]...)...)
	for _, signed := range []string{image, index, both} {
		verified, err := c.trust(public, "os/worker").Verify(t.Context(), c.client, signed)
		require.NoError(t, err)
		require.Equal(t, read[0].ID(), verified.KeyID)
		require.NoError(t, c.pull(signed, signtest.Pair{Public: public}), "and so do nodes")
		added, err := sign.NewSigner(signtest.Keys{One: key}).Sign(t.Context(), c.client, signed)
		require.NoError(t, err)
		require.Zero(t, added.Added, "signed by cosign, it is not signed again with the same key")
	}
	_, err = c.trust(ours().Public, "os/worker").Verify(t.Context(), c.client, both)
	require.NoError(t, err, "the one that was there stays")
	require.NoError(t, c.pull(both, ours()))
}

// TestCosignUsesOurKeys: what GenerateKey makes is a pair of cosign's.
func TestCosignUsesOurKeys(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	private, public, err := sign.GenerateKey([]byte(password))
	require.NoError(t, err)
	program := c.cosign(public)
	program.Write("cosign.key", private)
	image := c.push("os/worker", "one")
	program.Run(signing(image)...)
	program.Run(cosign.Documented(t, image, "verify")...)
	_, err = c.trust(public, "os/worker").Verify(t.Context(), c.client, image)
	require.NoError(t, err)
	require.Equal(t, string(public), program.Run("public-key", "--key", "cosign.key"))
}

// predicates are statements of each kind that Layerwright makes, and what cosign calls it.
var predicates = map[string]sign.Statement{
	"slsaprovenance1": {PredicateType: sign.PredicateProvenance, Predicate: json.RawMessage(
		`{"buildDefinition":{"buildType":"https://example.com/build","externalParameters":{}},"runDetails":{"builder":{"id":"https://example.com/builder"}}}`)},
	"spdxjson": {PredicateType: sign.PredicateSPDX, Predicate: json.RawMessage(`{"spdxVersion":"SPDX-2.3","SPDXID":"SPDXRef-DOCUMENT","name":"image"}`)},
}

// stated is what cosign prints of a statement.
func stated(t *testing.T, printed string) (predicateType string, predicate json.RawMessage) {
	t.Helper()
	var envelope struct {
		Payload []byte `json:"payload"`
	}
	require.NoError(t, json.NewDecoder(strings.NewReader(printed)).Decode(&envelope))
	var said struct {
		PredicateType string          `json:"predicateType"`
		Predicate     json.RawMessage `json:"predicate"`
	}
	require.NoError(t, json.Unmarshal(envelope.Payload, &said))
	return said.PredicateType, said.Predicate
}

// TestCosignVerifiesAttestations that Layerwright makes, as docs/signing.md says it, and no others.
func TestCosignVerifiesAttestations(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	program := c.cosign(ours().Public)
	image, index, evil := c.push("os/worker", "one"), c.pushIndex("os/worker"), c.push("os/worker", "evil")
	for with, images := range map[*sign.Key][]string{ours().Key: {image, index}, others().Key: {evil}} {
		for _, to := range images {
			for _, statement := range predicates {
				_, err := sign.NewSigner(signtest.Keys{One: with}).Attest(t.Context(), c.client, to, statement)
				require.NoError(t, err)
			}
		}
	}
	other := c.push("os/worker", "other")
	c.copy(attestationTag(image), attestationTag(other))
	for kind, statement := range predicates {
		for _, attested := range append(c.children(index), image, index) {
			predicateType, predicate := stated(t, program.Run(cosign.Documented(t, attested, "verify-attestation", "--type", kind)...))
			require.Equal(t, statement.PredicateType, predicateType)
			require.JSONEq(t, string(statement.Predicate), string(predicate))
		}
		for why, refused := range map[string]string{"another key": evil, "about another image": other, "none": c.push("os/worker", "none-"+kind)} {
			_, err := program.Try(t.Context(), cosign.Documented(t, refused, "verify-attestation", "--type", kind)...)
			require.Error(t, err, why)
		}
	}
}

// TestCosignAttests with its own key what Layerwright then verifies, and does not attest again.
func TestCosignAttests(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	program := c.cosign(nil)
	program.Run("generate-key-pair")
	public := program.Read("cosign.pub")
	key, err := sign.LoadKey(program.Read("cosign.key"), []byte(password))
	require.NoError(t, err)
	image := c.push("os/worker", "one")
	for kind, statement := range predicates {
		program.Write("predicate.json", statement.Predicate)
		program.Run("attest", "--key", "cosign.key", "--type", kind, "--predicate", "predicate.json", "--tlog-upload=false", "--yes", image)
		found, err := c.trust(public, "os/worker").VerifyAttestation(t.Context(), c.client, image, statement.PredicateType)
		require.NoError(t, err)
		require.Len(t, found, 1)
		_, err = c.trust(ours().Public, "os/worker").VerifyAttestation(t.Context(), c.client, image, statement.PredicateType)
		require.Error(t, err)
		again, err := sign.NewSigner(signtest.Keys{One: key}).Attest(t.Context(), c.client, image, statement)
		require.NoError(t, err)
		require.Zero(t, again[0].Added, "attested by cosign, it is not attested again with the same key")
	}
}

func attestationTag(image string) string {
	return strings.TrimSuffix(signatureTag(image), ".sig") + ".att"
}

// signing signs an image with the key in cosign.key, without asking or telling anybody.
func signing(image string) []string {
	return []string{"sign", "--key", "cosign.key", "--tlog-upload=false", "--yes", image}
}
