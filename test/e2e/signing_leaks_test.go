//go:build e2e

package e2e

import (
	"encoding/json"
	"encoding/pem"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/secure-systems-lab/go-securesystemslib/encrypted"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"

	"github.com/layerwright/layerwright/test/cluster/stack"
	"github.com/layerwright/layerwright/test/leaks"
	"github.com/layerwright/layerwright/trust/sign"
)

// hunt looks for secrets in all that people and other programs can read of a pool's images. The
// pool's name is no secret, and looked for in the same way: it is in every kind of place, so that
// one which was not looked at is noticed.
type hunt struct {
	*builds
	secrets, known *leaks.Hunt
}

// huntedKinds are the kinds of places.
var huntedKinds = []string{"blob", "event", "layer", "log", "manifest", "object"}

// newHunt hunts for the signing key as it is now, its password, and what huntFor does.
func newHunt(t *testing.T, p *layered) *hunt {
	t.Helper()
	key := p.key(t)
	block, _ := pem.Decode(key.Data[sign.SecretPrivateKey])
	require.NotNil(t, block)
	decrypted, err := encrypted.Decrypt(block.Bytes, key.Data[sign.SecretPassword])
	require.NoError(t, err)
	return huntFor(t, p, map[string][]byte{
		"the signing key": key.Data[sign.SecretPrivateKey], "its password": key.Data[sign.SecretPassword], "the signing key, decrypted": decrypted,
	})
}

// huntFor hunts for some secrets, the registry's accounts, and whatever looks like a private key or
// a token.
func huntFor(t *testing.T, p *layered, secrets map[string][]byte) *hunt {
	t.Helper()
	maps.Copy(secrets, leaks.Generic())
	for _, account := range []string{"push", "pull"} {
		var login struct {
			Auths map[string]struct {
				Auth []byte `json:"auth"`
			} `json:"auths"`
		}
		require.NoError(t, json.Unmarshal(p.credentials(t, account), &login))
		require.Len(t, login.Auths, 1)
		for _, auth := range login.Auths {
			_, password, _ := strings.Cut(string(auth.Auth), ":")
			secrets["the password of the account "+account] = []byte(password)
		}
	}
	h := &hunt{builds: p.builds}
	var err error
	h.secrets, err = leaks.New(secrets)
	require.NoError(t, err)
	h.known, err = leaks.New(map[string][]byte{"the name of the pool": []byte(p.name)})
	require.NoError(t, err)
	return h
}

func (h *hunt) search(kind, where string, content []byte) {
	h.secrets.Search(kind, where, content)
	h.known.Search(kind, where, content)
}

// requireNothing makes sure that no secret was found, and that all kinds of places were looked at.
func (h *hunt) requireNothing(t *testing.T) {
	t.Helper()
	t.Logf("looked at %v", h.secrets.Looked())
	assert.Empty(t, h.secrets.Found())
	assert.Equal(t, huntedKinds, h.known.FoundIn(), "what is known to be there was found")
}

// cluster looks at what the API server shows of Layerwright: logs, events, and all objects but
// secrets.
func (h *hunt) cluster(t *testing.T) {
	t.Helper()
	config, err := named(t, h.builds.cluster).Config()
	require.NoError(t, err)
	config.QPS = -1
	objects, err := dynamic.NewForConfig(config)
	require.NoError(t, err)
	lists, err := discovery.ServerPreferredResources(h.clients.Discovery())
	require.NoError(t, err)
	for _, list := range lists {
		group, err := schema.ParseGroupVersion(list.GroupVersion)
		require.NoError(t, err)
		for _, resource := range list.APIResources {
			if slices.Contains(resource.Verbs, "list") && resource.Kind != "Secret" {
				h.objects(t, objects.Resource(group.WithResource(resource.Name)), resource)
			}
		}
	}
	pods, err := h.clients.CoreV1().Pods(stack.Namespace).List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	for i := range pods.Items {
		h.logs(t, &pods.Items[i])
	}
}

// objects looks at the objects of one kind: all of those that are Layerwright's own, of events, and
// of others in its namespace.
func (h *hunt) objects(t *testing.T, resources dynamic.NamespaceableResourceInterface, about metav1.APIResource) {
	t.Helper()
	list := resources.List
	kind := "object"
	switch {
	case about.Kind == "Event":
		kind = "event"
	case about.Namespaced:
		list = resources.Namespace(stack.Namespace).List
	}
	found, err := list(t.Context(), metav1.ListOptions{})
	require.NoError(t, err, about.Name)
	for i := range found.Items {
		text, err := found.Items[i].MarshalJSON()
		require.NoError(t, err)
		h.search(kind, about.Name+"/"+found.Items[i].GetName(), text)
	}
}

// logs looks at what all containers of a pod have written, and those before them.
func (h *hunt) logs(t *testing.T, pod *corev1.Pod) {
	t.Helper()
	for _, c := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		for _, previous := range []bool{false, true} {
			if state := c.State; previous && c.RestartCount == 0 || !previous && state.Waiting != nil {
				continue
			}
			options := &corev1.PodLogOptions{Container: c.Name, Previous: previous}
			stream, err := h.clients.CoreV1().Pods(pod.Namespace).GetLogs(pod.Name, options).Stream(t.Context())
			if err != nil { // it is going
				t.Logf("logs of %s of pod %s: %v", c.Name, pod.Name, err)
				continue
			}
			text, err := io.ReadAll(stream)
			require.NoError(t, err)
			require.NoError(t, stream.Close())
			h.search("log", pod.Name+"/"+c.Name, text)
		}
	}
}

// registry looks at everything that the registry has of the pool's repository, also at what has no
// tag any more: on its disk.
func (h *hunt) registry(t *testing.T, p *layered) {
	t.Helper()
	root := filepath.Join(named(t, p.builds.cluster).Dir(), "registry", "docker", "registry", "v2")
	folder := filepath.Join(root, "repositories", imagesPath, p.name)
	for kind, pattern := range map[string]string{"manifest": "_manifests/revisions/sha256/*/link", "blob": "_layers/sha256/*/link"} {
		links, err := filepath.Glob(filepath.Join(folder, pattern))
		require.NoError(t, err)
		require.NotEmpty(t, links, pattern)
		for _, link := range links {
			digest := filepath.Base(filepath.Dir(link))
			content, err := os.ReadFile(filepath.Join(root, "blobs", "sha256", digest[:2], digest, "data"))
			if os.IsNotExist(err) {
				continue // it was deleted
			}
			require.NoError(t, err)
			if kind == "blob" && strings.HasPrefix(string(content), "\x1f\x8b") {
				h.search("layer", digest, content)
				continue
			}
			h.search(kind, digest, content)
		}
	}
}
