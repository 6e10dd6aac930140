package buildlog

import (
	"bufio"
	"cmp"
	"context"
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

	lock sync.Mutex
	// seen are the containers that are written, busy the pods that are being written.
	seen, busy map[string]bool
}

// Run writes the logs of a build, those of a pod in the order of its steps. It returns how many of
// its containers had one.
func (f *Follower) Run(ctx context.Context, build string) (int, error) {
	f.seen, f.busy = map[string]bool{}, map[string]bool{}
	group, following := errgroup.WithContext(ctx)
	var failed error
	for f.IsEnded != nil {
		var ended bool
		if ended, failed = f.IsEnded(following); ended || failed != nil {
			break
		}
		if failed = f.look(following, group, build); failed != nil {
			break
		}
		select {
		case <-following.Done():
		case <-f.Clock.After(lookEvery):
		}
	}
	if err := cmp.Or(group.Wait(), failed); err != nil {
		return len(f.seen), err
	}
	group = &errgroup.Group{}
	group.SetLimit(1) // one after the other
	err := cmp.Or(f.look(ctx, group, build), group.Wait())
	return len(f.seen), err
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

// pod writes the logs of the containers of a pod that have begun.
func (f *Follower) pod(ctx context.Context, pod *corev1.Pod, title string) error {
	for _, s := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		key := pod.Name + "/" + string(pod.UID) + "/" + s.Name
		f.lock.Lock()
		isSeen := f.seen[key]
		f.lock.Unlock()
		if isSeen || s.State.Running == nil && s.State.Terminated == nil {
			continue
		}
		step := strings.TrimPrefix(s.Name, "step-") // as Tekton calls its containers
		if !strings.HasPrefix(title, step) {
			step = strings.TrimSpace(title + " " + step)
		}
		err := f.container(ctx, pod, s.Name, step)
		switch {
		case apierrors.IsNotFound(err):
			return nil // it was removed meanwhile
		case err != nil:
			return fmt.Errorf("reading what container %s of pod %s printed: %w", s.Name, pod.Name, err)
		}
		f.lock.Lock()
		f.seen[key] = true
		f.lock.Unlock()
	}
	return nil
}

func (f *Follower) container(ctx context.Context, pod *corev1.Pod, name, step string) error {
	log, err := f.Pods.GetLogs(pod.Name, &corev1.PodLogOptions{Container: name, Follow: f.IsEnded != nil}).Stream(ctx)
	if err != nil {
		return err
	}
	defer log.Close() //nolint:errcheck // nothing is written
	lines := bufio.NewReaderSize(log, maxLine)
	for {
		line, isCut, err := lines.ReadLine()
		if len(line) > 0 || err == nil {
			if err := f.line(step, string(line)); err != nil {
				return err
			}
		}
		for isCut && err == nil {
			_, isCut, err = lines.ReadLine()
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func (f *Follower) line(step, text string) error {
	if p, is := backend.ReadProgress(text); is {
		text = p.String()
	}
	f.lock.Lock()
	defer f.lock.Unlock()
	_, err := fmt.Fprintf(f.Out, "[%s] %s\n", step, strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) && r != '\t' {
			return -1
		}
		return r
	}, text))
	return err
}
