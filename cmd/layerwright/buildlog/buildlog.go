package buildlog

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/utils/clock"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/builder/backend"
	"github.com/layerwright/layerwright/internal/names"
)

const (
	// lookEvery is how often it is looked for a next step.
	lookEvery = time.Second
	// maxFailures is how often in a row the cluster may not answer.
	maxFailures = 120
	// maxLine is how much of a line is shown.
	maxLine = 64 << 10
)

// Follower writes what the pods of a build print.
type Follower struct {
	// Pods are those of the namespace of builds.
	Pods corev1client.PodInterface
	// IsEnded asks whether the build is at its end. Nil writes what there is, and waits for
	// nothing.
	IsEnded func(context.Context) (bool, error)
	Clock   clock.Clock
	// Out gets the lines, each after the name of its step. Whole lines are written at once.
	Out io.Writer

	// isFollowing reports whether the build may not have ended.
	isFollowing bool

	lock sync.Mutex
	// done are the containers that have nothing more to say, busy the pods that are being written,
	// and written counts the lines of each container.
	done, busy map[string]bool
	written    map[string]int
}

// Run writes the logs of a build, those of a pod in the order of its steps. It returns how many of
// its containers had one. A build that is followed may be out of reach for a while.
func (f *Follower) Run(ctx context.Context, build string) (int, error) {
	f.done, f.busy, f.written = map[string]bool{}, map[string]bool{}, map[string]int{}
	f.isFollowing = f.IsEnded != nil
	group, following := errgroup.WithContext(ctx)
	for failures := 0; f.isFollowing; {
		ended, err := f.IsEnded(following)
		if err == nil && !ended {
			err = f.look(following, group, build)
		}
		if ended && err == nil {
			break
		}
		if failures++; err == nil {
			failures = 0
		}
		if following.Err() != nil || failures > maxFailures {
			err = cmp.Or(group.Wait(), err)
			return len(f.written), err
		}
		select {
		case <-following.Done():
		case <-f.Clock.After(lookEvery):
		}
	}
	if err := group.Wait(); err != nil {
		return len(f.written), err
	}
	f.isFollowing = false
	group = &errgroup.Group{}
	group.SetLimit(1) // one after the other
	err := cmp.Or(f.look(ctx, group, build), group.Wait())
	return len(f.written), err
}

// look has what pods print written that are not being written.
func (f *Follower) look(ctx context.Context, group *errgroup.Group, build string) error {
	selector := labels.Set{mcfgv1.LabelMachineOSBuild: names.BuildLabel(build)}
	pods, err := f.Pods.List(ctx, metav1.ListOptions{LabelSelector: selector.String()})
	if err != nil {
		return fmt.Errorf("listing the pods of build %s: %w", build, err)
	}
	slices.SortFunc(pods.Items, func(a, b corev1.Pod) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), strings.Compare(a.Name, b.Name))
	})
	titles := titlesOf(pods.Items)
	for i := range pods.Items {
		pod := &pods.Items[i]
		if f.begin(pod.Name) {
			group.Go(func() error {
				defer f.end(pod.Name)
				return f.pod(ctx, pod, titles[i])
			})
		}
	}
	return nil
}

func (f *Follower) begin(pod string) bool {
	f.lock.Lock()
	defer f.lock.Unlock()
	if f.busy[pod] {
		return false
	}
	f.busy[pod] = true
	return true
}

func (f *Follower) end(pod string) {
	f.lock.Lock()
	defer f.lock.Unlock()
	f.busy[pod] = false
}

// titlesOf tell pods apart where there are several, by architecture and by the task of a
// PipelineRun.
func titlesOf(pods []corev1.Pod) []string {
	const task = "tekton.dev/pipelineTask"
	architectures := map[string]bool{}
	for i := range pods {
		architectures[pods[i].Spec.NodeSelector[corev1.LabelArchStable]] = true
	}
	all := make([]string, len(pods))
	for i := range pods {
		all[i] = pods[i].Labels[task]
		if arch := pods[i].Spec.NodeSelector[corev1.LabelArchStable]; len(architectures) > 1 && arch != "" {
			all[i] = strings.TrimSpace(all[i] + " " + arch)
		}
	}
	return all
}

// pod writes the logs of the containers of a pod that have begun. While a build is followed, what
// could not be read is read at the next look, and a container is done when it has ended.
func (f *Follower) pod(ctx context.Context, pod *corev1.Pod, title string) error {
	for _, s := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		key := pod.Name + "/" + string(pod.UID) + "/" + s.Name
		if f.isDone(key) || s.State.Running == nil && s.State.Terminated == nil {
			continue
		}
		step := strings.TrimPrefix(s.Name, "step-") // as Tekton calls its containers
		if !strings.HasPrefix(title, step) {
			step = strings.TrimSpace(title + " " + step)
		}
		err := f.container(ctx, pod, s.Name, step, key)
		var broken *outputError
		switch {
		case errors.As(err, &broken):
			return err
		case apierrors.IsNotFound(err), err != nil && f.isFollowing:
			return nil // it was removed meanwhile, or is read at the next look
		case err != nil:
			return fmt.Errorf("reading what container %s of pod %s printed: %w", s.Name, pod.Name, err)
		}
		f.lock.Lock()
		f.done[key] = s.State.Terminated != nil || !f.isFollowing
		f.lock.Unlock()
	}
	return nil
}

func (f *Follower) isDone(container string) bool {
	f.lock.Lock()
	defer f.lock.Unlock()
	return f.done[container]
}

// outputError is of lines that no one takes.
type outputError struct{ cause error }

func (e *outputError) Error() string { return e.cause.Error() }
func (e *outputError) Unwrap() error { return e.cause }

// container writes the lines of a container that are not written yet.
func (f *Follower) container(ctx context.Context, pod *corev1.Pod, name, step, key string) error {
	log, err := f.Pods.GetLogs(pod.Name, &corev1.PodLogOptions{Container: name, Follow: f.isFollowing}).Stream(ctx)
	if err != nil {
		return err
	}
	defer log.Close() //nolint:errcheck // nothing is written
	lines := bufio.NewReaderSize(log, maxLine)
	for n := 0; ; n++ {
		line, isCut, err := lines.ReadLine()
		text := string(line)
		for isCut && err == nil {
			_, isCut, err = lines.ReadLine()
		}
		if err == nil || text != "" && err == io.EOF {
			if err := f.line(step, text, key, n); err != nil {
				return &outputError{err}
			}
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// line writes the line of a container that has this number, unless it is written.
func (f *Follower) line(step, text, container string, number int) error {
	if p, is := backend.ReadProgress(text); is {
		text = p.String()
	}
	f.lock.Lock()
	defer f.lock.Unlock()
	if number < f.written[container] {
		return nil
	}
	f.written[container] = number + 1
	_, err := fmt.Fprintf(f.Out, "[%s] %s\n", step, strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) && r != '\t' {
			return -1
		}
		return r
	}, text))
	return err
}
