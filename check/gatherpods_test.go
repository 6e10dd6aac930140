package check

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// kubelet gives a pod its status, in the moment in which it is created.
type kubelet func(*corev1.Pod) error

// works has listeners run, and the others end with a report.
func works(pod *corev1.Pod) error {
	pod.Status.Phase, pod.Status.PodIP = corev1.PodRunning, "10.0.0.1"
	state := corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
	if len(pod.Spec.Containers[0].Ports) == 0 {
		pod.Status.Phase = corev1.PodSucceeded
		state = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Message: `{"userNamespace":true,"push":{"/run/push-0":""}}`}}
	}
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{State: state}}
	return nil
}

// newProber asks a cluster in memory. It returns the pods that were made, too.
func newProber(facts *Facts, starts kubelet) (*prober, client.Client, map[string]*corev1.Pod) {
	made := map[string]*corev1.Pod{}
	c := fake.NewClientBuilder().WithInterceptorFuncs(interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, object client.Object, options ...client.CreateOption) error {
			pod, isPod := object.(*corev1.Pod)
			if isPod {
				if err := starts(pod); err != nil {
					return err
				}
				made[pod.Name] = pod.DeepCopy()
			}
			return c.Create(ctx, object, options...)
		},
	}).Build()
	return &prober{maker: c, reader: c, clock: clocktesting.NewFakePassiveClock(noon), pause: time.Millisecond, facts: facts, id: "x"}, c, made
}

// ready is the healthy cluster with what pods are made of.
func ready() *Facts {
	f := healthy()
	f.Configs[0].Spec.RenderedImagePushSpec = "registry.example.com:5000/os/worker:latest"
	for i := range f.Nodes {
		f.Nodes[i].Labels = map[string]string{corev1.LabelOSStable: "linux", corev1.LabelHostname: f.Nodes[i].Name}
	}
	spec := &f.Controller.Spec.Template.Spec
	spec.Containers[0].Args = append(spec.Containers[0].Args, "--plain-http-registry=plain:5000")
	spec.Containers[0].Env = []corev1.EnvVar{{Name: "BUILDER_IMAGE", Value: "r/builder@sha256:1"}, {Name: "SSL_CERT_FILE", Value: "/ca/ca.crt"}, {Name: "GOGC", Value: "40"}}
	spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "ca", MountPath: "/ca"}, {Name: "cache", MountPath: "/cache"}}
	spec.Volumes = []corev1.Volume{
		{Name: "ca", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{}}}, {Name: "cache", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
	}
	return f
}

func requireNoPods(t *testing.T, c client.Client) {
	t.Helper()
	var left corev1.PodList
	require.NoError(t, c.List(t.Context(), &left))
	require.Empty(t, left.Items, "pods are removed, whatever happens")
}

func TestProbe(t *testing.T) {
	t.Parallel()
	facts := ready()
	facts.Nodes = append(facts.Nodes, *facts.Nodes[0].DeepCopy())
	facts.Nodes[2].Name, facts.Nodes[2].Spec.Unschedulable = "cordoned", true
	facts.Nodes[1].Status.RuntimeHandlers = nil
	p, c, made := newProber(facts, works)
	leftover, other := probing{facts: facts, id: "old", lasts: time.Minute}.listener("open", false), probing{facts: facts, id: "other", lasts: time.Minute}.listener("open", false)
	leftover.CreationTimestamp.Time, other.CreationTimestamp.Time = noon.Add(-time.Hour), noon.Add(-time.Second)
	require.NoError(t, c.Create(t.Context(), leftover))
	require.NoError(t, c.Create(t.Context(), other))
	clear(made)
	require.NoError(t, p.run(t.Context(), time.Minute))
	require.NoError(t, c.Delete(t.Context(), other), "another run's pods are left to it")
	requireNoPods(t, c)

	require.Len(t, made, 4, "two that listen, and one on each node that takes builds")
	assert.Equal(t, "10.0.0.1:8443", facts.Pods.Open.Address)
	assert.Equal(t, map[string]string{"/run/push-0": ""}, facts.Pods.Nodes[0].Report.Push)
	assert.True(t, facts.Pods.Nodes[0].UserNamespace)
	assert.False(t, facts.Pods.Nodes[1].UserNamespace, "its node offers none")

	pod := made["layerwright-check-x-1"]
	assert.Equal(t, "node1", pod.Spec.NodeSelector[corev1.LabelHostname])
	assert.Equal(t, "build", pod.Labels["app.kubernetes.io/component"], "the NetworkPolicy of builds is about it")
	assert.Equal(t, "check", made["layerwright-check-x-open"].Labels["app.kubernetes.io/component"])
	assert.EqualValues(t, 150, *pod.Spec.ActiveDeadlineSeconds, "should this program be killed")
	container := pod.Spec.Containers[0]
	assert.Equal(t, "r/builder@sha256:1", container.Image)
	assert.Equal(t, []string{
		"probe", "--dial", "10.0.0.1:8443", "--dial", "10.0.0.1:8443", "--push", "/run/push-0=registry.example.com:5000/os/worker", "--plain-http", "plain:5000",
	}, container.Args)
	assert.Equal(t, []corev1.EnvVar{{Name: "SSL_CERT_FILE", Value: "/ca/ca.crt"}}, container.Env)
	require.Len(t, pod.Spec.Volumes, 2)
	assert.Equal(t, "push", pod.Spec.Volumes[0].Secret.SecretName)
	assert.Equal(t, "ca", pod.Spec.Volumes[1].Name)
}

func TestProbeOfPodsThatDoNotStart(t *testing.T) {
	t.Parallel()
	waiting := func(reason, message string) kubelet {
		return func(pod *corev1.Pod) error {
			pod.Status.ContainerStatuses = []corev1.ContainerStatus{{State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}}}}
			return nil
		}
	}
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "x", nil)
	tests := map[string]struct {
		starts  kubelet
		timeout time.Duration
		stuck   string
		isPull  bool
		refused string
	}{
		"an image that can't be pulled ends the wait": {waiting("ImagePullBackOff", "401\nUnauthorized"), time.Minute, "ImagePullBackOff: 401 Unauthorized", true, ""},
		"a pull that failed once is given time":       {waiting("ErrImagePull", "reset"), 20 * time.Millisecond, "ErrImagePull: reset", true, ""},
		"no node has room": {func(pod *corev1.Pod) error {
			pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Message: "0/2 nodes are available"}}
			return nil
		}, 20 * time.Millisecond, "0/2 nodes are available", false, ""},
		"nothing says why": {func(*corev1.Pod) error { return nil }, 20 * time.Millisecond, "nothing says why", false, ""},
		"a probe that fails": {func(pod *corev1.Pod) error {
			pod.Status.Phase = corev1.PodFailed
			pod.Status.ContainerStatuses = []corev1.ContainerStatus{{State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 2, Message: "unknown\ncommand"}}}}
			return nil
		}, 50 * time.Millisecond, "it ended with exit code 2: unknown command", false, ""},
		"a webhook refuses them":  {func(*corev1.Pod) error { return errors.New("admission webhook denied the request") }, time.Minute, "", false, "denied the request"},
		"who may not create pods": {func(*corev1.Pod) error { return forbidden }, time.Minute, "", false, "is forbidden"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			facts := ready()
			p, c, _ := newProber(facts, test.starts)
			require.NoError(t, p.run(t.Context(), test.timeout))
			requireNoPods(t, c)
			if test.refused != "" {
				assert.Contains(t, facts.Pods.Refused, test.refused)
				return
			}
			for _, pod := range append([]Pod{facts.Pods.Open, facts.Pods.Closed}, facts.Pods.Nodes...) {
				assert.Contains(t, pod.Stuck, test.stuck, pod.Name)
				assert.Equal(t, test.isPull, pod.IsPull, pod.Name)
				assert.Nil(t, pod.Report)
			}
		})
	}
	t.Run("who may not list pods starts none", func(t *testing.T) {
		t.Parallel()
		p, c, made := newProber(ready(), works)
		p.reader = interceptor.NewClient(c.(client.WithWatch), interceptor.Funcs{ //nolint:forcetypeassert // the fake one is
			List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error {
				return forbidden
			},
		})
		require.NoError(t, p.run(t.Context(), time.Minute))
		assert.Contains(t, p.facts.Pods.Refused, "is forbidden")
		assert.Empty(t, made)
	})
	t.Run("the kubelet's warning says why", func(t *testing.T) {
		t.Parallel()
		p, c, _ := newProber(ready(), func(pod *corev1.Pod) error {
			pod.UID = types.UID(pod.Name)
			return nil
		})
		event := &corev1.Event{Type: corev1.EventTypeWarning, Reason: "FailedCreatePodSandBox", Message: "mount_setattr:\ninvalid argument"}
		event.Namespace, event.Name, event.InvolvedObject.UID = p.facts.Namespace, "e", "layerwright-check-x-2"
		require.NoError(t, c.Create(t.Context(), event))
		events := 0
		p.reader = interceptor.NewClient(c.(client.WithWatch), interceptor.Funcs{ //nolint:forcetypeassert // the fake one is
			List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
				if _, is := list.(*corev1.EventList); is {
					events++
					requireNoPods(t, c)
				}
				return c.List(ctx, list, options...)
			},
		})
		require.NoError(t, p.run(t.Context(), 20*time.Millisecond))
		assert.Equal(t, 1, events, "asked for once, when pods are removed")
		assert.Equal(t, "mount_setattr: invalid argument", p.facts.Pods.Nodes[1].Stuck)
		assert.Equal(t, "FailedCreatePodSandBox", p.facts.Pods.Nodes[1].Warning)
		assert.Contains(t, p.facts.Pods.Nodes[0].Stuck, "nothing says why")
	})
	t.Run("listeners that take all their time leave the others theirs", func(t *testing.T) {
		t.Parallel()
		p, c, _ := newProber(ready(), func(pod *corev1.Pod) error {
			if len(pod.Spec.Containers[0].Ports) > 0 {
				return nil
			}
			return works(pod)
		})
		p.maker = interceptor.NewClient(c.(client.WithWatch), interceptor.Funcs{ //nolint:forcetypeassert // the fake one is
			Create: func(ctx context.Context, c client.WithWatch, object client.Object, options ...client.CreateOption) error {
				if ctx.Err() != nil {
					return ctx.Err() // as a real one
				}
				return c.Create(ctx, object, options...)
			},
		})
		require.NoError(t, p.run(t.Context(), 200*time.Millisecond))
		requireNoPods(t, c)
		assert.NotEmpty(t, p.facts.Pods.Open.Stuck)
		require.Len(t, p.facts.Pods.Nodes, 2)
		assert.NotNil(t, p.facts.Pods.Nodes[1].Report)
	})
	t.Run("a webhook refuses pods on one node", func(t *testing.T) {
		t.Parallel()
		p, c, _ := newProber(ready(), func(pod *corev1.Pod) error {
			if pod.Name == "layerwright-check-x-1" {
				return errors.New("admission webhook denied the request")
			}
			return works(pod)
		})
		require.NoError(t, p.run(t.Context(), time.Minute))
		requireNoPods(t, c)
		require.Len(t, p.facts.Pods.Nodes, 2)
		assert.Equal(t, "creating it: admission webhook denied the request", p.facts.Pods.Nodes[0].Stuck)
		assert.NotNil(t, p.facts.Pods.Nodes[1].Report)
	})
	t.Run("pods that can't be removed are in the facts", func(t *testing.T) {
		t.Parallel()
		p, c, made := newProber(ready(), works)
		p.maker = interceptor.NewClient(c.(client.WithWatch), interceptor.Funcs{ //nolint:forcetypeassert // the fake one is
			DeleteAllOf: func(ctx context.Context, c client.WithWatch, object client.Object, options ...client.DeleteAllOfOption) error {
				if len(made) > 0 {
					return forbidden
				}
				return c.DeleteAllOf(ctx, object, options...)
			},
		})
		require.NoError(t, p.run(t.Context(), time.Minute))
		assert.Contains(t, p.facts.Pods.Left, "is forbidden")
		assert.NotNil(t, p.facts.Pods.Nodes[0].Report)
	})
	t.Run("of many nodes some are tried", func(t *testing.T) {
		t.Parallel()
		facts := ready()
		for range 30 {
			facts.Nodes = append(facts.Nodes, facts.Nodes[0])
		}
		p, _, made := newProber(facts, works)
		require.NoError(t, p.run(t.Context(), time.Minute))
		assert.Len(t, made, 22)
		assert.Len(t, facts.Pods.Nodes, 20)
		assert.Equal(t, 12, facts.Pods.Untried)
	})
	t.Run("an interruption removes them too", func(t *testing.T) {
		t.Parallel()
		ctx, cancel := context.WithCancel(t.Context())
		p, c, _ := newProber(ready(), func(*corev1.Pod) error { cancel(); return nil })
		require.ErrorIs(t, p.run(ctx, time.Minute), context.Canceled)
		requireNoPods(t, c)
	})
	t.Run("before it is installed nothing is started", func(t *testing.T) {
		t.Parallel()
		facts := ready()
		bare(facts)
		p, _, made := newProber(facts, works)
		require.NoError(t, p.run(t.Context(), time.Minute))
		assert.Contains(t, facts.Pods.Refused, "not installed")
		assert.Empty(t, made)
	})
}
