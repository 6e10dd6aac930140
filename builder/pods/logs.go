package pods

import (
	"bufio"
	"context"
	"fmt"
	"io"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/layerwright/layerwright/builder/backend"
)

// Logs says how far a running step is.
type Logs interface {
	// Progress is the last one that the step has told, if it has told any.
	Progress(ctx context.Context, pod types.NamespacedName, step backend.Step) (backend.Progress, bool, error)
}

// Ends reads the ends of logs.
type Ends interface {
	// End is what a container has written last, as much as a kubelet would take for a message.
	End(ctx context.Context, pod types.NamespacedName, container string) (string, error)
}

// Bounds of what is read of a log: a step tells its progress often, but RUN lines may write much in
// between.
const (
	tailLines = 500
	tailBytes = 256 << 10
	endLines  = 80
	endBytes  = 2 << 10
)

// podLogs reads from the kubelet, through the API server.
type podLogs struct{ pods corev1client.PodsGetter }

// NewLogs reads progress from the logs of pods, which takes the right to get pods/log.
func NewLogs(pods corev1client.PodsGetter) Logs { return &podLogs{pods} }

// Progress reads the end of the step's log.
func (l *podLogs) Progress(ctx context.Context, pod types.NamespacedName, step backend.Step) (backend.Progress, bool, error) {
	log, err := l.pods.Pods(pod.Namespace).GetLogs(pod.Name, &corev1.PodLogOptions{Container: string(step), TailLines: new(int64(tailLines))}).Stream(ctx)
	if err != nil {
		return backend.Progress{}, false, fmt.Errorf("reading the log of step %s of pod %q: %w", step, pod.Name, err)
	}
	defer func() { _ = log.Close() }()
	p, found := lastProgress(io.LimitReader(log, tailBytes))
	return p, found, nil
}

// NewEnds reads the ends of logs, which takes the right to get pods/log.
func NewEnds(pods corev1client.PodsGetter) Ends { return &podLogs{pods} }

// End reads the last lines of a log.
func (l *podLogs) End(ctx context.Context, pod types.NamespacedName, container string) (string, error) {
	log, err := l.pods.Pods(pod.Namespace).GetLogs(pod.Name, &corev1.PodLogOptions{Container: container, TailLines: new(int64(endLines))}).Stream(ctx)
	if err != nil {
		return "", fmt.Errorf("reading the log of container %s of pod %q: %w", container, pod.Name, err)
	}
	defer func() { _ = log.Close() }()
	text, err := io.ReadAll(io.LimitReader(log, tailBytes))
	return string(text[max(0, len(text)-endBytes):]), err
}

// lastProgress finds the last line that is one. Others may be anything, and of any length.
func lastProgress(log io.Reader) (last backend.Progress, found bool) {
	lines := bufio.NewReader(log)
	for {
		line, err := lines.ReadString('\n')
		if p, is := backend.ReadProgress(line); is {
			last, found = p, true
		}
		if err != nil {
			return last, found
		}
	}
}
