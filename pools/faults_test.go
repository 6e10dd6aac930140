package pools

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/internal/inwork"
	"github.com/layerwright/layerwright/internal/status"
	"github.com/layerwright/layerwright/machineconfigs"
	"github.com/layerwright/layerwright/trust/signaturepolicy"
)

func TestRetentionContinuesAfterErrors(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		err  error
		want string
	}{
		"gone already": {apierrors.NewNotFound(schema.GroupResource{}, "x"), ""},
		"another one":  {apierrors.NewConflict(schema.GroupResource{}, "x", errors.New("UID")), ""},
		"refused":      {apierrors.NewForbidden(schema.GroupResource{}, "x", errors.New("no")), "deleting rendered MachineConfig"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, newPool("worker"), newConfig("00-a", "worker", "/etc/a"))
			r := w.reconciler()
			for i := range 4 {
				w.editConfig("00-a", func(mc *mcfgv1.MachineConfig) { mc.Spec.KernelArguments = []string{fmt.Sprint("n=", i)} })
				w.settle(r, "worker")
			}
			require.Len(t, w.renderedNames(), 4)
			w.options.RenderedConfigLimit = 1
			r = w.reconciler()
			w.before = once("delete MachineConfig", tt.err)
			_, err := w.reconcile(r, "worker")
			if tt.want == "" {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, tt.want)
			}
			assert.Len(t, w.renderedNames(), 2, "the others went")
			w.settle(r, "worker")
			assert.Len(t, w.renderedNames(), 1)
		})
	}
}

func TestAConfigurationThatIsTooLarge(t *testing.T) {
	t.Parallel()
	for name, refusal := range map[string]error{
		"as the API server says it": apierrors.NewRequestEntityTooLargeError("limit is 3145728"),
		"as etcd says it":           apierrors.NewInternalError(errors.New("etcdserver: request is too large")),
		"as its client says it":     errors.New("rpc error: code = ResourceExhausted desc = trying to send message larger than max (2098866 vs. 2097152)"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, newPool("worker"), newConfig("00-a", "worker", "/etc/a"))
			r := w.reconciler()
			tries := 0
			w.before = func(call string) error {
				if strings.HasPrefix(call, "create MachineConfig ") {
					tries++
					return refusal
				}
				return nil
			}
			w.settle(r, "worker")
			w.settle(r, "worker")
			assert.Contains(t, w.condition("worker", "RenderDegraded"), "True RenderedConfigTooLarge the pool's MachineConfigs together are larger than")
			assert.Contains(t, w.condition("worker", "Stalled"), "RenderedConfigTooLarge")
			assert.Equal(t, 1, tries)
			assert.Empty(t, w.wants("worker"))

			w.before = nil
			w.editConfig("00-a", func(mc *mcfgv1.MachineConfig) { mc.Spec.KernelArguments = []string{"small"} })
			w.settle(r, "worker")
			assert.NotEmpty(t, w.wants("worker"))
		})
	}
}

// TestBuildsAreListedWhereSomethingMayGo has a large cluster's builds read for no pool that has
// nothing to remove.
func TestBuildsAreListedWhereSomethingMayGo(t *testing.T) {
	t.Parallel()
	w := newWorld(t, newPool("worker"), newConfig("00-a", "worker", "/etc/a"))
	w.options.RenderedConfigLimit = 1
	r := w.reconciler()
	const list = "list MachineOSBuildList"
	listed := 0
	w.before = func(call string) error {
		if strings.HasPrefix(call, list) {
			listed++
		}
		return nil
	}
	w.settle(r, "worker")
	assert.Len(t, w.renderedNames(), 1)
	assert.Zero(t, listed)
	w.editConfig("00-a", func(mc *mcfgv1.MachineConfig) { mc.Spec.KernelArguments = []string{"a"} })
	w.settle(r, "worker")
	assert.Positive(t, listed)

	w.options.RenderedConfigLimit = 0
	r = w.reconciler()
	w.before = once(list, errors.New("no"))
	_, err := w.reconcile(r, "worker")
	require.ErrorContains(t, err, "listing MachineOSBuilds: no")
}

func TestErrorsOfTheAPIAreTriedAgain(t *testing.T) {
	t.Parallel()
	refused := apierrors.NewForbidden(schema.GroupResource{}, "x", errors.New("no"))
	for _, call := range []string{
		"list MachineConfigPoolList", "list MachineConfigList", "list NodeList", "list MachineOSImageList", "get OSImageStream",
		"create MachineConfig", "patch MachineConfigPool", "status MachineConfigPool",
	} {
		t.Run(call, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, newPool("worker"), newConfig("00-a", "worker", "/etc/a"), newNode("n", worker))
			r := w.reconciler()
			w.before = once(call, refused)
			_, err := w.reconcile(r, "worker")
			require.ErrorContains(t, err, "no")
			require.NotErrorIs(t, err, reconcile.TerminalError(nil))
			assert.NotContains(t, w.condition("worker", "RenderDegraded"), "True", "it is no fault of the MachineConfigs")
			if strings.HasPrefix(call, "create") {
				assert.Contains(t, w.condition("worker", "Ready"), "Retrying storing rendered MachineConfig")
				assert.Equal(t, int32(1), w.pool("worker").Status.MachineCount, "nodes are counted all the same")
			}
			w.settle(r, "worker")
			assert.NotEmpty(t, w.wants("worker"))
			assert.Equal(t, "False AsExpected", w.condition("worker", "RenderDegraded"))
		})
	}
}

func TestAPoolThatAPolicyRefuses(t *testing.T) {
	t.Parallel()
	w := newWorld(t, newPool("infra"))
	r := w.reconciler()
	w.before = once("patch MachineConfigPool", apierrors.NewInvalid(schema.GroupKind{Kind: "MachineConfigPool"}, "infra", field.ErrorList{
		field.Invalid(field.NewPath("spec"), "", "All custom MachineConfigPools must inherit from the worker pool"),
	}))
	_, err := w.reconcile(r, "infra")
	require.ErrorIs(t, err, reconcile.TerminalError(nil))
	assert.Contains(t, w.condition("infra", "Stalled"), "True Invalid setting spec.configuration of MachineConfigPool")
	assert.Contains(t, w.condition("infra", "Stalled"), "must inherit from the worker pool")
	w.settle(r, "infra")
	assert.Equal(t, "none", w.condition("infra", "Stalled"))
}

func TestALostRaceIsNoError(t *testing.T) {
	t.Parallel()
	for _, call := range []string{"patch MachineConfigPool", "status MachineConfigPool"} {
		t.Run(call, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, newPool("worker"), newConfig("00-a", "worker", "/etc/a"))
			w.before = func(is string) error {
				if strings.HasPrefix(is, call) {
					w.editPool("worker", func(p *mcfgv1.MachineConfigPool) { p.Labels = map[string]string{"by": "another"} })
				}
				return nil
			}
			r := w.reconciler()
			result, err := w.reconcile(r, "worker")
			require.NoError(t, err)
			assert.Equal(t, ctrl.Result{RequeueAfter: status.ConflictDelay}, result)
			w.before = nil
			w.settle(r, "worker")
			assert.Equal(t, "another", w.pool("worker").Labels["by"])
			assert.NotEmpty(t, w.wants("worker"))
		})
	}
}

// TestCrashesAnywhere ends a process around every write of a story, and expects the same end.
func TestCrashesAnywhere(t *testing.T) {
	t.Parallel()
	story := func(t *testing.T, arm func(*world)) *world {
		t.Helper()
		w := newWorld(t, newPool("worker"), newConfig("00-a", "worker", "/etc/a"), newNode("n", worker), newStream("rhel-9"))
		w.options.RenderedConfigLimit = 1
		arm(w)
		chapters := []func(){
			func() {},
			func() {
				w.editConfig("00-a", func(mc *mcfgv1.MachineConfig) { mc.Spec.KernelArguments = []string{"a"} })
			},
			func() { w.editNode("n", having(w.wants("worker"))) },
			func() { w.editConfig(w.wants("worker"), func(mc *mcfgv1.MachineConfig) { mc.Spec.FIPS = true }) },
			func() {
				w.editConfig("00-a", func(mc *mcfgv1.MachineConfig) { mc.Spec.KernelArguments = []string{"b"} })
			},
			func() { w.editNode("n", having(w.wants("worker"))) },
		}
		for _, happens := range chapters {
			happens()
			for range 8 {
				_, _ = w.reconcile(w.reconciler(), "worker") // each is another process
			}
		}
		return w
	}
	calm := story(t, func(*world) {})
	require.Equal(t, "True Succeeded", calm.condition("worker", "Ready"))
	require.Equal(t, "rhel-9", calm.pool("worker").Status.OSImageStream.Name)
	want, wantNames := calm.pool("worker"), calm.renderedNames() // once: a world is for one test at a time
	require.Len(t, wantNames, 1)
	unversioned(want)
	killed := errors.New("killed")
	for i, write := range calm.writes {
		if testing.Short() && i%4 != 0 {
			continue
		}
		for when, arm := range map[string]func(*world){
			"before": func(w *world) { w.before = nthWrite(i, killed) }, "after": func(w *world) { w.after = nthWrite(i, killed) },
		} {
			t.Run(fmt.Sprintf("%s write %d, %s", when, i, write), func(t *testing.T) {
				t.Parallel()
				w := story(t, arm)
				got := w.pool("worker")
				unversioned(got)
				assert.Equal(t, want, got)
				assert.Equal(t, wantNames, w.renderedNames())
			})
		}
	}
}

// unversioned takes off what tells when an object was written.
func unversioned(pool *mcfgv1.MachineConfigPool) {
	pool.ResourceVersion, pool.CreationTimestamp = "", metav1.Time{}
	for i := range pool.Status.Conditions {
		pool.Status.Conditions[i].LastTransitionTime = metav1.Time{}
	}
}

// nthWrite fails one write.
func nthWrite(n int, err error) func(string) error {
	seen := 0
	return func(call string) error {
		if strings.HasPrefix(call, "list ") || strings.HasPrefix(call, "get ") {
			return nil
		}
		seen++
		if seen == n+1 {
			return err
		}
		return nil
	}
}

func TestAPoolThatGoesIsLeftAlone(t *testing.T) {
	t.Parallel()
	w := newWorld(t, newPool("worker", func(p *mcfgv1.MachineConfigPool) { p.Finalizers = []string{"foregroundDeletion"} }), newConfig("00-a", "worker", "/etc/a"))
	r := w.reconciler()
	w.settle(r, "worker")
	w.remove(w.pool("worker"))
	w.writes = nil
	w.add(newConfig("50-b", "worker", "/etc/b"))
	w.settle(r, "worker")
	assert.Empty(t, w.writes)
	require.Contains(t, r.renders.last, "worker")

	w.editPool("worker", func(p *mcfgv1.MachineConfigPool) { p.Finalizers = nil })
	result, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKey{Name: "worker"}})
	require.NoError(t, err)
	assert.Zero(t, result)
	assert.Empty(t, r.renders.last, "nothing is kept of it")
}

func TestSelectorsThatCannotBeRead(t *testing.T) {
	t.Parallel()
	sometimes := &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Sometimes"}}}
	t.Run("of nodes", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, newPool("worker", func(p *mcfgv1.MachineConfigPool) { p.Spec.NodeSelector = sometimes }), newPool("master"), newNode("n", worker))
		r := w.reconciler()
		_, err := w.reconcile(r, "worker")
		require.ErrorIs(t, err, reconcile.TerminalError(nil))
		assert.Equal(t, `True Invalid reading spec.nodeSelector: "Sometimes" is not a valid label selector operator`, w.condition("worker", "Stalled"))
		w.settle(r, "master")
		assert.Equal(t, "True Succeeded", w.condition("master", "Ready"))
	})
	t.Run("of MachineConfigs", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, newPool("worker", func(p *mcfgv1.MachineConfigPool) { p.Spec.MachineConfigSelector = sometimes }))
		w.settle(w.reconciler(), "worker")
		assert.Contains(t, w.condition("worker", "RenderDegraded"), "True InvalidMachineConfig")
		assert.Contains(t, w.condition("worker", "RenderDegraded"), "spec.machineConfigSelector")
	})
}

func TestForeignConditionsStay(t *testing.T) {
	t.Parallel()
	pool := newPool("worker", degradedBy("ImageBuildDegraded"))
	pool.Status.Conditions[0].LastTransitionTime = metav1.NewTime(t0.Add(-time.Hour))
	pool.Status.OSImagePullSpec = mcfgv1.ImageDigestFormat(pinned("1"))
	w := newWorld(t, pool)
	w.settle(w.reconciler(), "worker")
	got := w.pool("worker")
	assert.Equal(t, pool.Status.Conditions[0].Type, got.Status.Conditions[0].Type)
	assert.True(t, pool.Status.Conditions[0].LastTransitionTime.Equal(&got.Status.Conditions[0].LastTransitionTime))
	assert.Equal(t, pool.Status.OSImagePullSpec, got.Status.OSImagePullSpec)
	assert.Contains(t, w.condition("worker", "Degraded"), "True Because ImageBuildDegraded")
}

// TestSignaturePolicyIsKept has a MachineConfig that takes the signature policy from nodes.
func TestSignaturePolicyIsKept(t *testing.T) {
	t.Parallel()
	files, err := signaturepolicy.MakeFiles(nil, []signaturepolicy.Repository{{
		Name: "registry.example.com/os/worker", Keys: [][]byte{[]byte("-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n")},
	}})
	require.NoError(t, err)
	policy, err := signaturepolicy.MachineConfig("worker", files)
	require.NoError(t, err)
	policy.OwnerReferences = []metav1.OwnerReference{{APIVersion: mcfgv1.GroupVersion.String(), Kind: "MachineOSConfig", Name: "worker", UID: "1", Controller: new(true)}}
	w := newWorld(t, newPool("worker"), policy)
	w.options.Check = signaturepolicy.CheckKept
	r := w.reconciler()
	w.settle(r, "worker")
	before := w.pool("worker").Spec.Configuration.Name

	w.add(newConfig("99-zz", "worker", signaturepolicy.PolicyPath))
	w.settle(r, "worker")
	pool := w.pool("worker")
	assert.Equal(t, before, pool.Spec.Configuration.Name, "nodes keep the policy")
	c := status.Find(pool.GetConditions(), "RenderDegraded")
	assert.Equal(t, metav1.ConditionTrue, c.Status)
	assert.Equal(t, `MachineConfig "99-zz" has /etc/containers/policy.json and would replace the signature policy of MachineConfig `+
		`"99-worker-layerwright-signature-policy", because it is joined after it; rename it, so that its name sorts before`, c.Message)
}

// TestARefusalIsOfWhatWasRead has a MachineConfig that the cache never saw: it was removed before.
func TestARefusalIsOfWhatWasRead(t *testing.T) {
	t.Parallel()
	refused := newConfig("99-z", "worker", "/etc/z")
	w := newWorld(t, newPool("worker"), newConfig("00-a", "worker", "/etc/a"), refused)
	w.hidden[refused.Name] = true
	w.options.Check = func(_ string, selected []*mcfgv1.MachineConfig) error {
		if slices.ContainsFunc(selected, func(mc *mcfgv1.MachineConfig) bool { return mc.Name == refused.Name }) {
			return errors.New("99-z is refused")
		}
		return nil
	}
	r := w.reconciler()
	_, err := w.reconcile(r, "worker")
	require.NoError(t, err)
	assert.Contains(t, w.condition("worker", "RenderDegraded"), "99-z is refused")
	w.remove(w.config(refused.Name))
	w.settle(r, "worker")
	assert.Contains(t, w.condition("worker", "RenderDegraded"), "False")
}

// TestAPoolWaitsForOtherSuspects: the pool was in work beside something else when the process was
// killed, and that goes on first.
func TestAPoolWaitsForOtherSuspects(t *testing.T) {
	t.Parallel()
	w := newWorld(t, newPool("worker"), newConfig("00-a", "worker", "/etc/a"))
	open := func(dir string) *inwork.Log {
		log, err := inwork.Open(dir)
		require.NoError(t, err)
		return log
	}
	other := inwork.Work{Object: "other"}
	dir, left := t.TempDir(), filepath.Join(t.TempDir(), "left")
	w.options.InWork = open(dir)
	_, err := w.options.InWork.Begin(t.Context(), other)
	require.NoError(t, err)
	r := w.reconciler()
	r.renders.render = func(machineconfigs.Options, []*mcfgv1.MachineConfig) (*machineconfigs.Rendered, error) {
		require.NoError(t, os.CopyFS(left, os.DirFS(dir)))
		return nil, errors.New("the process was killed")
	}
	_, _ = w.reconcile(r, "worker")

	w.options.InWork = open(left)
	end, err := w.options.InWork.Begin(t.Context(), other)
	require.NoError(t, err)
	r = w.reconciler()
	result, err := w.reconcile(r, "worker")
	require.NoError(t, err)
	assert.Equal(t, 2*time.Second, result.RequeueAfter)
	assert.Zero(t, w.renders)
	conditions := w.pool("worker").GetConditions()
	assert.Equal(t, mcfgv1.ReasonWaitingForTurn, status.Find(conditions, typeRenderDegraded).Reason)
	end()
	w.settle(r, "worker")
	assert.Equal(t, 1, w.renders, "that it waited is not remembered")
	assert.NotEmpty(t, w.wants("worker"))
}
