package enforcement_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/builder/backend"
	"github.com/layerwright/layerwright/internal/registry/registrytest"
	"github.com/layerwright/layerwright/internal/status"
	"github.com/layerwright/layerwright/test/sigstore"
	"github.com/layerwright/layerwright/test/worldtest"
	"github.com/layerwright/layerwright/trust/enforcement"
	"github.com/layerwright/layerwright/trust/sign"
	"github.com/layerwright/layerwright/trust/signaturepolicy"
)

const policyName = "99-worker-layerwright-signature-policy"

func reconcilePolicy(w *worldtest.World, b *worldtest.Process) error {
	w.T.Helper()
	if b.Parts().Finder.Latest("worker") == nil { // the OS image has to be known
		_, err := w.ReconcileConfig(b, "worker")
		require.NoError(w.T, err)
	}
	result, err := b.Policies.Reconcile(w.T.Context(), worldtest.Request("worker"))
	if err == nil {
		assert.Positive(w.T, result.RequeueAfter, "secrets are not watched")
	}
	return err
}

// selecting makes the pool select MachineConfigs of its role.
func selecting(w *worldtest.World) {
	worldtest.Edit(w, &mcfgv1.MachineConfigPool{}, "worker", func(p *mcfgv1.MachineConfigPool) {
		p.Spec.MachineConfigSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"machineconfiguration.openshift.io/role": "worker"}}
	})
}

func policyText(t *testing.T, w *worldtest.World) string {
	t.Helper()
	mc := &mcfgv1.MachineConfig{}
	if client.IgnoreNotFound(w.Get(t.Context(), client.ObjectKey{Name: policyName}, mc)) != nil || mc.Name == "" {
		return ""
	}
	files, err := signaturepolicy.FilesOf(mc)
	require.NoError(t, err)
	require.Contains(t, files, "/etc/containers/policy.json")
	return string(files["/etc/containers/policy.json"])
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
	w := worldtest.Layered(t, "worker")
	selecting(w)
	b := w.Builder(w.Signing, w.Enforcing)
	require.NoError(t, reconcilePolicy(w, b))
	assert.Empty(t, policyText(t, w), "there is no key yet")

	w.Add(worldtest.FirstKey().Secret())
	require.NoError(t, reconcilePolicy(w, b))
	text := policyText(t, w)
	assert.Contains(t, text, `"`+w.Registry.Host+`/host/os": [`)
	assert.Contains(t, text, base64.StdEncoding.EncodeToString(worldtest.FirstKey().Public))
	mc := worldtest.Read(w, &mcfgv1.MachineConfig{}, policyName)
	assert.True(t, metav1.IsControlledBy(mc, w.OSConfig("worker")))
	assert.Equal(t, map[string]string{"machineconfiguration.openshift.io/role": "worker"}, mc.Labels)

	written := len(w.Writes)
	require.NoError(t, reconcilePolicy(w, b))
	assert.Len(t, w.Writes, written)

	worldtest.Edit(w, mc, policyName, func(mc *mcfgv1.MachineConfig) {
		mc.Spec.Config.Raw = []byte(`{"ignition":{"version":"3.2.0"}}`)
	})
	require.NoError(t, reconcilePolicy(w, b))
	assert.Equal(t, text, policyText(t, w), "what someone edits is put right")

	w.Remove(worldtest.FirstKey().Secret())
	require.NoError(t, reconcilePolicy(w, b))
	assert.Equal(t, text, policyText(t, w), "a key that is lost opens nodes to nothing")

	rotating := worldtest.SecondKey().Secret()
	rotating.Data[sign.SecretTrusted] = worldtest.FirstKey().Public
	w.Add(rotating)
	require.NoError(t, reconcilePolicy(w, b))
	both := policyText(t, w)
	assert.Contains(t, both, "keyDatas")
	for _, key := range []worldtest.KeyPair{worldtest.FirstKey(), worldtest.SecondKey()} {
		assert.Contains(t, both, base64.StdEncoding.EncodeToString(key.Public))
	}
	w.Remove(rotating)
	back := worldtest.FirstKey().Secret()
	back.Data[sign.SecretTrusted] = worldtest.SecondKey().Public
	w.Add(back)
	require.NoError(t, reconcilePolicy(w, b))
	assert.Equal(t, both, policyText(t, w), "which of them signs makes no other policy")
	w.Remove(back)
	w.Add(worldtest.SecondKey().Secret())
	require.NoError(t, reconcilePolicy(w, b))
	assert.NotContains(t, policyText(t, w), base64.StdEncoding.EncodeToString(worldtest.FirstKey().Public))
}

func TestPoliciesOfAdministratorsAreJoined(t *testing.T) {
	t.Parallel()
	const theirs = `{"default":[{"type":"reject"}],"transports":{"docker":{"quay.io":[{"type":"insecureAcceptAnything"}]}}}`
	w := worldtest.Layered(t, "worker")
	selecting(w)
	w.Add(worldtest.FirstKey().Secret(), ownPolicy("40-policy", inBase64(`{"default":[{"type":"insecureAcceptAnything"}]}`)), ownPolicy("50-policy", inBase64(theirs)))
	b := w.Builder(w.Signing, w.Enforcing)
	require.NoError(t, reconcilePolicy(w, b))
	text := policyText(t, w)
	assert.Contains(t, text, `"quay.io"`)
	assert.Contains(t, text, w.Registry.Host+"/host/os")
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
		"behind ours":          {ownPolicy("99-zz-policy", inBase64(`{"default":[{"type":"reject"}]}`)), `rename it, so that its name sorts before`},
		"one that is not ours": {ownPolicy(policyName, inBase64(`{"default":[{"type":"reject"}]}`)), "was made by someone else; remove it"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := worldtest.Layered(t, "worker")
			selecting(w)
			w.Add(worldtest.FirstKey().Secret(), tt.own)
			b := w.Builder(w.Signing, w.Enforcing)
			require.NoError(t, reconcilePolicy(w, b))
			told := strings.Join(w.Told(), "\n")
			assert.Contains(t, told, "Warning SignaturePolicyFailed")
			assert.Contains(t, told, tt.want)

			w.Settle(b)
			assert.Contains(t, w.Says("worker", status.Stalled), "True InvalidMachineConfig nodes are not made to require signatures: ")
			assert.Contains(t, w.Says("worker", mcfgv1.ConfigSignaturesEnforced), tt.want)
			w.Remove(tt.own)
			require.NoError(t, reconcilePolicy(w, b))
			w.Settle(b)
			assert.Equal(t, "True AsExpected", w.Says("worker", mcfgv1.ConfigSignaturesEnforced))
			assert.Contains(t, w.Says("worker", status.Ready), "True")
		})
	}
}

// TestPolicyOfACustomPool has a pool beside worker, whose name sorts before it: it selects the
// worker's signature policy too, and its own wins.
func TestPolicyOfACustomPool(t *testing.T) {
	t.Parallel()
	w := worldtest.Layered(t, "infra")
	worldtest.Edit(w, &mcfgv1.MachineConfigPool{}, "infra", func(p *mcfgv1.MachineConfigPool) {
		p.Spec.MachineConfigSelector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
			{Key: mcfgv1.LabelRole, Operator: metav1.LabelSelectorOpIn, Values: []string{"worker", "infra"}},
		}}
	})
	w.Add(worldtest.FirstKey().Secret(), ownPolicy(policyName, inBase64(strict)))
	b := w.Builder(w.Signing, w.Enforcing)
	_, err := w.ReconcileConfig(b, "infra")
	require.NoError(t, err)
	_, err = b.Policies.Reconcile(t.Context(), worldtest.Request("infra"))
	require.NoError(t, err)
	assert.NotContains(t, strings.Join(w.Told(), "\n"), "SignaturePolicyFailed")
	files, err := signaturepolicy.FilesOf(worldtest.Read(w, &mcfgv1.MachineConfig{}, "99-infra-layerwright-signature-policy"))
	require.NoError(t, err)
	assert.Contains(t, string(files[signaturepolicy.PolicyPath]), w.Registry.Host+"/host/os")
	assert.Contains(t, string(files[signaturepolicy.PolicyPath]), "quay.io/ours", "the worker's is kept")
}

func TestAPoolThatDoesNotSelectItsPolicy(t *testing.T) {
	t.Parallel()
	w := worldtest.Layered(t, "worker")
	w.Add(worldtest.FirstKey().Secret())
	b := w.Builder(w.Signing, w.Enforcing)
	require.NoError(t, reconcilePolicy(w, b))
	require.NoError(t, reconcilePolicy(w, b))
	assert.Contains(t, strings.Join(w.Told(), "\n"), `spec.machineConfigSelector of the pool "worker" does not select MachineConfig "`+policyName)
	w.Remove(w.OSConfig("worker"))
	_, err := b.Policies.Reconcile(t.Context(), worldtest.Request("worker"))
	require.NoError(t, err)
}

// onBase is a world whose pool is on an OS image with files, other ones for each architecture where
// there are several.
func onBase(t *testing.T, files ...map[string]string) *worldtest.World {
	t.Helper()
	w := worldtest.New(t)
	w.Add(worldtest.FirstKey().Secret())
	var images []v1.Image
	for i, content := range files {
		images = append(images, worldtest.Must(mutate.AppendLayers(worldtest.OSImage(t, "two", []string{"amd64", "arm64"}[i]), registrytest.Layer(t, content))))
	}
	w.Base = w.Registry.PushIndex(t, "stream/os:two", images...)
	w.Add(w.Rendered("worker", "1", "/etc/motd", "one"), worldtest.NewPool("worker", "rendered-worker-1"), w.Config("worker"))
	selecting(w)
	return w
}

const strict = `{"default":[{"type":"reject"}],"transports":{"docker":{"quay.io/ours":[{"type":"signedBy","keyType":"GPGKeys","keyPath":"/etc/pki/ours"}]}}}`

func TestThePolicyOfTheOSImageIsKept(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		files map[string]string
		keeps bool
	}{
		"of /etc":                   {map[string]string{"etc/containers/policy.json": strict}, true},
		"of /usr/share":             {map[string]string{"usr/share/containers/policy.json": strict}, true},
		"of /etc before /usr/share": {map[string]string{"etc/containers/policy.json": strict, "usr/share/containers/policy.json": "{"}, true},
		"too large for the index":   {map[string]string{"etc/containers/policy.json": strict + strings.Repeat(" ", 20<<10)}, true},
		"none":                      {map[string]string{"etc/containers/storage.conf": ""}, false},
		"one that accepts anything": {map[string]string{"etc/containers/policy.json": `{"default":[{"type":"insecureAcceptAnything"}]}`}, false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := onBase(t, tt.files)
			b := w.Builder(w.Signing, w.Enforcing)
			require.NoError(t, reconcilePolicy(w, b))
			text := policyText(t, w)
			assert.Contains(t, text, w.Registry.Host+"/host/os")
			assert.Equal(t, tt.keeps, strings.Contains(text, "quay.io/ours"), text)
			assert.Equal(t, !tt.keeps, strings.Contains(text, `"docker-daemon"`), "everything else is accepted only where it was before")

			w.Registry.Forget()
			written := len(w.Writes)
			require.NoError(t, reconcilePolicy(w, b))
			assert.Len(t, w.Writes, written)
			assert.Empty(t, w.Registry.Forget(), "an image is read once")
		})
	}
}

func TestMachineConfigOverridesImagePolicy(t *testing.T) {
	t.Parallel()
	w := onBase(t, map[string]string{
		"etc/containers/policy.json":                           strict,
		"etc/containers/registries.d/sigstore-registries.yaml": "docker:\n  quay.io/base:\n    use-sigstore-attachments: true\n",
	})
	w.Add(ownPolicy("50-policy", inBase64(`{"default":[{"type":"insecureAcceptAnything"}]}`)))
	require.NoError(t, reconcilePolicy(w, w.Builder(w.Signing, w.Enforcing)))
	assert.NotContains(t, policyText(t, w), "quay.io/ours", "nodes have that of the MachineConfig")
	files, err := signaturepolicy.FilesOf(worldtest.Read(w, &mcfgv1.MachineConfig{}, policyName))
	require.NoError(t, err)
	registries := files["/etc/containers/registries.d/sigstore-registries.yaml"]
	assert.Contains(t, string(registries), "quay.io/base:", "no one replaces this one")
	assert.Contains(t, string(registries), w.Registry.Host+"/host/os:")
}

// TestOtherFilesAboutARepository has files beside ours that name the same repository, which would
// keep nodes from pulling anything.
func TestOtherFilesAboutARepository(t *testing.T) {
	t.Parallel()
	const theirs = "docker:\n  r.example.com/os:\n    lookaside: https://example.com/\n"
	named := worldtest.Policy("repositories: [" + entry("r.example.com/os/*", worldtest.SecondKey()) + "]")
	mine := ownPolicy("50-registries", inBase64(theirs))
	mine.Spec.Config.Raw = bytes.ReplaceAll(mine.Spec.Config.Raw, []byte("policy.json"), []byte("registries.d/corp.yaml"))
	for name, w := range map[string]*worldtest.World{
		"of the OS image":    onBase(t, map[string]string{"etc/containers/registries.d/corp.yaml": theirs}),
		"too large":          onBase(t, map[string]string{"etc/containers/registries.d/corp.yaml": theirs + strings.Repeat("#", 20<<10)}),
		"of a MachineConfig": onBase(t, nil),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w.Add(named.DeepCopy())
			if name == "of a MachineConfig" {
				w.Add(mine)
			}
			b := w.Builder(w.Signing, w.Enforcing, w.Trusting)
			require.NoError(t, reconcilePolicy(w, b))
			assert.Empty(t, policyText(t, w))
			assert.Contains(t, strings.Join(w.Told(), "\n"), `/etc/containers/registries.d/corp.yaml names "r.example.com/os" too`)

			empty := mine.DeepCopy()
			empty.Name, empty.ResourceVersion = "60-registries", ""
			empty.Spec.Config.Raw = bytes.ReplaceAll(empty.Spec.Config.Raw, []byte(inBase64(theirs)), []byte("data:,"))
			w.Add(empty)
			require.NoError(t, reconcilePolicy(w, b))
			assert.Contains(t, policyText(t, w), "r.example.com/os")
		})
	}
}

func TestPoliciesOfOSImagesThatCannotBeKept(t *testing.T) {
	t.Parallel()
	const accepting = `{"default":[{"type":"insecureAcceptAnything"}]}`
	tests := map[string]struct {
		files []map[string]string
		want  string
	}{
		"no JSON":                  {[]map[string]string{{"etc/containers/policy.json": "{"}}, "reading /etc/containers/policy.json"},
		"a folder":                 {[]map[string]string{{"etc/containers/policy.json/x": "{"}}, "/etc/containers/policy.json of the OS image"},
		"another for each machine": {[]map[string]string{{"etc/containers/policy.json": strict}, {"etc/containers/policy.json": accepting}}, "has another /etc/containers/policy.json for ARM64 than for AMD64"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := onBase(t, tt.files...)
			b := w.Builder(w.Signing, w.Enforcing)
			require.NoError(t, reconcilePolicy(w, b))
			told := strings.Join(w.Told(), "\n")
			assert.Contains(t, told, "Warning SignaturePolicyFailed")
			assert.Contains(t, told, tt.want)
			assert.Empty(t, policyText(t, w), "nothing is dropped unseen")
		})
	}
}

func TestPolicyWaitsForTheOSImage(t *testing.T) {
	t.Parallel()
	w := onBase(t, map[string]string{"etc/containers/policy.json": strict})
	b := w.Builder(w.Signing, w.Enforcing)
	result, err := b.Policies.Reconcile(t.Context(), worldtest.Request("worker"))
	require.NoError(t, err)
	assert.Equal(t, enforcement.RecheckBase, result.RequeueAfter)
	assert.Empty(t, policyText(t, w))
}

// TestBuildsAcceptImagesOfTheController has a policy that makes nodes refuse what is not signed in
// the pool's repository. What a Containerfile starts from with "FROM configs" is there, and
// unsigned.
func TestBuildsAcceptImagesOfTheController(t *testing.T) {
	t.Parallel()
	for name, enforces := range map[string]bool{"where nodes insist": true, "where an administrator does": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, s, use := worldtest.WithContent(t, worldtest.ConfigsFirst)
			s.Says = func(backend.Spec) backend.State { return backend.State{Phase: backend.Pending} }
			files := worldtest.Must(signaturepolicy.MakeFiles(nil, []signaturepolicy.Repository{{Name: w.Registry.Host + "/host/os", Keys: [][]byte{worldtest.FirstKey().Public}}}))
			w.Rerender("worker", "2", "/etc/containers/policy.json", url.PathEscape(string(files[signaturepolicy.PolicyPath])))
			b := w.Builder(use, func(o *worldtest.Settings) {
				if enforces {
					w.Enforcing(o)
				}
			})
			w.FourRounds(b)
			spec := s.Only()
			var policy struct {
				Transports map[string]map[string][]map[string]any `json:"transports"`
			}
			require.NoError(t, json.Unmarshal(spec.Policy, &policy))
			accepts := []map[string]any{{"type": "insecureAcceptAnything"}}
			configs := spec.Architectures[0].Instructions.Images[0].Image
			assert.Contains(t, configs, w.Registry.Host+"/host/os@sha256:")
			assert.Equal(t, accepts, policy.Transports["docker"][configs])
			assert.Equal(t, "sigstoreSigned", policy.Transports["docker"][w.Registry.Host+"/host/os"][0]["type"], "everything else is as it was")
			_, base := policy.Transports["docker"][w.Base]
			assert.Equal(t, enforces, base, "the key for it may lie on nodes alone")
		})
	}
}

func TestNodesAreMadeToInsistOnAnIdentity(t *testing.T) {
	t.Parallel()
	w := worldtest.Layered(t, "worker")
	selecting(w)
	issuer, log := sigstore.NewIssuer(t), sigstore.NewLog(t)
	roots, key := filepath.Join(t.TempDir(), "roots.pem"), filepath.Join(t.TempDir(), "rekor.pub")
	require.NoError(t, os.WriteFile(key, log.PublicKey(), 0o600))
	b := w.Builder(w.Signing, func(o *worldtest.Settings) {
		o.Trust = sign.NewKeyless(sign.KeylessOptions{RootsFile: roots, LogKeyFile: key, Subject: "builder@example.com", Issuer: issuer.URL})
	})
	require.NoError(t, reconcilePolicy(w, b))
	assert.Empty(t, policyText(t, w), "there are no roots yet")
	require.NoError(t, os.WriteFile(roots, sigstore.NewAuthority(t, issuer).Roots(), 0o600))
	require.NoError(t, reconcilePolicy(w, b))
	assert.Contains(t, policyText(t, w), `"subjectEmail": "builder@example.com"`)
	assert.Contains(t, policyText(t, w), `"oidcIssuer": "`+issuer.URL+`"`)
}
