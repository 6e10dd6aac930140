//go:build e2e && signing

package e2e

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/yaml"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	mcfgv1alpha1 "github.com/layerwright/layerwright/api/machineconfiguration/v1alpha1"
	"github.com/layerwright/layerwright/internal/status"
	"github.com/layerwright/layerwright/test/cluster/pki"
	"github.com/layerwright/layerwright/test/cluster/stack"
	"github.com/layerwright/layerwright/test/cosign"
	"github.com/layerwright/layerwright/test/kms"
)

// What the overlay for Vault in docs/signing-services.md names.
const (
	vaultName = "vault" // of the namespace, too
	vaultPort = 8200
	vaultKey  = "hashivault://os"
)

// vaultService is Vault where docs/signing-services.md has it: behind a Service, with a certificate
// of its own authority.
type vaultService struct {
	*kms.Vault
	*builds
	// token is the one that the controller has.
	token string
	// address is the Service's, and trust what its clients know of it.
	address string
	trust   *tls.Config
	slice   *discoveryv1.EndpointSlice
}

// newVaultService starts it, and writes the secret and the policy that the controller reaches it
// with.
func newVaultService(t *testing.T, b *builds) *vaultService {
	t.Helper()
	v := &vaultService{Vault: kms.NewVault(t), builds: b}
	v.CreateKey("os", "ecdsa-p256")
	v.token = v.TokenFor("os")
	host := vaultName + "." + vaultName + ".svc"
	store, err := pki.New(t.TempDir())
	require.NoError(t, err)
	require.NoError(t, store.EnsureAuthority("authority"))
	require.NoError(t, store.EnsureLeaf("authority", pki.Leaf{Name: vaultName, Hosts: []string{host}}))
	certificate, err := tls.LoadX509KeyPair(store.Cert(vaultName), store.Key(vaultName))
	require.NoError(t, err)
	authority, err := os.ReadFile(store.Cert("authority"))
	require.NoError(t, err)
	v.trust = &tls.Config{RootCAs: x509.NewCertPool(), ServerName: host, MinVersion: tls.VersionTLS12}
	require.True(t, v.trust.RootCAs.AppendCertsFromPEM(authority))
	listener := tls.NewListener(listenInside(t, b.status), &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12})
	v.serveAs(t, serve(t, listener, proxyTo(t, v.Address, http.DefaultTransport)))

	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: stack.Namespace, Name: "vault-token"},
		Data:       map[string][]byte{".vault-token": []byte(v.token + "\n"), "ca.crt": authority},
	}
	require.NoError(t, b.Create(t.Context(), secret))
	t.Cleanup(func() { require.NoError(t, b.Delete(context.WithoutCancel(t.Context()), secret)) })
	v.open(t)
	return v
}

// serveAs makes the Service, for what listens at an address.
func (v *vaultService) serveAs(t *testing.T, listens string) {
	t.Helper()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: vaultName}}
	require.NoError(t, v.Create(t.Context(), namespace))
	t.Cleanup(func() { require.NoError(t, v.Delete(context.WithoutCancel(t.Context()), namespace)) })
	service := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: vaultName, Name: vaultName},
		Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: vaultPort}}},
	}
	require.NoError(t, v.Create(t.Context(), service))
	v.address = net.JoinHostPort(service.Spec.ClusterIP, strconv.Itoa(vaultPort))
	host, port, err := net.SplitHostPort(listens)
	require.NoError(t, err)
	number, err := strconv.ParseInt(port, 10, 32)
	require.NoError(t, err)
	v.slice = &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Namespace: vaultName, Name: vaultName, Labels: map[string]string{discoveryv1.LabelServiceName: vaultName}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{host}}},
		Ports:       []discoveryv1.EndpointPort{{Name: new(""), Port: new(int32(number))}},
	}
	v.setAway(t, false)
}

// setAway has the Service lead nowhere, or to Vault, and waits until it does.
func (v *vaultService) setAway(t *testing.T, away bool) {
	t.Helper()
	slices := v.clients.DiscoveryV1().EndpointSlices(vaultName)
	if away {
		require.NoError(t, slices.Delete(t.Context(), v.slice.Name, metav1.DeleteOptions{}))
	} else {
		_, err := slices.Create(t.Context(), v.slice, metav1.CreateOptions{})
		require.NoError(t, err)
	}
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		connection, err := v.status.Dial(t.Context(), "tcp", v.address)
		if err == nil {
			err = errors.Join(tls.Client(connection, v.trust).HandshakeContext(t.Context()), connection.Close())
		}
		assert.Equal(c, away, err != nil, "%v", err)
	}, buildPatience, buildTick)
}

// open writes the NetworkPolicy of docs/signing-services.md, which has to be about the controller
// and about where Vault is.
func (v *vaultService) open(t *testing.T) {
	t.Helper()
	policy := &networkingv1.NetworkPolicy{}
	require.NoError(t, yaml.UnmarshalStrict(documented(t, "`vault.yaml` lets the pod reach it"), policy))
	selector, err := metav1.LabelSelectorAsSelector(&policy.Spec.PodSelector)
	require.NoError(t, err)
	deployment, err := v.clients.AppsV1().Deployments(stack.Namespace).Get(t.Context(), stack.ControllerName, metav1.GetOptions{})
	require.NoError(t, err)
	assert.True(t, selector.Matches(labels.Set(deployment.Spec.Template.Labels)))
	require.Len(t, policy.Spec.Egress, 1)
	require.Len(t, policy.Spec.Egress[0].To, 1)
	assert.Equal(t, map[string]string{corev1.LabelMetadataName: vaultName}, policy.Spec.Egress[0].To[0].NamespaceSelector.MatchLabels)
	require.Len(t, policy.Spec.Egress[0].Ports, 1)
	assert.Equal(t, vaultPort, policy.Spec.Egress[0].Ports[0].Port.IntValue())
	policies := v.clients.NetworkingV1().NetworkPolicies(stack.Namespace)
	_, err = policies.Create(t.Context(), policy, metav1.CreateOptions{})
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, policies.Delete(context.WithoutCancel(t.Context()), policy.Name, metav1.DeleteOptions{}))
	})
}

// deploy has the controller sign with it, and nodes insist on that. Further keys may be trusted,
// and there are none yet.
func (v *vaultService) deploy(t *testing.T) {
	t.Helper()
	trusted := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: stack.Namespace, Name: "layerwright-trusted-keys"}, Data: map[string]string{"trusted.pub": ""},
	}
	require.NoError(t, v.Create(t.Context(), trusted))
	t.Cleanup(func() { require.NoError(t, v.Delete(context.WithoutCancel(t.Context()), trusted)) })
	var more []any
	require.NoError(t, yaml.Unmarshal(documented(t, "create configmap layerwright-trusted-keys"), &more))
	v.signAsDocumented(t, "An overlay for Vault in the namespace", strings.NewReplacer(), append(more, addTo("args", "--enforce-signatures"))...)
}

// documentedKey is the public key as docs/signing-services.md says to get it.
func (v *vaultService) documentedKey(t *testing.T) []byte {
	t.Helper()
	program := cosign.New(t, cosign.Options{Environment: []string{"VAULT_ADDR=" + v.Address}})
	program.Write(".vault-token", []byte(v.token))
	return []byte(program.Run(cosign.Documented(t, vaultKey, "public-key")...))
}

// testImagesAreSignedWithAKeyOfAService has Vault sign, which goes away and comes back: nodes take
// what it has signed, and images wait for it.
func testImagesAreSignedWithAKeyOfAService(t *testing.T) {
	b := newBuilds(t)
	v := newVaultService(t, b)
	v.deploy(t)
	b.base, b.host, b.servicesKey = tinyImage(t), b.status.Registry, v.documentedKey(t) // as nodes know the registry
	p := b.unasked(t, "with-a-service")
	p.write("with-a-service") // the hunt looks for its name, also in the layer
	p.ask(func(c *mcfgv1.MachineOSConfig) {
		c.Spec.BaseImagePullSecret.Name, c.Spec.RenderedImagePushSecret.Name = stack.PullSecret, stack.PushSecret
	})
	p.eventually(func(t *assert.CollectT) {
		assert.Equal(t, []string{base64.StdEncoding.EncodeToString(b.servicesKey)}, p.trusted(t))
	})
	first := p.readyAs("with-a-service")
	p.requireTaken(t, first)
	_, err := p.node(t).Try("pull", "--quiet", p.pushBase(t))
	require.ErrorContains(t, err, "A signature was required, but no signature exists")

	v.setAway(t, true)
	before := map[string]bool{}
	for _, image := range p.machineOSImages(t.Context(), t) {
		before[image.Name] = true
	}
	p.write("with-a-service-later")
	var waiting *mcfgv1alpha1.MachineOSImage
	p.eventually(func(t *assert.CollectT) {
		waiting = nil
		for _, image := range p.machineOSImages(p.t.Context(), t) {
			if !before[image.Name] {
				waiting = &image
			}
		}
		require.NotNil(t, waiting)
		attested := conditionText(waiting.Status.Conditions, mcfgv1alpha1.ImageAttested)
		for _, part := range []string{"False " + mcfgv1alpha1.ReasonWaitingForKey + " ", `the key "` + vaultKey + `" of --signing-kms-key: `, "connection refused"} {
			assert.Contains(t, attested, part)
		}
		assert.Nil(t, waiting.Status.Signature)
		assert.Contains(t, p.buildingNow(t), "True "+mcfgv1.ReasonWaitingForSignature+" ")
	})
	p.toldOf(waiting.Name, "ImageNotAttested", mcfgv1alpha1.ReasonWaitingForKey+": ")
	assert.Equal(t, first, string(p.config(t).Status.CurrentImagePullSpec))
	assert.Contains(t, conditionText(p.objectOf(t, first).Status.Conditions, status.Ready), "True ", "what was signed is still trusted")

	v.setAway(t, false)
	later := p.readyAs("with-a-service-later")
	assert.Equal(t, string(waiting.Spec.PullSpec), later, "it is the one that waited")
	p.requireTaken(t, later)
	assert.Len(t, p.told("BuildStarted"), len(p.machineOSBuilds(t.Context(), t)), "nothing is built again")

	hunt := huntFor(t, p, map[string][]byte{"the token": []byte(v.token), "the token that may do everything": []byte(v.Token)})
	hunt.cluster(t)
	hunt.registry(t, p)
	hunt.requireNothing(t)
}

// buildingNow is what the build that goes on says of it.
func (p *layered) buildingNow(t require.TestingT) (said string) {
	for _, build := range p.machineOSBuilds(p.t.Context(), t) {
		if about := conditionText(build.Status.Conditions, mcfgv1.BuildBuilding); strings.HasPrefix(about, "True ") {
			said = about
		}
	}
	return said
}

// requireTaken makes sure that an image is trusted, and that nodes take it.
func (p *layered) requireTaken(t *testing.T, pinned string) {
	t.Helper()
	p.requireVerified(pinned)
	image := p.objectOf(t, pinned)
	assert.Contains(t, conditionText(image.Status.Conditions, mcfgv1alpha1.ImageAttested), "True ")
	assert.Contains(t, conditionText(image.Status.Conditions, status.Ready), "True ")
	p.node(t).Run("pull", "--quiet", pinned)
}
