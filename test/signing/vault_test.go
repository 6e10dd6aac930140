//go:build signing

package signing_test

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	mcfgv1alpha1 "github.com/layerwright/layerwright/api/machineconfiguration/v1alpha1"
	"github.com/layerwright/layerwright/internal/fault"
	"github.com/layerwright/layerwright/test/kms"
	"github.com/layerwright/layerwright/trust/sign"
)

// TestVaultSigns, with each kind of key that nodes verify.
func TestVaultSigns(t *testing.T) {
	t.Parallel()
	c, vault := newCluster(t), kms.NewVault(t)
	for _, kind := range []string{"ecdsa-p256", "ecdsa-p384", "rsa-2048"} {
		vault.CreateKey(kind, kind)
		for _, scheme := range []string{"hashivault://", "openbao://"} {
			keys := kmsKeys(t, scheme+kind, "VAULT_ADDR="+vault.Address, "VAULT_TOKEN="+vault.TokenFor(kind))
			c.signAll(keys, c.push("os/worker", strings.TrimSuffix(scheme, "://")+kind))
		}
	}
	t.Run("with a token from a file, which an agent exchanges", func(t *testing.T) {
		t.Parallel()
		home := t.TempDir()
		keys := kmsKeys(t, "hashivault://rsa-2048", "VAULT_ADDR="+vault.Address, "HOME="+home)
		_, err := keys.Key(t.Context())
		require.ErrorContains(t, err, ".vault-token")
		for range 2 {
			require.NoError(t, os.WriteFile(home+"/.vault-token", []byte(vault.TokenFor("rsa-2048")), 0o600))
			keys = kmsKeys(t, "hashivault://rsa-2048", "VAULT_ADDR="+vault.Address, "HOME="+home)
			_, err = keys.Key(t.Context())
			require.NoError(t, err)
		}
	})
}

// TestVaultRotatesItsKey while images are signed with it.
func TestVaultRotatesItsKey(t *testing.T) {
	t.Parallel()
	c, vault := newCluster(t), kms.NewVault(t)
	vault.CreateKey("os", "ecdsa-p256")
	keys := kmsKeys(t, "hashivault://os", "VAULT_ADDR="+vault.Address, "VAULT_TOKEN="+vault.TokenFor("os"))
	before, err := keys.Key(t.Context())
	require.NoError(t, err)
	vault.RotateKey("os")
	image := c.push("os/worker", "one")
	_, err = sign.NewSigner(keys).Sign(t.Context(), c.client, image)
	require.ErrorContains(t, err, "the key of the service has changed")
	require.Equal(t, mcfgv1alpha1.ReasonWaitingForKey, fault.Reason(err))
	c.signAll(keys, image)
	after, err := keys.Key(t.Context())
	require.NoError(t, err)
	require.NotEqual(t, before.ID(), after.ID())
}

// TestVaultRefuses, or is away: what is said names flag, URI and what to do, and no token.
func TestVaultRefuses(t *testing.T) {
	t.Parallel()
	c, vault, gone := newCluster(t), kms.NewVault(t), kms.NewVault(t)
	vault.CreateKey("os", "ecdsa-p256")
	vault.CreateKey("edwards", "ed25519")
	gone.Stop()
	at, token := "VAULT_ADDR="+vault.Address, "VAULT_TOKEN="+vault.TokenFor("os")
	tests := map[string]refusal{
		"an unknown token":               {"hashivault://os", []string{at, "VAULT_TOKEN=hvs.hunter2-unknown"}, mcfgv1alpha1.ReasonWaitingForKey, []string{"Code: 403", "permission denied", "credentials that may use the key"}},
		"a key that it may not use":      {"hashivault://edwards", []string{at, token}, mcfgv1alpha1.ReasonWaitingForKey, []string{"permission denied"}},
		"a key that there is not":        {"hashivault://none", []string{at, "VAULT_TOKEN=" + vault.Token}, mcfgv1alpha1.ReasonWaitingForKey, []string{"could not read data from transit key path"}},
		"a key that nodes don't verify":  {"hashivault://edwards", []string{at, "VAULT_TOKEN=" + vault.Token}, mcfgv1alpha1.ReasonInvalidKey, []string{"nodes verify ECDSA and RSA alone"}},
		"a service that is away":         {"hashivault://os", []string{"VAULT_ADDR=" + gone.Address, token}, mcfgv1alpha1.ReasonWaitingForKey, []string{"connection refused", "reaches the service"}},
		"an address with a password":     {"hashivault://os", []string{strings.Replace(at, "://", "://user:hunter2@", 1), "VAULT_TOKEN=hvs.hunter2-unknown"}, mcfgv1alpha1.ReasonWaitingForKey, []string{"permission denied"}},
		"a token that can be no header":  {"hashivault://os", []string{at, "VAULT_TOKEN=hvs.hunter2\x01token"}, mcfgv1alpha1.ReasonWaitingForKey, []string{"non-printable"}},
		"a service that is not the one ": {"hashivault://os", []string{"VAULT_ADDR=http://" + c.host, token}, mcfgv1alpha1.ReasonWaitingForKey, []string{"the key \"hashivault://os\""}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := requireRefused(t, tt)
			for _, secret := range []string{"hunter2", strings.TrimPrefix(token, "VAULT_TOKEN="), vault.Token} {
				require.NotContains(t, err.Error(), secret)
			}
		})
	}
}

// TestVaultTakesTheKeyAway after the controller has had it.
func TestVaultTakesTheKeyAway(t *testing.T) {
	t.Parallel()
	c, vault := newCluster(t), kms.NewVault(t)
	vault.CreateKey("os", "ecdsa-p256")
	token := vault.TokenFor("os")
	keys := kmsKeys(t, "hashivault://os", "VAULT_ADDR="+vault.Address, "VAULT_TOKEN="+token)
	one := c.push("os/worker", "one")
	c.signAll(keys, one)
	vault.RevokeToken(token)
	other := c.push("os/worker", "other")
	_, err := sign.NewSigner(keys).Sign(t.Context(), c.client, other)
	require.ErrorContains(t, err, "permission denied")
	require.Equal(t, mcfgv1alpha1.ReasonWaitingForKey, fault.Reason(err))
	require.NotContains(t, err.Error(), token)
	signed, err := sign.NewSigner(keys).Sign(t.Context(), c.client, one)
	require.NoError(t, err, "what is signed stays so")
	require.Zero(t, signed.Added)
}
