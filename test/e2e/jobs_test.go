//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/builder/backend"
	"github.com/layerwright/layerwright/builder/backends"
	"github.com/layerwright/layerwright/builder/jobs"
	"github.com/layerwright/layerwright/builder/pods"
	"github.com/layerwright/layerwright/hack/release/binimage"
	"github.com/layerwright/layerwright/internal/fault"
	"github.com/layerwright/layerwright/test/cluster/stack"
)

const (
	standinImage  = "layerwright.test/e2e-standin:1"
	standinDigest = "registry.example.com/os/worker@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
)

var _ backends.Backend = (*jobs.Backend)(nil)

// loadStandin makes the image of the program that stands in for the builder's, and loads it into
// the nodes.
func loadStandin(t *testing.T) {
	t.Helper()
	program := filepath.Join(t.TempDir(), "standin")
	compile := exec.CommandContext(t.Context(), "go", "build", "-o", program, "./test/e2e/standin")
	compile.Dir, compile.Env = repository, append(os.Environ(), "CGO_ENABLED=0")
	out, err := compile.CombinedOutput()
	require.NoError(t, err, string(out))
	image, err := binimage.Build(binimage.Options{Binary: program})
	require.NoError(t, err)
	tag, err := name.NewTag(standinImage)
	require.NoError(t, err)
	archive, err := os.Create(filepath.Join(t.TempDir(), "image.tar"))
	require.NoError(t, err)
	require.NoError(t, binimage.WriteArchive(archive, tag, image))
	require.NoError(t, archive.Close())
	mustCluster(t, "--name", clusterName, "load", archive.Name())
}

// asController has the rights that deploy/ gives the controller, and no others.
func asController(t *testing.T) *rest.Config {
	t.Helper()
	c := config(t)
	c.Impersonate = rest.ImpersonationConfig{
		UserName: "system:serviceaccount:" + stack.Namespace + ":" + stack.ControllerName,
		Groups:   []string{"system:serviceaccounts", "system:serviceaccounts:" + stack.Namespace, "system:authenticated"},
	}
	return c
}

// build is one build on the real cluster.
type build struct {
	*jobs.Backend
	t     *testing.T
	admin client.Client
	spec  backend.Spec
}

// newBuild makes a build whose steps do what the lines say.
func newBuild(t *testing.T, userNamespaces pods.UserNamespaces, lines ...string) *build {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, batchv1.AddToScheme, mcfgv1.AddToScheme} {
		require.NoError(t, add(scheme))
	}
	admin, err := client.New(config(t), client.Options{Scheme: scheme})
	require.NoError(t, err)
	limited, err := client.New(asController(t), client.Options{Scheme: scheme})
	require.NoError(t, err)
	core, err := kubernetes.NewForConfig(asController(t))
	require.NoError(t, err)
	b, err := jobs.New(jobs.Options{Namespace: stack.Namespace, Image: standinImage, UserNamespaces: userNamespaces, Logs: pods.NewLogs(core.CoreV1())}, limited, limited)
	require.NoError(t, err)

	words := strings.FieldsFunc(strings.ToLower(path.Base(t.Name())), func(r rune) bool { return r < 'a' || r > 'z' })
	mosb := &mcfgv1.MachineOSBuild{ObjectMeta: metav1.ObjectMeta{Name: "e2e-" + strings.Join(words, "-")}, Spec: mcfgv1.MachineOSBuildSpec{
		MachineConfig: mcfgv1.MachineConfigReference{Name: "rendered-e2e-1"}, MachineOSConfig: mcfgv1.MachineOSConfigReference{Name: "e2e"},
		RenderedImagePushSpec: "registry.example.com/os/worker:1",
	}}
	require.NoError(t, admin.Create(t.Context(), mosb))
	made := &build{Backend: b, t: t, admin: admin, spec: backend.Spec{
		Key: backend.Key{Build: mosb.Name, UID: string(mosb.UID)}, Pool: "e2e", PushSpec: "registry.example.com/os/worker:1",
		PullSecret: stack.PullSecret, PushSecret: stack.PushSecret, Timeout: 10 * time.Minute,
		Architectures: []backend.ArchitectureSpec{{
			Architecture: mcfgv1.ArchitectureAMD64, Context: map[string][]byte{"motd": []byte("hello")},
			Instructions: backend.Instructions{Build: mosb.Name, Architecture: mcfgv1.ArchitectureAMD64, Containerfile: strings.Join(lines, "\n"), Target: "registry.example.com/os/worker:1"},
		}},
		Policy: []byte("{}"), TrustBundle: []byte("-----BEGIN CERTIFICATE-----\n"),
		Resources: &mcfgv1.BuildResources{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("10m"), corev1.ResourceMemory: resource.MustParse("16Mi")}},
	}}
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		if t.Failed() {
			state, err := b.Observe(ctx, made.spec.Key)
			t.Logf("last seen: %+v %+v %v", state, state.Failure, err)
		}
		require.NoError(t, b.Remove(ctx, made.spec.Key))
		require.NoError(t, client.IgnoreNotFound(admin.Delete(ctx, mosb)))
	})
	return made
}

// until observes the build until it is as wanted.
func (b *build) until(wanted func(backend.State) bool) backend.State {
	b.t.Helper()
	var state backend.State
	require.EventuallyWithT(b.t, func(collect *assert.CollectT) {
		var err error
		state, err = b.Observe(b.t.Context(), b.spec.Key)
		require.NoError(collect, err)
		require.True(collect, wanted(state), "%+v %+v", state, state.Failure)
	}, 4*time.Minute, 100*time.Millisecond)
	return state
}

func (b *build) ensure() {
	b.t.Helper()
	require.NoError(b.t, b.Ensure(b.t.Context(), b.spec))
}

// untilFailed waits for the end, and returns the failure.
func (b *build) untilFailed() *backend.Failure {
	b.t.Helper()
	return b.until(func(s backend.State) bool { return s.Phase == backend.Failed }).Failure
}

func (b *build) pods() []corev1.Pod {
	b.t.Helper()
	var pods corev1.PodList
	require.NoError(b.t, b.admin.List(b.t.Context(), &pods, client.InNamespace(stack.Namespace), client.MatchingLabels{mcfgv1.LabelMachineOSBuild: b.spec.Key.Build}))
	slices.SortFunc(pods.Items, func(x, y corev1.Pod) int { return x.CreationTimestamp.Compare(y.CreationTimestamp.Time) })
	return pods.Items
}

func (b *build) job() *batchv1.Job {
	return &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: stack.Namespace, Name: "build-" + b.spec.Key.Build}}
}

// testBuildsAsJobs has what can happen to a build, on a real cluster, with the controller's rights.
// testContentSurvives has what the cluster and people do to one that runs.
// The deployed controller has no part in it.
func testBuildsAsJobs(t *testing.T) {
	controllerPod(t) // deploy/ is there
	loadStandin(t)
	ctrl.SetLogger(logr.Discard())

	for setting, isolated := range map[pods.UserNamespaces]struct {
		note, capabilities, seccomp, users string
	}{
		pods.UserNamespacesAuto:  {"isolation: UserNamespace", "CapEff 00000000802405fb", "Seccomp 2", "user namespace"},
		pods.UserNamespacesNever: {"isolation: Capabilities (user namespaces are turned off)", "CapEff 00000000800000c0", "Seccomp 0", ""},
	} {
		t.Run("succeeds with user namespaces "+string(setting), func(t *testing.T) {
			t.Parallel()
			b := newBuild(t, setting, "fetch mounts", "build mounts", "export mounts", "push mounts")
			b.ensure()
			state := b.until(func(s backend.State) bool { return s.Phase == backend.Succeeded || s.Phase == backend.Failed })
			require.Equal(t, backend.Succeeded, state.Phase, "%+v", state.Failure)
			assert.Equal(t, standinDigest, state.Image)
			assert.Equal(t, []string{isolated.note}, state.Notes)

			// Each step sees its own files only, no token, and can do what a builder has to.
			common := []string{
				"/etc/layerwright/trust/additional-trust-bundle.pem", "writes /tmp", "writes /run",
				isolated.capabilities, "NoNewPrivs 1", isolated.seccomp, "mounted",
			}
			if isolated.users != "" {
				common = append(common, isolated.users)
			}
			remote := []string{"/etc/layerwright/credentials/.dockerconfigjson", "/etc/layerwright/registries/policy.json"}
			const store, fetched, layout = "writes /var/lib/layerwright", "writes /var/lib/layerwright-fetched", "writes /var/lib/layerwright-layout"
			require.Len(t, state.Reports, 4)
			for i, own := range [][]string{
				append(slices.Clone(remote), store, fetched),
				{"/etc/layerwright/context/motd", store},
				{store, layout},
				append(slices.Clone(remote), fetched, "/etc/layerwright/base-credentials/.dockerconfigjson"),
			} {
				assert.ElementsMatch(t, append(slices.Clone(common), own...), state.Reports[i].Notes, state.Reports[i].Step)
			}

			require.NoError(t, b.Remove(t.Context(), b.spec.Key))
			require.EventuallyWithT(t, func(collect *assert.CollectT) { assert.Empty(collect, b.pods()) }, time.Minute, 50*time.Millisecond)
			state, err := b.Observe(t.Context(), b.spec.Key)
			require.NoError(t, err)
			assert.Equal(t, backend.Absent, state.Phase)
		})
	}

	t.Run("an administrators error ends it at once", func(t *testing.T) {
		t.Parallel()
		b := newBuild(t, pods.UserNamespacesAuto, "build fails")
		b.spec.Retries = 3
		b.ensure()
		failure := b.untilFailed()
		seen := time.Now()
		assert.Equal(t, &backend.Failure{Class: fault.Terminal, Reason: mcfgv1.ReasonBuildFailed, Message: "Containerfile line 7: RUN fails: exit status 1\nthe last line"}, failure)
		pods := b.pods()
		require.Len(t, pods, 1)
		t.Logf("failed %v after the container ended (which is known to the second)",
			seen.Sub(pods[0].Status.InitContainerStatuses[1].State.Terminated.FinishedAt.Time).Round(time.Millisecond))
		require.EventuallyWithT(t, func(collect *assert.CollectT) {
			job := b.job()
			require.NoError(collect, b.admin.Get(t.Context(), client.ObjectKeyFromObject(job), job))
			require.True(collect, slices.ContainsFunc(job.Status.Conditions, func(c batchv1.JobCondition) bool {
				return c.Type == batchv1.JobFailed && c.Reason == batchv1.JobReasonPodFailurePolicy
			}))
		}, time.Minute, 50*time.Millisecond)
		assert.Len(t, b.pods(), 1, "it stays for someone to look at, and there is no second one")
		assert.Equal(t, failure, b.untilFailed(), "what the Job says later changes nothing")
	})

	t.Run("a stumble is retried up to the limit", func(t *testing.T) {
		t.Parallel()
		b := newBuild(t, pods.UserNamespacesAuto, "fetch stumbles")
		b.spec.Retries = 1
		b.ensure()
		b.until(func(s backend.State) bool { return s.Failure != nil && s.Failure.Reason == mcfgv1.ReasonRetryingBuild })
		assert.Equal(t, &backend.Failure{
			Class: fault.Transient, Reason: mcfgv1.ReasonRetryLimitReached, Message: "2 attempts failed; the last: the registry answers 503\nthe last line",
		}, b.untilFailed())
		assert.Len(t, b.pods(), 2)
	})

	t.Run("a crash leaves its last lines", func(t *testing.T) {
		t.Parallel()
		b := newBuild(t, pods.UserNamespacesAuto, "push crashes")
		b.ensure()
		failure := b.untilFailed()
		assert.Equal(t, mcfgv1.ReasonRetryLimitReached, failure.Reason)
		assert.Contains(t, failure.Message, "step push ended with exit code 2 and no report:\npanic: standin crashes")
	})

	t.Run("too much memory", func(t *testing.T) {
		t.Parallel()
		b := newBuild(t, pods.UserNamespacesAuto, "build eats")
		b.spec.Resources.Limits = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("64Mi")}
		b.ensure()
		assert.Equal(t, "step build used more than 64Mi of memory and was killed: raise memory in spec.buildResources.limits of the MachineOSConfig", b.untilFailed().Message)
	})

	t.Run("waits for a node and for a secret", func(t *testing.T) {
		t.Parallel()
		b := newBuild(t, pods.UserNamespacesAlways)
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: stack.Namespace, Name: b.spec.Key.Build}, StringData: map[string]string{corev1.DockerConfigJsonKey: `{"auths":{}}`}}
		b.spec.PushSecret = secret.Name
		b.spec.Placement = &mcfgv1.BuildPlacement{NodeSelector: map[string]string{"layerwright.test/jobs": "here"}}
		err := b.Ensure(t.Context(), b.spec)
		require.EqualError(t, err, fmt.Sprintf("Secret %q is not in namespace %q", secret.Name, stack.Namespace))
		require.True(t, fault.IsWaiting(err))
		require.NoError(t, b.admin.Create(t.Context(), secret))
		t.Cleanup(func() { require.NoError(t, b.admin.Delete(context.WithoutCancel(t.Context()), secret)) })
		b.ensure()

		state := b.until(func(s backend.State) bool { return s.Failure != nil })
		assert.Equal(t, backend.Pending, state.Phase)
		assert.Equal(t, fault.Waiting, state.Failure.Class)
		assert.Contains(t, state.Failure.Message, "no node can run the build: 0/1 nodes are available: 1 node(s) didn't match Pod's node affinity/selector")

		again := secret.DeepCopy()
		again.ResourceVersion, again.UID = "", ""
		require.NoError(t, b.admin.Delete(t.Context(), secret))
		b.label(`"here"`)
		t.Cleanup(func() { b.label("null") })
		state = b.until(func(s backend.State) bool {
			return s.Failure != nil && s.Failure.Reason == mcfgv1.ReasonWaitingForSecret
		})
		assert.Equal(t, backend.Pending, state.Phase)
		assert.Equal(t, fmt.Sprintf("secret %q is not in namespace %q", secret.Name, stack.Namespace), state.Failure.Message)
		require.NoError(t, b.admin.Create(t.Context(), again))
		b.until(func(s backend.State) bool { return s.Phase == backend.Succeeded })
	})
}

// label labels the node that a build waits for.
func (b *build) label(value string) {
	b.t.Helper()
	patch := fmt.Appendf(nil, `{"metadata":{"labels":{"layerwright.test/jobs":%s}}}`, value)
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node1"}}
	require.NoError(b.t, b.admin.Patch(context.WithoutCancel(b.t.Context()), node, client.RawPatch(types.MergePatchType, patch)))
}

// TestOnlyBuildsMayMount has pods that the namespace must not take, whose level lets everything in.
func TestOnlyBuildsMayMount(t *testing.T) {
	controllerPod(t)
	good := corev1.SecurityContext{
		AllowPrivilegeEscalation: new(false), RunAsNonRoot: new(true), Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
		SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
	}
	for what, test := range map[string]struct {
		change  func(*corev1.PodSpec, *corev1.SecurityContext)
		refused string
	}{
		"restricted": {func(*corev1.PodSpec, *corev1.SecurityContext) {}, ""},
		"privileged": {func(_ *corev1.PodSpec, c *corev1.SecurityContext) {
			c.Privileged, c.AllowPrivilegeEscalation = new(true), nil
		}, "not privileged"},
		"root":         {func(_ *corev1.PodSpec, c *corev1.SecurityContext) { c.RunAsNonRoot = nil }, "only build pods run as root"},
		"no seccomp":   {func(_ *corev1.PodSpec, c *corev1.SecurityContext) { c.SeccompProfile = nil }, "only build pods run as root"},
		"a capability": {func(_ *corev1.PodSpec, c *corev1.SecurityContext) { c.Capabilities.Add = []corev1.Capability{"SETUID"} }, "may add only: NET_BIND_SERVICE"},
		"the node's files": {func(p *corev1.PodSpec, _ *corev1.SecurityContext) {
			p.Volumes[0].HostPath = &corev1.HostPathVolumeSource{Path: "/"}
		}, "neither the node's namespaces"},
		"a port of the node": {func(p *corev1.PodSpec, _ *corev1.SecurityContext) {
			p.InitContainers = []corev1.Container{{
				Name: "i", Image: standinImage, SecurityContext: good.DeepCopy(), Ports: []corev1.ContainerPort{{ContainerPort: 80, HostPort: 80}},
			}}
		}, "neither the node's namespaces"},
		"a type of SELinux": {func(_ *corev1.PodSpec, c *corev1.SecurityContext) {
			c.SELinuxOptions = &corev1.SELinuxOptions{Type: "spc_t"}
		}, "must not loosen SELinux"},
		"a type of SELinux for all containers": {func(p *corev1.PodSpec, _ *corev1.SecurityContext) {
			p.SecurityContext = &corev1.PodSecurityContext{SELinuxOptions: &corev1.SELinuxOptions{Type: "spc_t"}}
		}, "must not loosen SELinux"},
		"a level of SELinux": {func(_ *corev1.PodSpec, c *corev1.SecurityContext) {
			c.SELinuxOptions = &corev1.SELinuxOptions{Level: "s0:c1,c2"}
		}, ""},
		"no AppArmor": {func(_ *corev1.PodSpec, c *corev1.SecurityContext) {
			c.AppArmorProfile = &corev1.AppArmorProfile{Type: corev1.AppArmorProfileTypeUnconfined}
		}, "must not loosen SELinux"},
		"all of /proc": {func(p *corev1.PodSpec, c *corev1.SecurityContext) {
			p.HostUsers, c.ProcMount = new(false), new(corev1.UnmaskedProcMount)
		}, "must not loosen SELinux"},
		"the node's pids": {func(p *corev1.PodSpec, _ *corev1.SecurityContext) { p.HostPID = true }, "neither the node's namespaces"},
		"a build that is root of its node": {
			func(p *corev1.PodSpec, c *corev1.SecurityContext) {
				p.ServiceAccountName, p.AutomountServiceAccountToken = "layerwright-build", new(false)
				c.Capabilities.Add = []corev1.Capability{"SYS_ADMIN"}
			}, "may add only: SETFCAP, SETGID, SETUID",
		},
		"a build with a token": {
			func(p *corev1.PodSpec, _ *corev1.SecurityContext) { p.ServiceAccountName = "layerwright-build" }, "build pods have no token",
		},
	} {
		t.Run(what, func(t *testing.T) {
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "e2e-policy"}, Spec: corev1.PodSpec{Volumes: []corev1.Volume{{Name: "v"}}}}
			security := good.DeepCopy()
			test.change(&pod.Spec, security)
			pod.Spec.Containers = []corev1.Container{{Name: "c", Image: standinImage, SecurityContext: security}}
			_, err := clients(t).CoreV1().Pods(stack.Namespace).Create(t.Context(), pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
			if test.refused == "" {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, test.refused)
			}
		})
	}
}
