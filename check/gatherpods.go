package check

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/layerwright/layerwright/check/probe"
	"github.com/layerwright/layerwright/nodes"
)

// podMaker makes and removes pods.
type podMaker interface {
	Create(ctx context.Context, pod client.Object, options ...client.CreateOption) error
	Delete(ctx context.Context, pod client.Object, options ...client.DeleteOption) error
}

// prober has pods find out what the API server does not know.
type prober struct {
	maker  podMaker
	reader client.Reader
	clock  clock.PassiveClock
	// pause is between two looks at a pod.
	pause time.Duration
	facts *Facts
}

const (
	betweenLooks = 500 * time.Millisecond
	// toRemove is how long removing the pods may take. It is begun when the time for them is up.
	toRemove = 15 * time.Second
	// slack is for pods to end by themselves should this program be killed.
	slack = 30 * time.Second
)

// GatherPods adds what pods find to facts: it starts them in Layerwright's namespace, one on each
// node that takes builds and two beside them, and removes them. Within the timeout pods that don't
// start are given up.
func GatherPods(ctx context.Context, config *rest.Config, facts *Facts, now clock.PassiveClock, timeout time.Duration) error {
	c, err := client.New(config, client.Options{})
	if err != nil {
		return fmt.Errorf("connecting to %s: %w", config.Host, err)
	}
	return (&prober{maker: c, reader: c, clock: now, pause: betweenLooks, facts: facts}).run(ctx, timeout)
}

func (p *prober) run(ctx context.Context, timeout time.Duration) (err error) {
	p.facts.Pods = &Pods{}
	if !p.facts.installed() {
		p.facts.Pods.Refused = "they run the builder's image, which the controller names, and that is not installed"
		return nil
	}
	asked := ctx
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if err := p.remove(ctx); apierrors.IsForbidden(err) { // of a run that was killed
		p.facts.Pods.Refused = err.Error()
		return nil
	} else if err != nil {
		return err
	}
	defer func() {
		if removing := p.remove(context.WithoutCancel(ctx)); err == nil {
			err = removing
		}
	}()
	specs := probing{facts: p.facts, lasts: timeout + slack}
	open, closed := specs.listener("open", false), specs.listener("closed", true)
	for _, pod := range []*corev1.Pod{open, closed} {
		if err := p.create(ctx, pod); err != nil || p.facts.Pods.Refused != "" {
			return err
		}
	}
	found := p.follow(ctx, []*corev1.Pod{open, closed}, func(pod *corev1.Pod) bool { return pod.Status.PodIP != "" && isRunning(pod) })
	p.facts.Pods.Open, p.facts.Pods.Closed = found[0], found[1]
	var asking []*corev1.Pod
	for i := range p.facts.Nodes {
		if node := &p.facts.Nodes[i]; takesBuilds(node) {
			asking = append(asking, specs.asker(strconv.Itoa(len(asking)+1), node, found[0].Address, found[1].Address))
		}
	}
	for _, pod := range asking {
		if err := p.create(ctx, pod); err != nil || p.facts.Pods.Refused != "" {
			return err
		}
	}
	p.facts.Pods.Nodes = p.follow(ctx, asking, isOver)
	return asked.Err()
}

// create makes a pod. Who may not, or is refused, learns why in a finding.
func (p *prober) create(ctx context.Context, pod *corev1.Pod) error {
	err := p.maker.Create(ctx, pod)
	if apierrors.IsForbidden(err) || apierrors.IsInvalid(err) {
		p.facts.Pods.Refused = err.Error()
		return nil
	}
	if err != nil {
		return fmt.Errorf("creating pod %q: %w", pod.Name, err)
	}
	return nil
}

// remove removes all pods of this and earlier runs.
func (p *prober) remove(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, toRemove)
	defer cancel()
	var last error
	err := wait.PollUntilContextCancel(ctx, p.pause, true, func(ctx context.Context) (bool, error) {
		var list corev1.PodList
		last = p.reader.List(ctx, &list, client.InNamespace(p.facts.Namespace), client.MatchingLabels{ownLabel: ownValue})
		for i := range list.Items {
			if err := client.IgnoreNotFound(p.maker.Delete(ctx, &list.Items[i], client.GracePeriodSeconds(0))); err != nil {
				last = err
			}
		}
		if apierrors.IsForbidden(last) {
			return false, last
		}
		return last == nil && len(list.Items) == 0, nil // what failed otherwise is tried again
	})
	if err == nil {
		return nil
	}
	return fmt.Errorf("removing pods; `kubectl -n %s delete pods -l %s=%s` does it too: %w", p.facts.Namespace, ownLabel, ownValue, cmp.Or(last, err))
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
		if found[i].Stuck, _ = waitsFor(pod); found[i].Stuck == "" {
			found[i].Stuck = p.warning(context.WithoutCancel(ctx), pod)
		}
	}
	return found
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

// warning is what the kubelet says last of a pod that does not start.
func (p *prober) warning(ctx context.Context, pod *corev1.Pod) string {
	ctx, cancel := context.WithTimeout(ctx, toRemove)
	defer cancel()
	var list corev1.EventList
	_ = p.reader.List(ctx, &list, client.InNamespace(pod.Namespace)) // without the right, there is no reason
	said := "it did not start in time, and nothing says why"
	if isRunning(pod) {
		said = "it did not end in time"
	}
	slices.SortFunc(list.Items, func(a, b corev1.Event) int { return a.LastTimestamp.Compare(b.LastTimestamp.Time) })
	for _, event := range list.Items {
		if event.InvolvedObject.UID == pod.UID && event.Type == corev1.EventTypeWarning {
			said = oneLine(event.Message)
		}
	}
	return said
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

// ownLabel marks the pods of this check.
const (
	ownLabel = "app.kubernetes.io/instance"
	ownValue = "layerwright-check"
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
	pushes := p.pushes()
	for i, repository := range slices.Sorted(maps.Keys(pushes)) {
		name, secret := "push-"+strconv.Itoa(i), pushes[repository] // no name of a secret, which may have dots
		folder := "/run/" + name
		container.Args = append(container.Args, "--push", repository+"="+folder)
		mount(pod, name, folder, corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: secret, DefaultMode: new(int32(0o444))}})
	}
	p.asController(pod)
	return pod
}

// pushes are the secrets that are there, by the repository that images are pushed to.
func (p probing) pushes() map[string]string {
	pushes := map[string]string{}
	for _, config := range p.facts.Configs {
		repository, _, _ := strings.Cut(string(config.Spec.RenderedImagePushSpec), "@")
		if slash, colon := strings.LastIndex(repository, "/"), strings.LastIndex(repository, ":"); colon > slash {
			repository = repository[:colon]
		}
		if secret := config.Spec.RenderedImagePushSecret.Name; p.facts.Secrets[secret] {
			pushes[repository] = secret
		}
	}
	return pushes
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
	labels := map[string]string{ownLabel: ownValue, "app.kubernetes.io/name": "layerwright", "app.kubernetes.io/component": "check"}
	if isBuild {
		labels["app.kubernetes.io/component"] = "build"
	}
	const unprivileged = int64(65532)
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: p.facts.Namespace, Name: "layerwright-check-" + name, Labels: maps.Clone(labels)},
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
