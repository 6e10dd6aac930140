package enforcement_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apitypes "k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	clientevents "k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/builder"
	"github.com/layerwright/layerwright/builder/wanted/recipe"
	"github.com/layerwright/layerwright/internal/apitest"
	"github.com/layerwright/layerwright/internal/registry"
	"github.com/layerwright/layerwright/test/cluster/clustertest"
	"github.com/layerwright/layerwright/test/install"
	"github.com/layerwright/layerwright/test/worldtest"
	"github.com/layerwright/layerwright/trust"
	"github.com/layerwright/layerwright/trust/sign"
	"github.com/layerwright/layerwright/trust/signaturepolicy"
)

// imagePolicies is the published definition of ClusterImagePolicies, as it lies in the module
// cache.
func imagePolicies(t *testing.T) *apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	dir, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "github.com/openshift/api").Output()
	require.NoError(t, err)
	content, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(dir)), "config/v1/zz_generated.crd-manifests/0000_10_config-operator_01_clusterimagepolicies.crd.yaml"))
	require.NoError(t, err)
	definition := &apiextensionsv1.CustomResourceDefinition{}
	require.NoError(t, yaml.Unmarshal(content, definition))
	return definition
}

// trusted are the keys that nodes are to accept.
type trusted struct{ keys []worldtest.KeyPair }

// Trusted are the public ones.
func (t *trusted) Trusted(context.Context) (sign.Trusted, error) {
	var out sign.Trusted
	for _, pair := range t.keys {
		out.Keys = append(out.Keys, worldtest.Must(sign.ParsePublicKeys(pair.Public))...)
	}
	return out, nil
}

// openShift is a real API server with a pool, in which the machine-config-operator is played by the
// test.
type openShift struct {
	*worldtest.Cluster

	builder *worldtest.Process
	// reader is what the controllers ask the API server with.
	reader   *exchangeable
	trust    *trusted
	clock    *clocktesting.FakePassiveClock
	recorder *clientevents.FakeRecorder
	policy   *fixedPolicy
	// whileRead, where it is not nil, is called once while an OS image is read.
	whileRead func()
}

// fixedPolicy is a trust policy that the test writes.
type fixedPolicy struct{ text string }

// Policy is what was written.
func (p *fixedPolicy) Policy(context.Context) (*trust.Policy, error) {
	return trust.Parse([]byte("repositories: [" + p.text + "]"))
}

// IsIn is never asked.
func (*fixedPolicy) IsIn(apitypes.NamespacedName) bool { return false }

// entry is a repository of a trust policy with keys.
func entry(repository string, keys ...worldtest.KeyPair) string {
	var all strings.Builder
	for _, key := range keys {
		all.Write(key.Public)
	}
	return fmt.Sprintf("{repository: %q, publicKeys: %q}", repository, all.String())
}

const (
	enforcedPool = "enforced"
	enforcedBy   = "99-enforced-layerwright-signature-policy"
	// generated is what the machine-config-operator makes of ClusterImagePolicies. Its name sorts
	// before ours.
	generated = "99-enforced-generated-registries"
)

func newOpenShift(t *testing.T) *openShift {
	t.Helper()
	o := &openShift{
		Cluster: worldtest.NewCluster(t, "deploy/overlays/openshift/rbac.yaml"), trust: &trusted{[]worldtest.KeyPair{worldtest.FirstKey()}},
		clock: clocktesting.NewFakePassiveClock(time.Now()), recorder: clientevents.NewFakeRecorder(100), policy: &fixedPolicy{},
	}
	limited := clustertest.As(o.Config, worldtest.ControllerUser)
	limited.Wrap(func(next http.RoundTripper) http.RoundTripper { return o.Counting(next) })
	as, err := client.New(limited, client.Options{Scheme: apitest.Scheme(t)})
	require.NoError(t, err)
	o.reader = &exchangeable{as}
	o.builder = worldtest.Start(&caching{as, o.Client}, o.reader, o.clock, o.recorder, worldtest.Settings{
		Options: builder.Options{Namespace: o.Namespace}, Trust: o.trust, TrustPolicy: o.policy,
		Bases: func(string) (*recipe.Base, *registry.Client) {
			if call := o.whileRead; call != nil {
				o.whileRead = nil
				call()
			}
			return &recipe.Base{}, nil
		},
	})
	config := o.OSConfig(enforcedPool)
	o.Add(worldtest.RolePool(enforcedPool), config)
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		for _, object := range []client.Object{config, worldtest.RolePool(enforcedPool), &mcfgv1.MachineConfig{ObjectMeta: metav1.ObjectMeta{Name: enforcedBy}}, &mcfgv1.MachineConfig{ObjectMeta: metav1.ObjectMeta{Name: generated}}} {
			assert.NoError(t, client.IgnoreNotFound(o.Delete(ctx, object)))
		}
	})
	return o
}

// caching writes with the controller's rights, and reads without asking for them, as from a cache.
type caching struct {
	client.Client
	cache client.Reader
}

// Get reads from the cache.
func (c *caching) Get(ctx context.Context, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
	return c.cache.Get(ctx, key, object, options...)
}

// List reads from the cache.
func (c *caching) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	return c.cache.List(ctx, list, options...)
}

// reconcile makes one reconcile, and gives what people are told.
func (o *openShift) reconcile() string {
	o.T.Helper()
	_, err := o.builder.Policies.Reconcile(o.T.Context(), worldtest.Request(enforcedPool))
	require.NoError(o.T, err)
	select {
	case told := <-o.recorder.Events:
		return told
	default:
		return ""
	}
}

// clusterPolicy is the ClusterImagePolicy, nil where there is none.
func (o *openShift) clusterPolicy() *unstructured.Unstructured {
	o.T.Helper()
	found := &unstructured.Unstructured{}
	found.SetGroupVersionKind(signaturepolicy.ClusterImagePolicyKind.WithVersion("v1"))
	err := o.Get(o.T.Context(), client.ObjectKey{Name: "layerwright-" + enforcedPool}, found)
	if apierrors.IsNotFound(err) {
		return nil
	}
	require.NoError(o.T, err)
	return found
}

// keyOf is the key that a ClusterImagePolicy has.
func keyOf(t *testing.T, policy *unstructured.Unstructured) string {
	t.Helper()
	require.NotNil(t, policy)
	data, _, err := unstructured.NestedString(policy.Object, "spec", "policy", "rootOfTrust", "publicKey", "keyData")
	require.NoError(t, err)
	return string(worldtest.Must(base64.StdEncoding.DecodeString(data)))
}

// nodePolicy is the policy.json of our MachineConfig, empty where there is none.
func (o *openShift) nodePolicy() string {
	o.T.Helper()
	mc := &mcfgv1.MachineConfig{}
	err := o.Get(o.T.Context(), client.ObjectKey{Name: enforcedBy}, mc)
	if apierrors.IsNotFound(err) {
		return ""
	}
	require.NoError(o.T, err)
	files, err := signaturepolicy.FilesOf(mc)
	require.NoError(o.T, err)
	require.Contains(o.T, files, signaturepolicy.PolicyPath)
	return string(files[signaturepolicy.PolicyPath])
}

// operate does what the machine-config-operator does with the ClusterImagePolicies that are there:
// it writes its files, over a policy that accepts everything by default.
func (o *openShift) operate() {
	o.T.Helper()
	files := signaturepolicy.Files{signaturepolicy.PolicyPath: []byte(`{"default":[{"type":"insecureAcceptAnything"}]}`), signaturepolicy.RegistryPath: nil}
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(signaturepolicy.ClusterImagePolicyKind.WithVersion("v1"))
	require.NoError(o.T, o.List(o.T.Context(), list))
	scoped := map[string]any{}
	for i := range list.Items {
		scopes, _, err := unstructured.NestedStringSlice(list.Items[i].Object, "spec", "scopes")
		require.NoError(o.T, err)
		require.Len(o.T, scopes, 1)
		scoped[scopes[0]] = []any{map[string]any{
			"type": "sigstoreSigned", "keyData": []byte(keyOf(o.T, &list.Items[i])), "signedIdentity": map[string]any{"type": "matchRepository"},
		}}
		if i == 0 {
			files[signaturepolicy.RegistryPath] = []byte("docker:\n")
		}
		files[signaturepolicy.RegistryPath] = append(files[signaturepolicy.RegistryPath], "  "+scopes[0]+":\n    use-sigstore-attachments: true\n"...)
	}
	if len(scoped) > 0 {
		files[signaturepolicy.PolicyPath] = worldtest.Must(json.Marshal(map[string]any{
			"default": []any{map[string]any{"type": "insecureAcceptAnything"}}, "transports": map[string]any{"docker": scoped},
		}))
	}
	wanted := worldtest.Must(signaturepolicy.MachineConfig(enforcedPool, files))
	found := &mcfgv1.MachineConfig{}
	err := o.Get(o.T.Context(), client.ObjectKey{Name: generated}, found)
	if apierrors.IsNotFound(err) {
		wanted.Name = generated
		o.Add(wanted)
		return
	}
	require.NoError(o.T, err)
	found.Spec = wanted.Spec
	require.NoError(o.T, o.Update(o.T.Context(), found))
}

func has(text string, pair worldtest.KeyPair) bool {
	return strings.Contains(text, base64.StdEncoding.EncodeToString(pair.Public))
}

// TestClusterImagePolicies tells one story: the kind is there or not for the whole cluster.
func TestClusterImagePolicies(t *testing.T) {
	o := newOpenShift(t)
	o.reconcile()
	assert.True(t, has(o.nodePolicy(), worldtest.FirstKey()), "without the kind, a MachineConfig says it")

	definition := imagePolicies(t)
	install.Definition(t, o.Config, definition)
	o.reconcile()
	assert.Equal(t, string(worldtest.FirstKey().Public), keyOf(t, o.clusterPolicy()), "the kind is seen when it comes, without a restart")
	owner := &mcfgv1.MachineOSConfig{}
	require.NoError(t, o.Get(t.Context(), client.ObjectKey{Name: enforcedPool}, owner))
	assert.True(t, metav1.IsControlledBy(o.clusterPolicy(), owner), "it goes with the MachineOSConfig")
	assert.True(t, has(o.nodePolicy(), worldtest.FirstKey()), "nodes must not be without either")
	o.reconcile()
	assert.NotEmpty(t, o.nodePolicy(), "no one has acted on the ClusterImagePolicy yet")
	o.clock.SetTime(o.clock.Now().Add(time.Hour))
	assert.Contains(t, o.reconcile(), `Warning SignaturePolicyFailed no MachineConfig of the pool "enforced" applies ClusterImagePolicy "layerwright-enforced"; check`)

	o.operate()
	assert.Empty(t, o.reconcile())
	assert.Empty(t, o.nodePolicy())
	settled := o.clusterPolicy()
	o.Called()
	o.reconcile()
	assert.Equal(t, settled, o.clusterPolicy(), "nothing is written where nothing has changed")
	for _, call := range o.Called() {
		assert.True(t, strings.HasPrefix(call, "GET "), call)
	}

	edited := settled.DeepCopy()
	require.NoError(t, unstructured.SetNestedStringSlice(edited.Object, []string{"example.com/other"}, "spec", "scopes"))
	require.NoError(t, o.Update(t.Context(), edited))
	o.reconcile()
	assert.Equal(t, settled.Object["spec"], o.clusterPolicy().Object["spec"], "what someone edits is put right")

	// The key is rotated. Two keys are for the MachineConfig to say.
	o.trust.keys = []worldtest.KeyPair{worldtest.FirstKey(), worldtest.SecondKey()}
	o.reconcile()
	assert.True(t, has(o.nodePolicy(), worldtest.FirstKey()) && has(o.nodePolicy(), worldtest.SecondKey()))
	assert.NotNil(t, o.clusterPolicy(), "it stays until the MachineConfig is certain to be there")
	o.reconcile()
	assert.Nil(t, o.clusterPolicy())
	o.operate()
	o.reconcile()
	assert.True(t, has(o.nodePolicy(), worldtest.FirstKey()) && has(o.nodePolicy(), worldtest.SecondKey()))
	o.trust.keys = []worldtest.KeyPair{worldtest.SecondKey()}
	o.reconcile()
	assert.Equal(t, string(worldtest.SecondKey().Public), keyOf(t, o.clusterPolicy()))
	assert.True(t, has(o.nodePolicy(), worldtest.SecondKey()) && !has(o.nodePolicy(), worldtest.FirstKey()))
	o.operate()
	o.reconcile()
	assert.Empty(t, o.nodePolicy())

	t.Run("of the trust policy", func(t *testing.T) { o.T = t; testTrustedClusterPolicies(t, o) })
	t.Run("what the kind can't say", func(t *testing.T) { o.T = t; testNotForTheKind(t, o) })
	t.Run("without the right to", func(t *testing.T) { o.T = t; testForbiddenClusterPolicy(t, o) })
	t.Run("someone else's", func(t *testing.T) { o.T = t; testForeignClusterPolicy(t, o) })
	o.T = t

	o.operate()
	kinds, err := dynamic.NewForConfig(o.Config)
	require.NoError(t, err)
	resource := apiextensionsv1.SchemeGroupVersion.WithResource("customresourcedefinitions")
	require.NoError(t, kinds.Resource(resource).Delete(t.Context(), definition.Name, metav1.DeleteOptions{}))
	o.Eventually(func(t *assert.CollectT) {
		_, err := o.builder.Policies.Reconcile(o.T.Context(), worldtest.Request(enforcedPool))
		assert.NoError(t, err)
		assert.NoError(t, o.Get(o.T.Context(), client.ObjectKey{Name: enforcedBy}, &mcfgv1.MachineConfig{}), "the kind is gone")
	})
}

// trustedPolicies are the ClusterImagePolicies for repositories of the trust policy, by scope.
func (o *openShift) trustedPolicies() map[string]*unstructured.Unstructured {
	o.T.Helper()
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(signaturepolicy.ClusterImagePolicyKind.WithVersion("v1"))
	require.NoError(o.T, o.List(o.T.Context(), list, client.HasLabels{signaturepolicy.TrustedLabel}))
	out := map[string]*unstructured.Unstructured{}
	for i := range list.Items {
		scopes, _, err := unstructured.NestedStringSlice(list.Items[i].Object, "spec", "scopes")
		require.NoError(o.T, err)
		out[scopes[0]] = &list.Items[i]
	}
	return out
}

// testTrustedClusterPolicies begins and ends with the pool's own ClusterImagePolicy, of the second
// key, and no MachineConfig.
func testTrustedClusterPolicies(t *testing.T, o *openShift) {
	t.Helper()
	const one, all = "registry.example.com/os/hotfix", "registry.example.com/corp"
	o.clock.SetTime(time.Now()) // an hour had passed
	var left mcfgv1.MachineOSConfigList
	require.NoError(t, o.List(t.Context(), &left))
	for i := range left.Items { // of other tests, whose pools no one gives a MachineConfig any more
		if left.Items[i].Name != enforcedPool {
			require.NoError(t, client.IgnoreNotFound(o.Delete(t.Context(), &left.Items[i])))
		}
	}
	o.policy.text = entry(one, worldtest.FirstKey()) + "," + entry(all+"/*", worldtest.SecondKey())
	assert.Empty(t, o.reconcile())
	made := o.trustedPolicies()
	require.Len(t, made, 2)
	assert.Equal(t, string(worldtest.FirstKey().Public), keyOf(t, made[one]))
	assert.Equal(t, string(worldtest.SecondKey().Public), keyOf(t, made[all]))
	assert.Equal(t, signaturepolicy.TrustedClusterImagePolicyName(one), made[one].GetName())
	assert.False(t, strings.HasPrefix(made[one].GetName(), signaturepolicy.ClusterImagePolicyName("")), "no pool has this name")
	assert.NotNil(t, o.clusterPolicy())
	assert.Empty(t, o.nodePolicy(), "nothing is left to say for a MachineConfig")
	owners := made[one].GetOwnerReferences()
	require.Len(t, owners, 1)
	assert.Nil(t, owners[0].Controller, "it is the cluster's, and goes with the last MachineOSConfig")
	o.operate()
	o.reconcile()
	assert.Equal(t, made, o.trustedPolicies(), "nothing is written where nothing has changed")

	second := o.OSConfig("enforced-too")
	o.Add(worldtest.RolePool(second.Name), second)
	passSecond := func() {
		_, err := o.builder.Policies.Reconcile(t.Context(), worldtest.Request(second.Name))
		require.NoError(t, err)
	}
	passSecond()
	assert.Len(t, o.trustedPolicies()[one].GetOwnerReferences(), 2)

	// A second key is for the MachineConfigs of all pools to say.
	o.policy.text = entry(one, worldtest.FirstKey(), worldtest.SecondKey()) + "," + entry(all+"/*", worldtest.SecondKey())
	for range 2 {
		o.reconcile()
		assert.Contains(t, o.nodePolicy(), one)
		assert.Len(t, o.trustedPolicies(), 2, "the other pool's nodes are without it yet")
	}
	for range 2 {
		passSecond()
	}
	assert.Len(t, o.trustedPolicies(), 1)
	o.operate()
	o.reconcile()
	assert.True(t, has(o.nodePolicy(), worldtest.FirstKey()) && has(o.nodePolicy(), worldtest.SecondKey()))
	assert.NotNil(t, o.clusterPolicy(), "what one key can say is still said by it")

	// While the OS image of one pool is read, another pool follows a newer trust policy.
	const newer = "registry.example.com/newer"
	before := o.policy.text
	o.whileRead = func() {
		o.policy.text += "," + entry(newer, worldtest.SecondKey())
		o.reconcile()
	}
	passSecond()
	require.Nil(t, o.whileRead)
	assert.Contains(t, o.trustedPolicies(), newer, "what is newer is not removed")
	o.policy.text = before
	passSecond()
	assert.NotContains(t, o.trustedPolicies(), newer)

	mc := &mcfgv1.MachineConfig{ObjectMeta: metav1.ObjectMeta{Name: signaturepolicy.MachineConfigName(second.Name)}}
	for _, object := range []client.Object{second, worldtest.RolePool(second.Name), mc} {
		require.NoError(t, client.IgnoreNotFound(o.Delete(t.Context(), object)))
	}

	// Back to one key.
	o.policy.text = entry(one, worldtest.SecondKey()) + "," + entry(all+"/*", worldtest.SecondKey())
	o.reconcile()
	assert.Len(t, o.trustedPolicies(), 2)
	assert.Contains(t, o.nodePolicy(), one, "until the other one is certain to be seen")
	o.operate()
	o.reconcile()
	assert.Empty(t, o.nodePolicy())

	// Someone's own object has the name.
	theirs := o.trustedPolicies()[one]
	theirs.SetLabels(nil)
	require.NoError(t, o.Update(t.Context(), theirs))
	assert.Contains(t, o.reconcile(), `ClusterImagePolicy "`+theirs.GetName()+`" was made by someone else; remove it`)
	require.NoError(t, o.Delete(t.Context(), theirs))

	o.policy.text = entry("registry:5000/os/hotfix", worldtest.FirstKey())
	o.reconcile()
	assert.Empty(t, o.trustedPolicies(), "the policy does not name them any more")
	assert.Contains(t, o.nodePolicy(), "registry:5000/os/hotfix", "the kind takes no registry without a dot")
	o.policy.text = ""
	o.operate()
	o.reconcile()
	assert.Empty(t, o.nodePolicy())
	assert.NotNil(t, o.clusterPolicy())
}

// testNotForTheKind has a registry with a name that is fine here, and that the published kind
// refuses.
func testNotForTheKind(t *testing.T, o *openShift) {
	t.Helper()
	config := &mcfgv1.MachineOSConfig{}
	require.NoError(t, o.Get(t.Context(), client.ObjectKey{Name: enforcedPool}, config))
	before := config.Spec.RenderedImagePushSpec
	config.Spec.RenderedImagePushSpec = "registry:5000/os/worker:latest"
	require.NoError(t, o.Update(t.Context(), config))
	o.reconcile()
	assert.Contains(t, o.nodePolicy(), "registry:5000/os/worker")
	o.reconcile()
	assert.Nil(t, o.clusterPolicy(), "it is about a repository that no one uses any more")

	require.NoError(t, o.Get(t.Context(), client.ObjectKey{Name: enforcedPool}, config))
	config.Spec.RenderedImagePushSpec = before
	require.NoError(t, o.Update(t.Context(), config))
	o.operate()
	o.reconcile()
	assert.NotNil(t, o.clusterPolicy())
	o.operate()
	o.reconcile()
	assert.Empty(t, o.nodePolicy())
}

// exchangeable is a reader that a test can replace.
type exchangeable struct{ client.Reader }

// forbidding lets no one read ClusterImagePolicies.
type forbidding struct{ client.Reader }

// Get says so.
func (f forbidding) Get(ctx context.Context, key client.ObjectKey, o client.Object, options ...client.GetOption) error {
	if _, isOurs := o.(*mcfgv1.MachineConfig); isOurs {
		return f.Reader.Get(ctx, key, o, options...)
	}
	return apierrors.NewForbidden(schema.GroupResource{Group: "config.openshift.io", Resource: "clusterimagepolicies"}, key.Name, nil)
}

// List says so.
func (f forbidding) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	if _, isOurs := list.(*mcfgv1.MachineConfigList); isOurs {
		return f.Reader.List(ctx, list, options...)
	}
	return apierrors.NewForbidden(schema.GroupResource{Group: "config.openshift.io", Resource: "clusterimagepolicies"}, "", nil)
}

// testForbiddenClusterPolicy has the rights of deploy/overlays/kubernetes, on a cluster that has
// the kind all the same.
func testForbiddenClusterPolicy(t *testing.T, o *openShift) {
	t.Helper()
	reader := o.reader.Reader
	o.reader.Reader = forbidding{reader}
	for range 2 {
		assert.Empty(t, o.reconcile())
		assert.True(t, has(o.nodePolicy(), worldtest.SecondKey()))
	}
	o.reader.Reader = reader
	o.reconcile()
	assert.Empty(t, o.nodePolicy())
}

func testForeignClusterPolicy(t *testing.T, o *openShift) {
	t.Helper()
	ours := o.clusterPolicy()
	require.NoError(t, o.Delete(t.Context(), ours))
	theirs := &unstructured.Unstructured{Object: runtime.DeepCopyJSON(map[string]any{"spec": ours.Object["spec"]})}
	theirs.SetGroupVersionKind(ours.GroupVersionKind())
	theirs.SetName(ours.GetName())
	require.NoError(t, unstructured.SetNestedStringSlice(theirs.Object, []string{"example.com/theirs"}, "spec", "scopes"))
	o.Add(theirs)
	assert.Contains(t, o.reconcile(), `ClusterImagePolicy "layerwright-enforced" was made by someone else; remove it`)
	assert.Equal(t, theirs.GetResourceVersion(), o.clusterPolicy().GetResourceVersion())
	require.NoError(t, o.Delete(t.Context(), theirs))
	o.reconcile()
	assert.NotNil(t, o.clusterPolicy())
}
