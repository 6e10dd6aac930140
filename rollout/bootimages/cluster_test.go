package bootimages

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlconfig "sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/yaml"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	mcfgv1alpha1 "github.com/layerwright/layerwright/api/machineconfiguration/v1alpha1"
	operatorv1 "github.com/layerwright/layerwright/api/operator/v1"
	"github.com/layerwright/layerwright/internal/metrics"
	"github.com/layerwright/layerwright/rollout/bootimages/plan"
	"github.com/layerwright/layerwright/test/cluster/clustertest"
	"github.com/layerwright/layerwright/test/install"
)

const (
	controllerUser = "system:serviceaccount:layerwright:layerwright-controller"
	patience       = 2 * time.Minute
)

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	clustertest.Main(m)
}

// published installs definitions of OpenShift, as they are published.
func published(t *testing.T, config *rest.Config, patterns ...string) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "github.com/openshift/api").Output()
	require.NoError(t, err)
	for _, pattern := range patterns {
		files, err := filepath.Glob(filepath.Join(strings.TrimSpace(string(out)), pattern))
		require.NoError(t, err)
		require.NotEmpty(t, files, pattern)
		content, err := os.ReadFile(files[0])
		require.NoError(t, err)
		var definition apiextensionsv1.CustomResourceDefinition
		require.NoError(t, yaml.Unmarshal(content, &definition))
		definition.Status = apiextensionsv1.CustomResourceDefinitionStatus{}
		install.Definition(t, config, &definition)
	}
}

// reconstructed installs a kind of Cluster API with no more than what its name and version say: its
// own are in no module.
func reconstructed(t *testing.T, config *rest.Config, group, version, kind, plural string) {
	t.Helper()
	anything := &apiextensionsv1.JSONSchemaProps{Type: "object", XPreserveUnknownFields: new(true)}
	install.Definition(t, config, &apiextensionsv1.CustomResourceDefinition{
		TypeMeta:   metav1.TypeMeta{APIVersion: "apiextensions.k8s.io/v1", Kind: "CustomResourceDefinition"},
		ObjectMeta: metav1.ObjectMeta{Name: plural + "." + group, Annotations: map[string]string{"api-approved.kubernetes.io": "unapproved, for tests"}},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: group, Scope: apiextensionsv1.NamespaceScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Kind: kind, ListKind: kind + "List", Plural: plural, Singular: strings.ToLower(kind)},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: version, Served: true, Storage: true, Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: anything},
			}},
		},
	})
}

// control is a control plane with the controllers at work, with the rights of deploy/.
type control struct {
	client.Client
	t      *testing.T
	config *rest.Config // with the rights of the controller
	stop   func()
	clock  *shifted

	mu       sync.Mutex
	requests []string // of the controllers since they were started, without watches
}

func newControl(t *testing.T) *control {
	t.Helper()
	config := clustertest.ControlPlane(t)
	install.Kinds(t, config)
	install.Policies(t, config)
	published(t, config,
		"machine/v1beta1/zz_generated.crd-manifests/*_machinesets-Default.crd.yaml",
		"machine/v1beta1/zz_generated.crd-manifests/*_machines-Default.crd.yaml",
		"machine/v1/zz_generated.crd-manifests/*_controlplanemachinesets-Default.crd.yaml",
		"config/v1/zz_generated.crd-manifests/*_infrastructures*Default.crd.yaml",
	)
	for kind, plural := range map[string]string{"MachineSet": "machinesets", "MachineDeployment": "machinedeployments", "Machine": "machines"} {
		reconstructed(t, config, "cluster.x-k8s.io", "v1beta2", kind, plural)
	}
	reconstructed(t, config, "infrastructure.cluster.x-k8s.io", "v1beta1", "GCPMachineTemplate", "gcpmachinetemplates")
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, mcfgv1.AddToScheme, mcfgv1alpha1.AddToScheme, operatorv1.AddToScheme} {
		require.NoError(t, add(scheme))
	}
	c := &control{t: t, clock: &shifted{}}
	var err error
	c.Client, err = client.New(config, client.Options{Scheme: scheme})
	require.NoError(t, err)
	for _, name := range []string{namespace, machines, capiSpace} {
		c.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
	install.ControllerRights(t, config, namespace, controllerUser, "deploy/base/boot-images-rbac.yaml")
	c.grantSecrets(machines)
	c.grantSecrets(capiSpace)

	c.config = rest.CopyConfig(config)
	c.config.Impersonate = rest.ImpersonationConfig{UserName: controllerUser}
	c.config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			if r.URL.Query().Get("watch") == "" {
				c.mu.Lock()
				c.requests = append(c.requests, r.Method+" "+r.URL.Path)
				c.mu.Unlock()
			}
			return next.RoundTrip(r)
		})
	})
	c.start()
	t.Cleanup(func() { c.stop() })
	return c
}

// shifted is the real clock, which can be put forward.
type shifted struct {
	clock.RealClock
	by atomic.Int64
}

func (s *shifted) Now() time.Time { return time.Now().Add(time.Duration(s.by.Load())) }

func (s *shifted) Since(t time.Time) time.Duration { return s.Now().Sub(t) }

// importedAtOnce stands for a vCenter that has each template.
type importedAtOnce struct{}

func (importedAtOnce) Import(context.Context, string, plan.Spec, plan.Image) error { return nil }

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// start starts the controllers.
func (c *control) start() {
	c.t.Helper()
	t := c.t
	manager, err := ctrl.NewManager(c.config, ctrl.Options{
		Scheme: c.Scheme(), Logger: logr.Discard(), Metrics: metricsserver.Options{BindAddress: "0"},
		Controller: ctrlconfig.Controller{SkipNameValidation: new(true)}, // they are started a second time
		Cache: cache.Options{
			DefaultTransform: Strip,
			ByObject:         map[client.Object]cache.ByObject{&corev1.ConfigMap{}: {Namespaces: map[string]cache.Config{namespace: {}}}},
		},
	})
	require.NoError(t, err)
	require.NoError(t, SetupWithManager(manager, Options{
		Namespace: namespace, Soak: time.Hour, DegradeAfter: time.Second, Metrics: metrics.NewBootImages(), Clock: c.clock,
		Owners:   &ownersOf{owners: map[string]string{"ami-0123456789abcdef0": "531415883065"}},
		Importer: importedAtOnce{},
	}))
	ctx, cancel := context.WithCancel(logr.NewContext(context.WithoutCancel(t.Context()), logr.Discard()))
	ended := make(chan error, 1)
	go func() { ended <- manager.Start(ctx) }()
	c.stop = func() {
		cancel()
		require.NoError(t, <-ended)
	}
}

// asked are the requests of the controllers since the last call.
func (c *control) asked() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := c.requests
	c.requests = nil
	return out
}

// grantSecrets gives the rights of deploy/openshift-machine-api in a namespace.
func (c *control) grantSecrets(in string) {
	c.t.Helper()
	for _, o := range install.Objects(c.t, install.Path(c.t, "deploy/openshift-machine-api/rbac.yaml")) {
		o.SetNamespace(in)
		if o.GetKind() == "RoleBinding" {
			o.Object["subjects"] = []any{map[string]any{"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": controllerUser}}
		}
		c.create(o)
	}
}

func (c *control) create(o client.Object) {
	c.t.Helper()
	o.SetResourceVersion("")
	o.SetUID("")
	err := c.Create(c.t.Context(), o)
	if apierrors.IsAlreadyExists(err) {
		return
	}
	require.NoError(c.t, err)
}

// status writes the status that an object was made with.
func (c *control) withStatus(o *unstructured.Unstructured) {
	c.t.Helper()
	is := o.Object["status"]
	c.create(o)
	o.Object["status"] = is
	require.NoError(c.t, c.Status().Update(c.t.Context(), o))
}

// eventually waits until a question about the cluster has its answer.
func (c *control) eventually(check func(*assert.CollectT)) {
	c.t.Helper()
	require.EventuallyWithT(c.t, check, patience, 100*time.Millisecond)
}

func (c *control) imageOf(t require.TestingT, o *unstructured.Unstructured) string {
	is := o.DeepCopy()
	require.NoError(t, c.Get(c.t.Context(), client.ObjectKeyFromObject(o), is))
	spec, _, _ := unstructured.NestedMap(is.Object, "spec", "template", "spec", "providerSpec", "value")
	disks, _ := spec["disks"].([]any)
	image, _ := disks[0].(map[string]any)["image"].(string)
	return image
}

func (c *control) machineConfiguration(t require.TestingT) *operatorv1.MachineConfiguration {
	config := &operatorv1.MachineConfiguration{}
	require.NoError(t, c.Get(c.t.Context(), client.ObjectKey{Name: "cluster"}, config))
	return config
}

// TestOnAControlPlane is the whole of it on a real API server, with the published definitions and
// the rights of deploy/.
func TestOnAControlPlane(t *testing.T) {
	c := newControl(t)
	nine, ten := machineSet(t, "nine", "worker"), machineSet(t, "ten", "ten")
	o, template := deployment(t, "md")
	template.SetCreationTimestamp(metav1.Time{})
	for _, each := range []client.Object{nine, ten} {
		c.create(each)
	}
	for _, each := range world9() {
		switch is := each.(type) {
		case *unstructured.Unstructured:
			if is.GetKind() == infrastructureKind.Kind {
				is.Object["spec"] = map[string]any{"platformSpec": map[string]any{}}
				c.withStatus(is)
			}
		case *mcfgv1.MachineConfigPool:
			is.Spec.MachineConfigSelector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
				{Key: mcfgv1.LabelRole, Operator: metav1.LabelSelectorOpIn, Values: []string{"worker", is.Name}},
			}}
			c.create(is)
		default:
			c.create(is)
		}
	}

	c.eventually(func(t *assert.CollectT) {
		assert.Equal(t, image9, c.imageOf(t, nine))
		assert.Equal(t, image10, c.imageOf(t, ten))
		config := c.machineConfiguration(t)
		assert.Contains(t, condition(config, "BootImageUpdateProgressing"), "Reconciled 2 of 2 MAPI MachineSets")
		assert.EqualValues(t, "Automatic", config.Status.BootImageSkewEnforcementStatus.Mode)
		assert.Equal(t, "9.6.20250826-1", config.Status.BootImageSkewEnforcementStatus.Automatic.RHCOSVersion)
		assert.Equal(t, "True Succeeded ", condition(config, "Upgradeable"))
	})

	t.Run("each platform gets the image of its pool's stream", func(t *testing.T) { thePlatforms(t, c) })
	t.Run("a canary's machine opens the wave; the template is copied", func(t *testing.T) {
		c.create(template)
		c.create(o)
		c.eventually(func(t *assert.CollectT) {
			assert.Contains(t, condition(c.machineConfiguration(t), "BootImageUpdateProgressing"), "MachineDeployment clusters/md: MachineSet openshift-machine-api/nine is updated first")
		})
		machine := machineOf(t, "nine-1", "nine", time.Now())
		c.withStatus(machine)
		touch(t, c, nine)
		c.eventually(func(t *assert.CollectT) {
			is := o.DeepCopy()
			require.NoError(t, c.Get(c.t.Context(), client.ObjectKeyFromObject(o), is))
			name, _, _ := unstructured.NestedString(is.Object, "spec", "template", "spec", "infrastructureRef", "name")
			assert.Regexp(t, `^md-template-[0-9a-f]{8}$`, name)
		})
	})
	t.Run("going back and staying there", func(t *testing.T) {
		history, configMap := &mcfgv1alpha1.BootImageHistory{}, bootImages("", "")
		require.NoError(t, c.Get(t.Context(), client.ObjectKey{Namespace: machines, Name: "nine-machineset"}, history))
		require.NoError(t, c.Get(t.Context(), client.ObjectKeyFromObject(configMap), configMap))
		assert.Equal(t, configMap.ResourceVersion, strconv.FormatInt(history.Status.Details[1].ConfigMapGeneration, 10))
		annotate(t, c, nine, mcfgv1.AnnotationBootImagePin, "414.92.202310170514-0")
		c.eventually(func(t *assert.CollectT) { assert.Equal(t, installed, c.imageOf(t, nine)) })
		annotate(t, c, nine, mcfgv1.AnnotationBootImagePin, "")
		c.eventually(func(t *assert.CollectT) { assert.Equal(t, image9, c.imageOf(t, nine)) })
	})
	t.Run("a fight ends, and the other writer is named", func(t *testing.T) {
		for range 3 {
			putBack(t, c, ten)
			c.eventually(func(t *assert.CollectT) {
				if c.imageOf(t, ten) == installed {
					assert.Contains(t, condition(c.machineConfiguration(t), "BootImageUpdateDegraded"), "hot loop")
				}
			})
		}
		c.eventually(func(t *assert.CollectT) {
			message := condition(c.machineConfiguration(t), "BootImageUpdateDegraded")
			assert.Contains(t, message, "error syncing MAPI MachineSet ten: failed to reconcile machineset ten, err: refusing to reconcile, hot loop detected")
			assert.Contains(t, message, `the field is written by "argocd-controller"`)
			assert.Contains(t, condition(c.machineConfiguration(t), "Upgradeable"), "False ClusterBootImageSkewError")
		})
	})
	t.Run("old boot images block upgrades until they are accepted", func(_ *testing.T) {
		edit := func(change func(*operatorv1.MachineConfiguration)) {
			c.eventually(func(t *assert.CollectT) {
				config := c.machineConfiguration(t)
				change(config)
				assert.NoError(t, c.Update(c.t.Context(), config))
			})
		}
		edit(func(config *operatorv1.MachineConfiguration) {
			config.Spec.BootImageSkewEnforcement.Mode = "Manual"
			config.Spec.BootImageSkewEnforcement.Manual.Mode, config.Spec.BootImageSkewEnforcement.Manual.OCPVersion = "OCPVersion", "4.12.0"
		})
		c.eventually(func(t *assert.CollectT) {
			assert.Contains(t, condition(c.machineConfiguration(t), "Upgradeable"), "False ClusterBootImageSkewError Boot images are too old: boot image 4.12.0")
		})
		edit(func(config *operatorv1.MachineConfiguration) {
			config.Spec.BootImageSkewEnforcement.Manual.OCPVersion = "4.20.0"
		})
		c.eventually(func(t *assert.CollectT) {
			assert.Equal(t, "True Succeeded ", condition(c.machineConfiguration(t), "Upgradeable"))
		})
	})
	t.Run("going back leaves an unused copy, which is collected", func(t *testing.T) {
		copies := func(t require.TestingT) []string {
			list := &unstructured.UnstructuredList{}
			list.SetGroupVersionKind(template.GroupVersionKind().GroupVersion().WithKind("GCPMachineTemplateList"))
			require.NoError(t, c.List(c.t.Context(), list, client.InNamespace(capiSpace), client.MatchingLabels{labelCloned: labelClonedValue}))
			var names []string
			for i := range list.Items {
				image, _, _ := unstructured.NestedString(list.Items[i].Object, "spec", "template", "spec", "image")
				names = append(names, image)
			}
			return names
		}
		annotate(t, c, o, mcfgv1.AnnotationBootImagePin, "414.92.202310170514-0")
		c.eventually(func(t *assert.CollectT) { assert.ElementsMatch(t, []string{image9, installed}, copies(t)) })
		c.clock.by.Add(int64(collectAfter))
		touch(t, c, o)
		c.eventually(func(t *assert.CollectT) { assert.Equal(t, []string{installed}, copies(t)) })
		require.NoError(t, c.Get(t.Context(), client.ObjectKeyFromObject(template), template.DeepCopy()), "what people made stays")
	})
	t.Run("many resources are looked at from cold, and one alone later", func(t *testing.T) { theBudget(t, c) })
}

// thePlatforms makes a MachineSet of each platform for both pools. What has no public images stays
// as it is, and counts.
func thePlatforms(t *testing.T, c *control) {
	t.Helper()
	const metal = "https://mirror.example.com/rhcos-%s-openstack.x86_64.qcow2.gz"
	old := fmt.Sprintf(metal, "414.92.202310170514-0")
	tests := map[string]struct {
		spec   string
		nine   string // what the field has then
		ten    string
		fields []string
	}{
		"aws": {
			`"kind":"AWSMachineProviderConfig","ami":{"id":"ami-0123456789abcdef0"},"placement":{"region":"us-east-1"}`,
			"ami-00000006", "ami-00000007",
			[]string{"ami", "id"},
		},
		"azure": {
			`"kind":"AzureMachineProviderSpec","vmSize":"x","image":{"publisher":"","offer":"","sku":"","version":"","resourceID":"/x/images/lab-x7-gen2/versions/latest"}`,
			"6.0.1", "7.0.1",
			[]string{"image", "version"},
		},
		"vsphere": {
			`"kind":"VSphereMachineProviderSpec","template":"/dc/vm/lab/lab-x7-rhcos","workspace":{"server":"vc"},"numCPUs":4`,
			"/dc/vm/lab/lab-x7-rhcos-9.6.20250826-1-9b42ecb6", "/dc/vm/lab/lab-x7-rhcos-10.1.20250901-0-9b42ecb6", // of its datastore
			[]string{"template"},
		},
		"baremetal": {
			`"kind":"BareMetalMachineProviderSpec","image":{"url":"` + old + `","checksum":"ab"},"hostSelector":{}`,
			fmt.Sprintf(metal, "9.6.20250826-1"), fmt.Sprintf(metal, "10.1.20250901-0"),
			[]string{"image", "url"},
		},
		"openstack": {`"kind":"OpenstackProviderSpec","image":"lab-x7-rhcos","flavor":"x"`, "lab-x7-rhcos", "lab-x7-rhcos", []string{"image"}},
		"nutanix":   {`"kind":"NutanixMachineProviderConfig","image":{"type":"name","name":"x"}`, "x", "x", []string{"image", "name"}},
		"ibmcloud":  {`"kind":"IBMCloudMachineProviderSpec","image":"x","profile":"y"`, "x", "x", []string{"image"}},
		"powervs":   {`"kind":"PowerVSMachineProviderConfig","image":{"type":"Name","name":"x"}`, "x", "x", []string{"image", "name"}},
	}
	specOf := func(t require.TestingT, o *unstructured.Unstructured) map[string]any {
		is := o.DeepCopy()
		require.NoError(t, c.Get(c.t.Context(), client.ObjectKeyFromObject(o), is))
		spec, _, _ := unstructured.NestedMap(is.Object, providerSpec...)
		return spec
	}
	type made struct {
		o    *unstructured.Unstructured
		want map[string]any
	}
	all := map[string]made{}
	for platform, tt := range tests {
		for pool, image := range map[string]string{"worker": tt.nine, "ten": tt.ten} {
			o := machineSet(t, platform+"-"+pool, pool)
			o.SetLabels(map[string]string{"machine.openshift.io/cluster-api-cluster": "lab-x7"})
			spec := map[string]any{}
			require.NoError(t, utiljson.Unmarshal([]byte(`{`+tt.spec+`,"userDataSecret":{"name":"worker-user-data"},"unknown":{"kept":[1,2.5,null,"x"]}}`), &spec))
			require.NoError(t, unstructured.SetNestedMap(o.Object, spec, providerSpec...))
			c.create(o)
			require.NoError(t, unstructured.SetNestedField(spec, image, tt.fields...))
			switch platform { // the other fields of an image
			case "azure":
				spec["image"] = map[string]any{"publisher": "azureopenshift", "offer": "aro4", "sku": "aro4", "version": image, "resourceID": ""}
			case "baremetal":
				spec["image"] = map[string]any{"url": image, "checksum": "cd"}
			}
			all[o.GetName()] = made{o, spec}
		}
	}
	c.eventually(func(t *assert.CollectT) {
		for name, is := range all {
			assert.Equal(t, is.want, specOf(t, is.o), name)
		}
		message := condition(c.machineConfiguration(t), "BootImageUpdateProgressing")
		assert.Contains(t, message, "Reconciled 10 of 18 MAPI MachineSets (8 skipped)")
		assert.Contains(t, condition(c.machineConfiguration(t), "Upgradeable"), "False ClusterBootImageSkewError Boot images are too old: version 0.0.0")
	})
	for _, is := range all {
		require.NoError(t, c.Delete(t.Context(), is.o))
	}
	c.eventually(func(t *assert.CollectT) {
		assert.Contains(t, condition(c.machineConfiguration(t), "BootImageUpdateProgressing"), "Reconciled 2 of 2 MAPI MachineSets")
		assert.Equal(t, "True Succeeded ", condition(c.machineConfiguration(t), "Upgradeable"))
	})
}

// many is how many MachineSets the budget is for.
const many = 2000

// theBudget starts the controllers on a cluster of many MachineSets, and changes one of them.
func theBudget(t *testing.T, c *control) {
	t.Helper()
	c.stop()
	var all errgroup.Group
	all.SetLimit(8)
	for i := range many {
		o := machineSet(t, fmt.Sprintf("many-%04d", i), "worker")
		setImage(o, image9)
		o.SetUID("")
		all.Go(func() error { return c.Create(t.Context(), o) })
	}
	require.NoError(t, all.Wait())
	c.asked()
	began := time.Now()
	c.start()
	c.eventually(func(t *assert.CollectT) {
		assert.Contains(t, condition(c.machineConfiguration(t), "BootImageUpdateProgressing"), fmt.Sprintf("of %d MAPI MachineSets", many+2))
	})
	took := time.Since(began)
	requests := c.asked()
	t.Logf("%d MachineSets from cold: %s, %d requests", many, took.Round(10*time.Millisecond), len(requests))
	lists := map[string]int{}
	for _, r := range requests {
		lists[r]++
	}
	for _, kind := range []string{"machinesets", "controlplanemachinesets"} {
		for path, n := range lists {
			if strings.HasPrefix(path, http.MethodGet) && strings.HasSuffix(path, "/"+kind) {
				assert.Equal(t, 1, n, path)
			}
		}
	}
	assert.Less(t, len(requests), many/10, "there is nothing to ask about each")

	one := machineSet(t, "many-0007", "worker")
	annotate(t, c, one, mcfgv1.AnnotationBootImagePin, "1.2.3")
	c.eventually(func(t *assert.CollectT) {
		assert.Contains(t, condition(c.machineConfiguration(t), "BootImageUpdateDegraded"), "many-0007")
	})
	for _, r := range c.asked() {
		assert.NotRegexp(t, `many-(000[^7]|00[^0]|0[^0]|1)`, r, "another resource")
	}
}

// touch changes an object's annotations, so that it is looked at.
func touch(t *testing.T, c *control, o *unstructured.Unstructured) {
	t.Helper()
	annotate(t, c, o, "touched", time.Now().String())
}

// annotate sets an annotation, or removes it.
func annotate(t *testing.T, c *control, o *unstructured.Unstructured, key, value string) {
	t.Helper()
	patch := `{"metadata":{"annotations":{"` + key + `":null}}}`
	if value != "" {
		patch = `{"metadata":{"annotations":{"` + key + `":"` + value + `"}}}`
	}
	require.NoError(t, c.Patch(t.Context(), o.DeepCopy(), client.RawPatch("application/merge-patch+json", []byte(patch))))
}

// putBack puts the old image back, as GitOps does.
func putBack(t *testing.T, c *control, o *unstructured.Unstructured) {
	t.Helper()
	is := o.DeepCopy()
	require.NoError(t, c.Get(t.Context(), client.ObjectKeyFromObject(o), is))
	before := is.DeepCopy()
	setImage(is, installed)
	require.NoError(t, c.Patch(t.Context(), is, client.MergeFrom(before), client.FieldOwner("argocd-controller")))
}
