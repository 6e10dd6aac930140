package bootimages

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
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
	"k8s.io/client-go/rest"
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
	c := &control{t: t}
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
		Namespace: namespace, Soak: time.Hour, DegradeAfter: time.Second, Metrics: metrics.NewBootImages(),
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

	t.Run("a machine of the canary opens the wave, and the template is copied", func(t *testing.T) {
		c.create(template)
		c.create(o)
		c.eventually(func(t *assert.CollectT) {
			assert.Contains(t, condition(c.machineConfiguration(t), "BootImageUpdateProgressing"), "MachineDeployment clusters/md: another resource is updated first")
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
			assert.Contains(t, message, "MachineSet openshift-machine-api/ten: refusing to reconcile, hot loop detected")
			assert.Contains(t, message, `the field is written by "argocd-controller"`)
			assert.Contains(t, condition(c.machineConfiguration(t), "Upgradeable"), "False ClusterBootImageSkewError")
		})
	})
	t.Run("boot images that are too old block upgrades, and there is a way out", func(_ *testing.T) {
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
	t.Run("many resources are looked at from cold, and one alone later", func(t *testing.T) { theBudget(t, c) })
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
