package signing_test

import (
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	mcfgv1alpha1 "github.com/layerwright/layerwright/api/machineconfiguration/v1alpha1"
	"github.com/layerwright/layerwright/internal/fault"
	"github.com/layerwright/layerwright/test/cosign"
	"github.com/layerwright/layerwright/test/kms"
	"github.com/layerwright/layerwright/trust/sign"
	"github.com/layerwright/layerwright/trust/sign/kmskey"
	"github.com/layerwright/layerwright/trust/sign/signtest"
)

// kmsKeys are the keys of a service, by the program of the controller's image.
func kmsKeys(t *testing.T, uri string, environment ...string) *kmskey.Keys {
	t.Helper()
	return kmskey.New(kmskey.Options{URI: uri, LookPath: kms.FindPrograms(t).LookPath, Environment: func() []string { return environment }})
}

// signAll signs and attests an image, and reports whether cosign and nodes take it.
func (c *cluster) signAll(keys *kmskey.Keys, image string) {
	c.t.Helper()
	key, err := keys.Key(c.t.Context())
	require.NoError(c.t, err)
	signer := sign.NewSigner(keys)
	_, err = signer.Attest(c.t.Context(), c.client, image, predicates["slsaprovenance1"])
	require.NoError(c.t, err)
	signed, err := signer.Sign(c.t.Context(), c.client, image)
	require.NoError(c.t, err)
	require.Equal(c.t, key.ID(), signed.KeyID)
	public := key.Public().PEM()
	program := c.cosign(public)
	program.Run(cosign.Documented(c.t, image, "verify")...)
	program.Run(cosign.Documented(c.t, image, "verify-attestation", "--type", "slsaprovenance1")...)
	require.NoError(c.t, c.pull(image, signtest.Pair{Public: public}), "and so do nodes")
}

// refusal is a key that can't be used, and what is said of it.
type refusal struct {
	uri         string
	environment []string
	reason      string
	want        []string
}

// requireRefused gives the error, which names flag, URI and what to do.
func requireRefused(t *testing.T, tt refusal) error {
	t.Helper()
	_, err := kmsKeys(t, tt.uri, append(slices.Clone(tt.environment), "HOME="+t.TempDir(), "VAULT_MAX_RETRIES=0")...).Key(t.Context())
	require.Error(t, err)
	require.Equal(t, tt.reason, fault.Reason(err), err)
	for _, want := range append(slices.Clone(tt.want), "--signing-kms-key", tt.uri) {
		require.ErrorContains(t, err, want)
	}
	return err
}

func TestKeysThatNoServiceCanHave(t *testing.T) {
	t.Parallel()
	tests := map[string]refusal{
		"no address":                   {"hashivault://os", nil, mcfgv1alpha1.ReasonWaitingForKey, []string{"VAULT_ADDR or BAO_ADDR is not set"}},
		"no key of Vault's":            {"hashivault://transit/keys/os", nil, mcfgv1alpha1.ReasonInvalidKey, []string{"should be in the format hashivault://<key>"}},
		"no key of AWS's":              {"awskms://os", nil, mcfgv1alpha1.ReasonInvalidKey, []string{"should be in the format awskms://"}},
		"no key of Google's":           {"gcpkms://os", nil, mcfgv1alpha1.ReasonInvalidKey, []string{"should be in the format gcpkms://projects/"}},
		"no key of Azure's":            {"azurekms://os", nil, mcfgv1alpha1.ReasonInvalidKey, []string{"should be in the format azurekms://"}},
		"nothing to use Google's with": {"gcpkms://projects/p/locations/l/keyRings/r/cryptoKeys/os", []string{"GOOGLE_APPLICATION_CREDENTIALS=/nowhere"}, mcfgv1alpha1.ReasonWaitingForKey, []string{"/nowhere"}},
		"a service that no one speaks": {"myhsm://os", nil, mcfgv1alpha1.ReasonInvalidKey, []string{`no program "sigstore-kms-myhsm" in the PATH`}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_ = requireRefused(t, tt)
		})
	}
}

// TestAWSSigns, or what stands in for it.
func TestAWSSigns(t *testing.T) {
	t.Parallel()
	c, aws := newCluster(t), kms.NewAWS(t)
	keys := kmsKeys(t, aws.URI, aws.Environment()...)
	image := c.push("os/worker", "one")
	c.signAll(keys, image)
	aws.Deny()
	_, err := sign.NewSigner(keys).Sign(t.Context(), c.client, c.push("os/worker", "other"))
	require.ErrorContains(t, err, "AccessDeniedException")
	require.ErrorContains(t, err, aws.URI)
	require.NotContains(t, err.Error(), kms.AWSSecretKey)
}

func TestAWSRefuses(t *testing.T) {
	t.Parallel()
	aws := kms.NewAWS(t)
	tests := map[string]struct {
		uri         string
		environment []string
		want        string
	}{
		"a key that there is not":          {"awskms://" + aws.Host() + "/alias/none", aws.Environment(), "NotFoundException"},
		"unknown credentials":              {aws.URI, append(aws.Environment(), "AWS_ACCESS_KEY_ID=AKIDOTHER"), "UnrecognizedClientException"},
		"no credentials":                   {aws.URI, []string{"AWS_REGION=eu-central-1", "AWS_EC2_METADATA_DISABLED=true"}, "credentials"},
		"a service that no one stands for": {aws.URI, append(aws.Environment(), "SSL_CERT_FILE=/dev/null"), "certificate"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := kmsKeys(t, tt.uri, append(tt.environment, "AWS_MAX_ATTEMPTS=1")...).Key(t.Context())
			require.ErrorContains(t, err, tt.want)
			require.ErrorContains(t, err, "--signing-kms-key")
			require.Equal(t, mcfgv1alpha1.ReasonWaitingForKey, fault.Reason(err))
			require.NotContains(t, err.Error(), kms.AWSSecretKey)
		})
	}
}

// TestManyImagesAreSignedAtOnce with one key of a service.
func TestManyImagesAreSignedAtOnce(t *testing.T) {
	t.Parallel()
	c, aws := newCluster(t), kms.NewAWS(t)
	keys := kmsKeys(t, aws.URI, aws.Environment()...)
	images := make([]string, 8)
	for i := range images {
		images[i] = c.push("os/worker", "at-once-"+string(rune('a'+i)))
	}
	var wait sync.WaitGroup
	failed := make(chan error, len(images))
	for _, image := range images {
		wait.Go(func() {
			_, err := sign.NewSigner(keys).Sign(t.Context(), c.client, image)
			failed <- err
		})
	}
	wait.Wait()
	close(failed)
	for err := range failed {
		require.NoError(t, err)
	}
	key, err := keys.Key(t.Context())
	require.NoError(t, err)
	for _, image := range images {
		_, err := c.trust(key.Public().PEM(), "os/worker").Verify(t.Context(), c.client, image)
		require.NoError(t, err)
	}
}

// TestAServiceThatNeverAnswers keeps no one for longer than it may.
func TestAServiceThatNeverAnswers(t *testing.T) {
	t.Parallel()
	silent := silentListener(t)
	_, err := kmskey.New(kmskey.Options{
		URI: "hashivault://os", LookPath: kms.FindPrograms(t).LookPath, Timeout: time.Second,
		Environment: func() []string { return []string{"VAULT_ADDR=http://" + silent, "VAULT_TOKEN=hvs.hunter2"} },
	}).Key(t.Context())
	require.ErrorContains(t, err, `"hashivault://os" of --signing-kms-key: the service has not answered within 1s`)
	require.Equal(t, mcfgv1alpha1.ReasonWaitingForKey, fault.Reason(err))
}

// silentListener is the address of a service that takes connections and says nothing.
func silentListener(t *testing.T) string {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, listener.Close()) })
	return listener.Addr().String()
}
