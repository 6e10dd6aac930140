//go:build e2e && signing

package e2e

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	mcfgv1alpha1 "github.com/layerwright/layerwright/api/machineconfiguration/v1alpha1"
	"github.com/layerwright/layerwright/test/cluster/pki"
	"github.com/layerwright/layerwright/test/cluster/stack"
	"github.com/layerwright/layerwright/test/cosign"
	"github.com/layerwright/layerwright/test/sigstore"
)

// controllerAccount is who the controller is to Fulcio.
const controllerAccount = "https://kubernetes.io/namespaces/" + stack.Namespace + "/serviceaccounts/" + stack.ControllerName

// services are a Fulcio that knows the cluster, and a Rekor, as the controller reaches them.
type services struct {
	fulcio    *sigstore.Fulcio
	rekor     *sigstore.Rekor
	issuer    string
	fulcioURL string
	rekorURL  string
	authority []byte // that of their certificates

	mu sync.Mutex
	// away reports whether Fulcio does not answer, and tokens are those that it was given.
	away   bool
	tokens []string
}

// newServices starts both. Fulcio runs in the cluster's network, where the issuer of tokens has its
// name; Rekor knows nothing of the cluster.
func newServices(t *testing.T, b *builds) *services {
	t.Helper()
	discovery := b.clients.RESTClient().Get().AbsPath("/.well-known/openid-configuration")
	text, err := discovery.DoRaw(t.Context())
	require.NoError(t, err)
	var said struct {
		Issuer string `json:"issuer"`
	}
	require.NoError(t, json.Unmarshal(text, &said))
	authority := &corev1.ConfigMap{}
	require.NoError(t, b.Get(t.Context(), client.ObjectKey{Namespace: stack.Namespace, Name: "kube-root-ca.crt"}, authority))
	bindings := b.clients.RbacV1().ClusterRoleBindings()
	binding, err := bindings.Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "fulcio"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "system:service-account-issuer-discovery"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: "system:unauthenticated"}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, bindings.Delete(context.WithoutCancel(t.Context()), binding.Name, metav1.DeleteOptions{}))
	})
	config, err := yaml.Marshal(map[string]any{"oidc-issuers": map[string]any{said.Issuer: map[string]string{
		"issuer-url": said.Issuer, "client-id": sigstore.Audience, "type": "kubernetes", "ca-cert": authority.Data["ca.crt"],
	}}})
	require.NoError(t, err)
	within, err := b.status.Within()
	require.NoError(t, err)
	s := &services{issuer: said.Issuer, rekor: sigstore.NewRekor(t)}
	s.fulcio = sigstore.StartFulcio(t, sigstore.FulcioOptions{
		Config: string(config), Command: within, Listen: b.status.Listen, Dial: b.status.Dial,
	})
	certificates, err := pki.New(t.TempDir())
	require.NoError(t, err)
	require.NoError(t, certificates.EnsureAuthority("authority"))
	s.authority, err = os.ReadFile(certificates.Cert("authority"))
	require.NoError(t, err)
	s.fulcioURL = serveWithTLS(t, b, certificates, "fulcio", s.watched(proxyTo(t, s.fulcio.URL, &http.Transport{DialContext: b.status.Dial})))
	s.rekorURL = serveWithTLS(t, b, certificates, "rekor", proxyTo(t, s.rekor.URL, http.DefaultTransport))
	return s
}

// serveWithTLS serves in the network of the cluster with a certificate, and gives the URL.
func serveWithTLS(t *testing.T, b *builds, certificates *pki.Store, name string, handler http.Handler) string {
	t.Helper()
	listener := listenInside(t, b.status)
	host, _, err := net.SplitHostPort(listener.Addr().String())
	require.NoError(t, err)
	require.NoError(t, certificates.EnsureLeaf("authority", pki.Leaf{Name: name, CommonName: name, Hosts: []string{host}}))
	pair, err := tls.LoadX509KeyPair(certificates.Cert(name), certificates.Key(name))
	require.NoError(t, err)
	return "https://" + serve(t, tls.NewListener(listener, &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}), handler)
}

func proxyTo(t *testing.T, to string, transport http.RoundTripper) http.Handler {
	t.Helper()
	target, err := url.Parse(to)
	require.NoError(t, err)
	return &httputil.ReverseProxy{Transport: transport, Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) }}
}

// watched keeps the tokens that are sent to Fulcio, and answers nothing while it is away.
func (s *services) watched(fulcio http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text, err := io.ReadAll(r.Body)
		var request struct {
			Credentials struct {
				Token string `json:"oidcIdentityToken"`
			} `json:"credentials"`
		}
		if err != nil || json.Unmarshal(text, &request) != nil {
			http.Error(w, "no request", http.StatusBadRequest)
			return
		}
		s.mu.Lock()
		away := s.away
		if token := request.Credentials.Token; !slices.Contains(s.tokens, token) {
			s.tokens = append(s.tokens, token)
		}
		s.mu.Unlock()
		if away {
			panic(http.ErrAbortHandler)
		}
		r.Body = io.NopCloser(bytes.NewReader(text))
		fulcio.ServeHTTP(w, r)
	})
}

// setAway has Fulcio answer or not.
func (s *services) setAway(away bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.away = away
}

// sent are the tokens that Fulcio was given.
func (s *services) sent() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.tokens)
}

// deploy has the controller sign with them, as docs/signing-services.md says it, until the test
// ends.
func (s *services) deploy(t *testing.T, b *builds) {
	t.Helper()
	files := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: stack.Namespace, Name: "sigstore"},
		Data:       map[string]string{"roots.pem": string(s.fulcio.Roots), "rekor.pub": string(s.rekor.PublicKey), "ca.crt": string(s.authority)},
	}
	require.NoError(t, b.Create(t.Context(), files))
	t.Cleanup(func() { require.NoError(t, b.Delete(context.WithoutCancel(t.Context()), files)) })
	here := strings.NewReplacer("https://fulcio.example.com", s.fulcioURL, "https://rekor.example.com", s.rekorURL)
	b.signAsDocumented(t, "in place of the component that signs with a key:", here,
		addTo("env", map[string]any{"name": "SSL_CERT_DIR", "value": "/etc/sigstore"}), // beside the registry's
		addTo("volumeMounts", map[string]any{"name": "authority", "mountPath": "/etc/sigstore", "readOnly": true}),
		map[string]any{"op": "add", "path": "/spec/template/spec/volumes/-", "value": map[string]any{
			"name": "authority", "configMap": map[string]any{"name": "sigstore", "items": []any{map[string]any{"key": "ca.crt", "path": "ca.crt"}}},
		}})
}

// signAsDocumented has the controller sign as the patch in docs/signing-services.md that follows
// some words says it, and some more operations, until the test ends; here says what is named
// otherwise.
func (b *builds) signAsDocumented(t *testing.T, words string, here *strings.Replacer, more ...any) {
	t.Helper()
	var overlay struct {
		Patches []struct {
			Patch string `json:"patch"`
		} `json:"patches"`
	}
	require.NoError(t, yaml.Unmarshal(documented(t, words), &overlay))
	require.Len(t, overlay.Patches, 1)
	var operations []any
	require.NoError(t, yaml.Unmarshal([]byte(here.Replace(overlay.Patches[0].Patch)), &operations))
	deployments := b.clients.AppsV1().Deployments(stack.Namespace)
	deployment, err := deployments.Get(t.Context(), stack.ControllerName, metav1.GetOptions{})
	require.NoError(t, err)
	before := deployment.Spec.Template.Spec
	without := slices.DeleteFunc(slices.Clone(before.Containers[0].Args), func(arg string) bool { // without the component
		return arg == "--signing-secret="+signingKey || arg == "--generate-signing-key"
	})
	patch := append([]any{map[string]any{"op": "replace", "path": "/spec/template/spec/containers/0/args", "value": without}}, operations...)
	text, err := json.Marshal(append(patch, more...))
	require.NoError(t, err)
	deployment, err = deployments.Patch(t.Context(), stack.ControllerName, types.JSONPatchType, text, metav1.PatchOptions{})
	require.NoError(t, err)
	t.Cleanup(func() { b.setPod(t, func(pod *corev1.PodSpec) { *pod = before }) })
	b.runs(t, deployment.Generation)
}

// addTo is the operation that adds to a list of the controller's container.
func addTo(list string, value any) map[string]any {
	return map[string]any{"op": "add", "path": "/spec/template/spec/containers/0/" + list + "/-", "value": value}
}

// documented is the first YAML in docs/signing-services.md after some words.
func documented(t *testing.T, words string) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(repository, "docs", "signing-services.md"))
	require.NoError(t, err)
	_, text, found := bytes.Cut(text, []byte(words))
	require.True(t, found, words)
	_, text, found = bytes.Cut(text, []byte("```yaml\n"))
	require.True(t, found)
	text, _, _ = bytes.Cut(text, []byte("```\n"))
	return text
}

// TestSigningServices has the cluster sign with the real Fulcio, Rekor and Vault.
func TestSigningServices(t *testing.T) { //nolint:paralleltest // both deploy the one controller
	t.Run("images are signed without a key", testImagesAreSignedWithoutAKey)
	t.Run("images are signed with a key of a service", testImagesAreSignedWithAKeyOfAService)
}

// testImagesAreSignedWithoutAKey has the controller sign with the token of its own service account:
// its image waits for Fulcio, and is signed when that is there.
func testImagesAreSignedWithoutAKey(t *testing.T) {
	b := newBuilds(t)
	s := newServices(t, b)
	s.setAway(true)
	s.deploy(t, b)
	p := b.unasked(t, "without-a-key", func(mc *mcfgv1.MachineConfig) { // the hunt looks for its name, also in the layer
		mc.Spec.Config.Raw = bytes.Replace(mc.Spec.Config.Raw, []byte("data:,one"), []byte("data:,without-a-key"), 1)
	})
	p.ask()
	var waiting string
	p.eventually(func(t *assert.CollectT) {
		builds, images := p.machineOSBuilds(p.t.Context(), t), p.machineOSImages(p.t.Context(), t)
		require.Len(t, builds, 1)
		require.Len(t, images, 1)
		waiting = images[0].Name
		why := fmt.Sprintf("asking Fulcio at %q for a certificate: ", s.fulcioURL)
		assert.Contains(t, conditionText(builds[0].Status.Conditions, mcfgv1.BuildBuilding), "True "+mcfgv1.ReasonWaitingForSignature+" ")
		assert.Contains(t, conditionText(builds[0].Status.Conditions, mcfgv1.BuildBuilding), why)
		attested := conditionText(images[0].Status.Conditions, mcfgv1alpha1.ImageAttested)
		assert.Contains(t, attested, "False "+mcfgv1alpha1.ReasonWaitingForKey+" ")
		assert.Contains(t, attested, why)
		assert.Nil(t, images[0].Status.Signature)
	})
	p.toldOf(waiting, "ImageNotAttested", mcfgv1alpha1.ReasonWaitingForKey+": attesting ")
	assert.Zero(t, s.rekor.Len(), "nothing is logged of what is not signed")

	s.setAway(false)
	image := p.ready("")
	id := sha256.Sum256([]byte(s.issuer + "\n" + controllerAccount))
	p.eventually(func(t *assert.CollectT) {
		object := p.objectOf(t, image)
		assert.Equal(t, "True Signed", conditionText(object.Status.Conditions, mcfgv1alpha1.ImageSigned))
		assert.Contains(t, conditionText(object.Status.Conditions, mcfgv1alpha1.ImageAttested), "True ")
		require.NotNil(t, object.Status.Signature)
		assert.Equal(t, hex.EncodeToString(id[:]), object.Status.Signature.KeyID)
		assert.Equal(t, repositoryOf(image)+":"+attachedTo(image, "sig"), object.Status.Signature.Reference)
	})
	p.requireOneImage(p.name)
	assert.Len(t, p.told("BuildStarted"), 1, "nothing is built again")

	p.requireKeyless(s, image)
	tokens := map[string][]byte{}
	for _, token := range s.sent() {
		tokens[fmt.Sprintf("token %d", len(tokens)+1)] = []byte(token)
	}
	require.NotEmpty(t, tokens)
	hunt := huntFor(t, p, tokens)
	hunt.cluster(t)
	hunt.registry(t, p)
	hunt.requireNothing(t)
}

// requireKeyless makes sure that cosign takes an image for that of the controller's account, and
// for no one else's, and that all is in the log.
func (p *layered) requireKeyless(s *services, image string) {
	p.t.Helper()
	login, err := os.ReadFile(named(p.t, p.builds.cluster).DockerConfig("pull") + "/config.json")
	require.NoError(p.t, err)
	program := cosign.New(p.t, cosign.Options{Login: login, CA: p.status.RegistryCA, Roots: s.fulcio.Roots, LogKey: s.rekor.PublicKey})
	behind := p.behind(p.t, image).String()
	for _, begin := range [][]string{{"verify"}, {"verify-attestation", "--type", "slsaprovenance1"}} {
		try := func(subject, issuer string) error {
			_, err := program.Try(p.t.Context(), append(cosign.DocumentedKeyless(p.t, behind, subject, issuer, begin...), "--insecure-ignore-sct")...)
			return err
		}
		require.NoError(p.t, try(controllerAccount, s.issuer))
		require.ErrorContains(p.t, try(strings.Replace(controllerAccount, "/layerwright/", "/default/", 1), s.issuer), "none of the expected identities matched")
		require.ErrorContains(p.t, try(controllerAccount, "https://issuer.example.com"), "none of the expected identities matched")
	}
	entries := s.rekor.Len()
	require.GreaterOrEqual(p.t, entries, 3, "the signature, the provenance and the SBOM")
	for i := range entries {
		require.NoError(p.t, s.rekor.Proven(s.rekor.Entry(int64(i))))
	}
}
