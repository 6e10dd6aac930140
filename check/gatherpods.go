package check

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/layerwright/layerwright/check/probe"
	"github.com/layerwright/layerwright/nodes"
)

// podMaker makes and removes pods.
type podMaker interface {
	Create(ctx context.Context, pod client.Object, options ...client.CreateOption) error
	Delete(ctx context.Context, pod client.Object, options ...client.DeleteOption) error
	DeleteAllOf(ctx context.Context, pod client.Object, options ...client.DeleteAllOfOption) error
}

// prober has pods find out what the API server does not know.
type prober struct {
	maker  podMaker
	reader client.Reader
	clock  clock.PassiveClock
	// pause is between two looks at a pod.
	pause time.Duration
	facts *Facts
	// id tells the pods of this run from those of another.
	id string
}

const (
	betweenLooks = 500 * time.Millisecond
	// toRemove is how long removing the pods may take, and asking why they did not start. It is
	// begun when the time for them is up.
	toRemove = 15 * time.Second
	// slack is for pods to end by themselves should this program be killed.
	slack = 30 * time.Second
	// mostNodes is on how many nodes pods are started.
	mostNodes = 20
)

// GatherPods adds what pods find to facts: it starts them in Layerwright's namespace, two that
// listen, then one on each of at most 20 nodes that take builds, and removes them. Pods of either
// kind that take longer than the timeout are given up. What goes wrong with pods is in the facts;
// the error is that ctx is over.
func GatherPods(ctx context.Context, config *rest.Config, facts *Facts, now clock.PassiveClock, timeout time.Duration) error {
	c, err := client.New(config, client.Options{})
	if err != nil {
		return fmt.Errorf("connecting to %s: %w", config.Host, err)
	}
	return (&prober{maker: c, reader: c, clock: now, pause: betweenLooks, facts: facts, id: rand.String(5)}).run(ctx, timeout)
}

func (p *prober) run(ctx context.Context, timeout time.Duration) error {
	p.facts.Pods = &Pods{}
	if !p.facts.installed() {
		p.facts.Pods.Refused = "they run the builder's image, which the controller names, and that is not installed"
		return nil
	}
	// Who may not remove pods starts none.
	if err := errors.Join(p.removeLeftovers(ctx), p.remove(ctx)); err != nil {
		p.facts.Pods.Refused = err.Error()
		return ctx.Err()
	}
	p.try(ctx, timeout)
	removing := p.remove(context.WithoutCancel(ctx))
	if err := ctx.Err(); err != nil {
		return errors.Join(err, removing)
	}
	if removing != nil {
		p.facts.Pods.Left = removing.Error()
	}
	p.explain(ctx)
	return ctx.Err()
}

// try starts the pods that listen, and then those that ask, for which it waits as long again.
func (p *prober) try(ctx context.Context, timeout time.Duration) {
	specs := probing{facts: p.facts, id: p.id, lasts: 2*timeout + slack}
	listening, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	listeners := []*corev1.Pod{specs.listener("open", false), specs.listener("closed", true)}
	for _, pod := range listeners {
		if err := p.maker.Create(listening, pod); err != nil {
			p.facts.Pods.Refused = fmt.Sprintf("creating pod %q: %s", pod.Name, err)
			return
		}
	}
	found := p.follow(listening, listeners, func(pod *corev1.Pod) bool { return pod.Status.PodIP != "" && isRunning(pod) })
	p.facts.Pods.Open, p.facts.Pods.Closed = found[0], found[1]

	asking, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	var askers []*corev1.Pod
	for i, tried := 0, 0; i < len(p.facts.Nodes) && ctx.Err() == nil; i++ {
		node := &p.facts.Nodes[i]
		if !takesBuilds(node) {
			continue
		}
		if tried++; tried > mostNodes {
			p.facts.Pods.Untried++
			continue
		}
		pod := specs.asker(strconv.Itoa(tried), node, found[0].Address, found[1].Address)
		if err := p.maker.Create(asking, pod); err != nil {
			p.facts.Pods.Nodes = append(p.facts.Pods.Nodes, Pod{Name: pod.Name, Node: node.Name, Stuck: "creating it: " + err.Error()})
			continue
		}
		askers = append(askers, pod)
	}
	p.facts.Pods.Nodes = append(p.facts.Pods.Nodes, p.follow(asking, askers, isOver)...)
}

// removeLeftovers removes pods of runs that were killed: their time is over.
func (p *prober) removeLeftovers(ctx context.Context) error {
	var list corev1.PodList
	if err := p.reader.List(ctx, &list, client.InNamespace(p.facts.Namespace), client.MatchingLabels{ownLabel: ownValue}); err != nil {
		return fmt.Errorf("listing pods of earlier runs: %w", err)
	}
	for i := range list.Items {
		pod := &list.Items[i]
		lasts := time.Duration(ptr.Deref(pod.Spec.ActiveDeadlineSeconds, 0)) * time.Second
		if p.facts.serverTime(p.clock.Now()).Before(pod.CreationTimestamp.Add(lasts)) {
			continue
		}
		if err := client.IgnoreNotFound(p.maker.Delete(ctx, pod, client.GracePeriodSeconds(0))); err != nil {
			return fmt.Errorf("removing pod %q of an earlier run: %w", pod.Name, err)
		}
	}
	return nil
}

// remove removes all pods of this run.
func (p *prober) remove(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, toRemove)
	defer cancel()
	namespace, own := client.InNamespace(p.facts.Namespace), client.MatchingLabels{runLabel: p.id}
	var last error
	err := wait.PollUntilContextCancel(ctx, p.pause, true, func(ctx context.Context) (bool, error) {
		var list corev1.PodList
		last = cmp.Or(p.maker.DeleteAllOf(ctx, &corev1.Pod{}, namespace, own, client.GracePeriodSeconds(0)), p.reader.List(ctx, &list, namespace, own))
		if apierrors.IsForbidden(last) {
			return false, last
		}
		return last == nil && len(list.Items) == 0, nil // what failed otherwise is tried again
	})
	if err == nil {
		return nil
	}
	return fmt.Errorf("removing pods: %w", cmp.Or(last, err))
}

// follow waits until pods are done, are known never to be, or the time is up.
func (p *prober) follow(ctx context.Context, pods []*corev1.Pod, isDone func(*corev1.Pod) bool) []Pod {
	found := make([]Pod, len(pods))
	left := len(pods)
	_ = wait.PollUntilContextCancel(ctx, p.pause, true, func(ctx context.Context) (bool, error) {
		for i, pod := range pods {
			if found[i].Name != "" {
				continue
			}
			if err := p.reader.Get(ctx, client.ObjectKeyFromObject(pod), pod); err != nil {
				continue // it is looked at again
			}
			stuck, isFinal := waitsFor(pod)
			if !isDone(pod) && !isOver(pod) && !isFinal {
				continue
			}
			found[i] = p.pod(pod)
			if isFinal {
				found[i].Stuck = stuck
			}
			left--
		}
		return left == 0, nil
	})
	for i, pod := range pods {
		if found[i].Name != "" {
			continue
		}
		found[i] = p.pod(pod)
		if found[i].Stuck, _ = waitsFor(pod); found[i].Stuck != "" {
			continue
		}
		found[i].unexplained, found[i].Stuck = pod.UID, "it did not start in time, and nothing says why"
		if isRunning(pod) {
			found[i].Stuck = "it did not end in time"
		}
	}
	return found
}

// explain adds what the kubelet says last of pods that did not start.
func (p *prober) explain(ctx context.Context) {
	tried := p.facts.Pods
	stuck := map[types.UID]*Pod{}
	stuck[tried.Open.unexplained], stuck[tried.Closed.unexplained] = &tried.Open, &tried.Closed
	for i := range tried.Nodes {
		stuck[tried.Nodes[i].unexplained] = &tried.Nodes[i]
	}
	delete(stuck, "")
	if len(stuck) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, toRemove)
	defer cancel()
	var list corev1.EventList
	_ = p.reader.List(ctx, &list, client.InNamespace(p.facts.Namespace)) // without the right, there is no reason
	slices.SortFunc(list.Items, func(a, b corev1.Event) int { return a.LastTimestamp.Compare(b.LastTimestamp.Time) })
	for _, event := range list.Items {
		if pod := stuck[event.InvolvedObject.UID]; pod != nil && event.Type == corev1.EventTypeWarning {
			pod.Warning, pod.Stuck = event.Reason, oneLine(event.Message)
		}
	}
}

// pod is what is known of a pod.
func (p *prober) pod(pod *corev1.Pod) Pod {
	found := Pod{
		Name: pod.Name, Node: pod.Spec.NodeName, Created: pod.CreationTimestamp.Time, Seen: p.facts.serverTime(p.clock.Now()),
		UserNamespace: pod.Spec.HostUsers != nil && !*pod.Spec.HostUsers,
	}
	if found.Node == "" {
		found.Node = pod.Spec.NodeSelector[corev1.LabelHostname]
	}
	if ip := pod.Status.PodIP; ip != "" && len(pod.Spec.Containers[0].Ports) > 0 {
		found.Address = address(ip)
	}
	for _, status := range pod.Status.ContainerStatuses {
		found.IsPull = status.State.Waiting != nil && strings.Contains(status.State.Waiting.Reason, "Image")
		ended := status.State.Terminated
		if ended == nil {
			continue
		}
		found.Started, found.Finished = ended.StartedAt.Time, ended.FinishedAt.Time
		report := &probe.Report{}
		if err := json.Unmarshal([]byte(ended.Message), report); err != nil || ended.ExitCode != 0 {
			found.Stuck = fmt.Sprintf("it ended with exit code %d: %s", ended.ExitCode, oneLine(ended.Message))
			continue
		}
		found.Report = report
	}
	return found
}

// waitsFor is why a pod does not start, and whether that is certain to last.
func waitsFor(pod *corev1.Pod) (reason string, isFinal bool) {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
			return oneLine(c.Message), false
		}
	}
	for _, status := range pod.Status.ContainerStatuses {
		if w := status.State.Waiting; w != nil && w.Message != "" {
			// ErrImagePull may pass; the kubelet calls it ImagePullBackOff when it has lasted.
			return w.Reason + ": " + oneLine(w.Message), w.Reason != "ErrImagePull"
		}
	}
	return "", false
}

func isOver(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

func isRunning(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.ContainerStatuses, func(s corev1.ContainerStatus) bool { return s.State.Running != nil })
}

func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }

// takesBuilds reports whether a build without a placement of its own may run on a node.
func takesBuilds(node *corev1.Node) bool {
	return nodes.Observe(node).Ready && !node.Spec.Unschedulable && node.Labels[corev1.LabelOSStable] == "linux" &&
		!slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Effect != corev1.TaintEffectPreferNoSchedule })
}

// ownLabel marks the pods of this check, and runLabel those of one run.
const (
	ownLabel = "app.kubernetes.io/instance"
	ownValue = "layerwright-check"
	runLabel = "layerwright.io/check"
	// port is open to pods of builds.
	port = 8443
)

func address(ip string) string {
	if strings.Contains(ip, ":") {
		ip = "[" + ip + "]"
	}
	return fmt.Sprintf("%s:%d", ip, port)
}

// probing makes pods from facts. They have no rights, no capability and no token.
type probing struct {
	facts *Facts
	id    string
	// lasts is when a pod ends that no one removes.
	lasts time.Duration
}

// listener is a pod that is dialed. One that is closed is a pod of builds to NetworkPolicies.
func (p probing) listener(name string, isClosed bool) *corev1.Pod {
	pod := p.pod(name, isClosed, "--listen", fmt.Sprintf(":%d", port))
	pod.Spec.Containers[0].Ports = []corev1.ContainerPort{{ContainerPort: port}}
	return pod
}

// asker is a pod that finds out what a build on a node could.
func (p probing) asker(name string, node *corev1.Node, dial ...string) *corev1.Pod {
	pod := p.pod(name, true)
	container := &pod.Spec.Containers[0]
	pod.Spec.NodeSelector[corev1.LabelHostname] = node.Labels[corev1.LabelHostname]
	if nodes.OffersUserNamespaces(node) {
		pod.Spec.HostUsers = new(false)
	}
	for _, address := range dial {
		if address != "" {
			container.Args = append(container.Args, "--dial", address)
		}
	}
	for _, push := range p.facts.pushes() {
		container.Args = append(container.Args, "--push", push.folder()+"="+push.repository)
		mount(pod, push.name, push.folder(), corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: push.secret, DefaultMode: new(int32(0o444))}})
	}
	p.asController(pod)
	return pod
}

// push is what a pod tries: a repository that images are pushed to, with a secret.
type push struct {
	// name is that of the volume: those of secrets may have dots.
	name, repository, secret string
	// pools are those whose images it is for.
	pools []string
}

func (p push) folder() string { return "/run/" + p.name }

// pushes are those of the MachineOSConfigs whose secret is there.
func (f *Facts) pushes() (all []push) {
	for _, config := range f.Configs {
		repository, _, _ := strings.Cut(string(config.Spec.RenderedImagePushSpec), "@")
		if slash, colon := strings.LastIndex(repository, "/"), strings.LastIndex(repository, ":"); colon > slash {
			repository = repository[:colon]
		}
		secret := config.Spec.RenderedImagePushSecret.Name
		if !f.Secrets[secret] {
			continue
		}
		at := slices.IndexFunc(all, func(p push) bool { return p.repository == repository && p.secret == secret })
		if at < 0 {
			at = len(all)
			all = append(all, push{name: "push-" + strconv.Itoa(at), repository: repository, secret: secret})
		}
		all[at].pools = append(all[at].pools, config.Spec.MachineConfigPool.Name)
	}
	return all
}

// asController gives a pod the proxies, authorities and registries without TLS of the controller,
// which it gives to builds.
func (p probing) asController(pod *corev1.Pod) {
	controller := p.facts.Controller.Spec.Template.Spec
	container := &pod.Spec.Containers[0]
	for _, variable := range controller.Containers[0].Env {
		if slices.Contains([]string{"SSL_CERT_FILE", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY"}, variable.Name) && variable.ValueFrom == nil {
			container.Env = append(container.Env, variable)
		}
	}
	for _, arg := range controller.Containers[0].Args {
		if registry, is := strings.CutPrefix(arg, "--plain-http-registry="); is {
			container.Args = append(container.Args, "--plain-http", registry)
		}
	}
	for _, volume := range controller.Volumes {
		for _, m := range controller.Containers[0].VolumeMounts {
			if volume.ConfigMap != nil && m.Name == volume.Name {
				mount(pod, volume.Name, m.MountPath, volume.VolumeSource)
			}
		}
	}
}

func mount(pod *corev1.Pod, name, path string, source corev1.VolumeSource) {
	container := &pod.Spec.Containers[0]
	if !slices.ContainsFunc(pod.Spec.Volumes, func(v corev1.Volume) bool { return v.Name == name }) {
		pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: name, VolumeSource: source})
		container.VolumeMounts = append(container.VolumeMounts, corev1.VolumeMount{Name: name, MountPath: path, ReadOnly: true})
	}
}

// pod is what all have in common. To NetworkPolicies it is a pod of builds, or of nothing.
func (p probing) pod(name string, isBuild bool, args ...string) *corev1.Pod {
	labels := map[string]string{ownLabel: ownValue, runLabel: p.id, "app.kubernetes.io/name": "layerwright", "app.kubernetes.io/component": "check"}
	if isBuild {
		labels["app.kubernetes.io/component"] = "build"
	}
	const unprivileged = int64(65532)
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: p.facts.Namespace, Name: "layerwright-check-" + p.id + "-" + name, Labels: maps.Clone(labels)},
		Spec: corev1.PodSpec{
			RestartPolicy: corev1.RestartPolicyNever, ServiceAccountName: "layerwright-build", AutomountServiceAccountToken: new(false), EnableServiceLinks: new(false),
			ActiveDeadlineSeconds: new(int64(p.lasts / time.Second)), TerminationGracePeriodSeconds: new(int64),
			NodeSelector: map[string]string{corev1.LabelOSStable: "linux"},
			SecurityContext: &corev1.PodSecurityContext{
				RunAsNonRoot: new(true), RunAsUser: new(unprivileged), RunAsGroup: new(unprivileged), SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
			},
			Containers: []corev1.Container{{
				Name: "probe", Image: p.builderImage(), ImagePullPolicy: corev1.PullIfNotPresent, Args: append([]string{"probe"}, args...),
				TerminationMessagePolicy: corev1.TerminationMessageFallbackToLogsOnError,
				SecurityContext: &corev1.SecurityContext{
					AllowPrivilegeEscalation: new(false), ReadOnlyRootFilesystem: new(true), Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
				},
			}},
		},
	}
}

// builderImage is the image that the controller builds with.
func (p probing) builderImage() string {
	container := p.facts.Controller.Spec.Template.Spec.Containers[0]
	for _, arg := range container.Args {
		if image, is := strings.CutPrefix(arg, "--builder-image="); is {
			return image
		}
	}
	for _, variable := range container.Env {
		if variable.Name == "BUILDER_IMAGE" {
			return variable.Value
		}
	}
	return ""
}
