//go:build e2e

package bench

import (
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	mcfgv1alpha1 "github.com/layerwright/layerwright/api/machineconfiguration/v1alpha1"
	"github.com/layerwright/layerwright/builder/backend"
)

// parts are what a build in a pod spends its time with, in their order. Each ends where the next
// begins; that of a step has the start of its container in it.
func parts() []string {
	names := []string{"decide", "schedule", "start"}
	for _, step := range backend.Steps() {
		names = append(names, string(step))
	}
	return append(names, "append", "sign")
}

// progress is when the parts of one build were seen to end.
type progress map[string]time.Time

// reach notes that a part has ended.
func (p progress) reach(part string) {
	if p[part].IsZero() {
		p[part] = time.Now()
	}
}

// observe sees an object that has changed, of the pool of a name or of any other.
func (p progress) observe(object any, pool string) {
	switch o := object.(type) {
	case *mcfgv1alpha1.MachineOSImage:
		if o.Spec.MachineConfigPool == pool {
			p.reach("append")
		}
	case *corev1.Pod:
		if o.Labels[mcfgv1.LabelTargetMachineConfigPool] == pool {
			p.observePod(o)
		}
	}
}

func (p progress) observePod(pod *corev1.Pod) {
	p.reach("decide")
	if pod.Spec.NodeName != "" {
		p.reach("schedule")
	}
	for _, container := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		if container.State.Running != nil || container.State.Terminated != nil {
			p.reach("start")
		}
		if container.State.Terminated != nil {
			p.reach(container.Name)
		}
	}
}

// spent is how long each part took. One whose end was not seen, or seen late, took nothing: its
// time is in the next.
func (p progress) spent(begun, done time.Time) map[string]float64 {
	out, last := map[string]float64{}, begun
	for _, part := range parts() {
		end := p[part]
		if part == "sign" {
			end = done
		}
		if end.After(last) {
			out[part], last = end.Sub(last).Seconds(), end
		}
	}
	return out
}

// reportParts reports the median of each part.
func reportParts(b *testing.B, builds []map[string]float64) {
	b.Helper()
	for i, part := range parts() {
		var took []float64
		for _, spent := range builds {
			took = append(took, spent[part])
		}
		b.ReportMetric(median(took), fmt.Sprintf("s-%d-%s", i+1, part)) // metrics are printed in the order of their names
	}
}
