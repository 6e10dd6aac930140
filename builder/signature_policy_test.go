package builder

import (
	"encoding/base64"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	apitypes "k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/internal/sign"
	"github.com/layerwright/layerwright/test/sigstore"
)

const policyName = "99-worker-layerwright-signature-policy"

// enforcing makes a Builder that makes nodes insist on the key of the Secret "signing".
func (w *world) enforcing(o *Options) {
	o.Trust = sign.NewSecretKeys(sign.SecretOptions{Reader: w, Secret: apitypes.NamespacedName{Namespace: namespace, Name: "signing"}})
}

func (w *world) passPolicy(b *Builder) error {
	w.t.Helper()
	result, err := (&policyReconciler{b}).Reconcile(w.t.Context(), request("worker"))
	if err == nil {
		assert.Positive(w.t, result.RequeueAfter, "secrets are not watched")
	}
	return err
}

// selecting makes the pool select MachineConfigs of its role.
func (w *world) selecting() {
	edit(w, &mcfgv1.MachineConfigPool{}, "worker", func(p *mcfgv1.MachineConfigPool) {
		p.Spec.MachineConfigSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"machineconfiguration.openshift.io/role": "worker"}}
	})
}

func (w *world) policyText(t *testing.T) string {
	t.Helper()
	mc := &mcfgv1.MachineConfig{}
	if client.IgnoreNotFound(w.Get(t.Context(), client.ObjectKey{Name: policyName}, mc)) != nil || mc.Name == "" {
		return ""
	}
	text, has, err := fileOf(mc, "/etc/containers/policy.json")
	require.NoError(t, err)
	require.True(t, has)
	return string(text)
}

func ownPolicy(name, source string) *mcfgv1.MachineConfig {
	return &mcfgv1.MachineConfig{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"machineconfiguration.openshift.io/role": "worker"}},
		Spec: mcfgv1.MachineConfigSpec{Config: runtime.RawExtension{Raw: []byte(
			`{"ignition":{"version":"3.2.0"},"storage":{"files":[{"path":"/etc/containers/policy.json","contents":{"source":"` + source + `"}}]}}`)}},
	}
}

func inBase64(text string) string {
	return "data:;base64," + base64.StdEncoding.EncodeToString([]byte(text))
}

func TestNodesAreMadeToInsistOnSignatures(t *testing.T) {
	t.Parallel()
	w := layered(t, "worker")
	w.selecting()
	b := w.builder(w.signing, w.enforcing)
	require.NoError(t, w.passPolicy(b))
	assert.Empty(t, w.policyText(t), "there is no key yet")

	w.add(firstKey().secret())
	require.NoError(t, w.passPolicy(b))
	text := w.policyText(t)
	assert.Contains(t, text, `"`+w.registry.host+`/host/os": [`)
	assert.Contains(t, text, base64.StdEncoding.EncodeToString(firstKey().public))
	mc := read(w, &mcfgv1.MachineConfig{}, policyName)
	assert.True(t, metav1.IsControlledBy(mc, w.osConfig("worker")))
	assert.Equal(t, map[string]string{"machineconfiguration.openshift.io/role": "worker"}, mc.Labels)

	written := len(w.writes)
	require.NoError(t, w.passPolicy(b))
	assert.Len(t, w.writes, written)

	edit(w, mc, policyName, func(mc *mcfgv1.MachineConfig) {
		mc.Spec.Config.Raw = []byte(`{"ignition":{"version":"3.2.0"}}`)
	})
	require.NoError(t, w.passPolicy(b))
	assert.Equal(t, text, w.policyText(t), "what somebody edits is put right")

	w.remove(firstKey().secret())
	require.NoError(t, w.passPolicy(b))
	assert.Equal(t, text, w.policyText(t), "a key that is lost opens nodes to nothing")

	rotating := secondKey().secret()
	rotating.Data[sign.SecretTrusted] = firstKey().public
	w.add(rotating)
	require.NoError(t, w.passPolicy(b))
	both := w.policyText(t)
	assert.Contains(t, both, "keyDatas")
	for _, key := range []keyPair{firstKey(), secondKey()} {
		assert.Contains(t, both, base64.StdEncoding.EncodeToString(key.public))
	}
	w.remove(rotating)
	w.add(secondKey().secret())
	require.NoError(t, w.passPolicy(b))
	assert.NotContains(t, w.policyText(t), base64.StdEncoding.EncodeToString(firstKey().public))
}

func TestPoliciesOfAdministratorsAreJoined(t *testing.T) {
	t.Parallel()
	const theirs = `{"default":[{"type":"reject"}],"transports":{"docker":{"quay.io":[{"type":"insecureAcceptAnything"}]}}}`
	w := layered(t, "worker")
	w.selecting()
	w.add(firstKey().secret(), ownPolicy("40-policy", inBase64(`{"default":[{"type":"insecureAcceptAnything"}]}`)), ownPolicy("50-policy", inBase64(theirs)))
	b := w.builder(w.signing, w.enforcing)
	require.NoError(t, w.passPolicy(b))
	text := w.policyText(t)
	assert.Contains(t, text, `"quay.io"`)
	assert.Contains(t, text, w.registry.host+"/host/os")
	assert.NotContains(t, text, "docker-daemon", "theirs rejects by default")
}

func TestPoliciesThatCannotBeJoined(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		own  *mcfgv1.MachineConfig
		want string
	}{
		"no JSON":              {ownPolicy("50-policy", inBase64("{")), "reading /etc/containers/policy.json"},
		"by URL":               {ownPolicy("50-policy", `https://example.com/policy.json","verification":{"hash":"sha256-`+strings.Repeat("0", 64)+`"},"compression":"`), `MachineConfig "50-policy": file "/etc/containers/policy.json": it is by URL`},
		"behind ours":          {ownPolicy("99-zz-policy", inBase64(`{"default":[{"type":"reject"}]}`)), `its name sorts behind that; rename it`},
		"one that is not ours": {ownPolicy(policyName, inBase64(`{"default":[{"type":"reject"}]}`)), "was made by somebody else; remove it"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := layered(t, "worker")
			w.selecting()
			w.add(firstKey().secret(), tt.own)
			require.NoError(t, w.passPolicy(w.builder(w.signing, w.enforcing)))
			told := strings.Join(w.told(), "\n")
			assert.Contains(t, told, "Warning SignaturePolicyFailed")
			assert.Contains(t, told, tt.want)
		})
	}
}

func TestAPoolThatDoesNotSelectItsPolicy(t *testing.T) {
	t.Parallel()
	w := layered(t, "worker")
	w.add(firstKey().secret())
	b := w.builder(w.signing, w.enforcing)
	require.NoError(t, w.passPolicy(b))
	require.NoError(t, w.passPolicy(b))
	assert.Contains(t, strings.Join(w.told(), "\n"), `spec.machineConfigSelector of the pool "worker" does not select MachineConfig "`+policyName)
	w.remove(w.osConfig("worker"))
	_, err := (&policyReconciler{b}).Reconcile(t.Context(), request("worker"))
	require.NoError(t, err)
}

func TestNodesAreMadeToInsistOnAnIdentity(t *testing.T) {
	t.Parallel()
	w := layered(t, "worker")
	w.selecting()
	issuer, log := sigstore.NewIssuer(t), sigstore.NewRekor(t)
	roots, key := filepath.Join(t.TempDir(), "roots.pem"), filepath.Join(t.TempDir(), "rekor.pub")
	require.NoError(t, os.WriteFile(key, log.PublicKey(), 0o600))
	b := w.builder(w.signing, func(o *Options) {
		o.Trust = sign.NewKeyless(sign.KeylessOptions{RootsFile: roots, LogKeyFile: key, Subject: "builder@example.com", Issuer: issuer.URL})
	})
	require.NoError(t, w.passPolicy(b))
	assert.Empty(t, w.policyText(t), "there are no roots yet")
	require.NoError(t, os.WriteFile(roots, sigstore.NewAuthority(t, issuer).Roots(), 0o600))
	require.NoError(t, w.passPolicy(b))
	assert.Contains(t, w.policyText(t), `"subjectEmail": "builder@example.com"`)
	assert.Contains(t, w.policyText(t), `"oidcIssuer": "`+issuer.URL+`"`)
}
