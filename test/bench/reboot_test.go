//go:build e2e

package bench

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/internal/status"
	"github.com/layerwright/layerwright/test/cluster/stack"
	"github.com/layerwright/layerwright/test/cluster/toolchain"
	"github.com/layerwright/layerwright/test/e2e/nodelog"
	"github.com/layerwright/layerwright/test/fixtures"
)

// Budgets of a changed file, from its MachineConfig to a pool of three nodes that says Updated.
const (
	rebootNodes  = 3
	budgetReboot = 12.0 // seconds, where each node is drained and rebooted
)

// steps are those of an update. Nodes go one after the other, and so the time between the ends of
// two steps is that of the latter.
var steps = []string{"image", "staged", "told", "drained", "booted", "done", "updated"}

// stepsOf is what a Node has of an update.
func stepsOf(n *corev1.Node) map[string]string {
	a := n.Annotations
	return map[string]string{
		"image": a[mcfgv1.AnnotationStageImage], "staged": a[mcfgv1.AnnotationStagedImage], "told": a[mcfgv1.AnnotationDesiredImage],
		"drained": a[mcfgv1.AnnotationLastAppliedDrain], "booted": n.Status.NodeInfo.BootID, "done": a[mcfgv1.AnnotationCurrentImage],
	}
}

// spentOn is how long each step took, on all nodes together.
func spentOn(changes []nodelog.Change, begin, end time.Time) map[string]float64 {
	spent, last := map[string]float64{}, begin
	for _, c := range changes {
		if c.Before == nil {
			continue
		}
		before, after := stepsOf(c.Before), stepsOf(c.Node)
		for _, step := range slices.Backward(steps) {
			isEnd := after[step] != "" && !strings.HasPrefix(after[step], mcfgv1.UncordonPrefix)
			if isEnd && after[step] != before[step] {
				spent[step] += c.At.Sub(last).Seconds()
				last = c.At
				break
			}
		}
	}
	spent["updated"] = end.Sub(last).Seconds()
	return spent
}

// BenchmarkReboot changes a file again and again, for which three nodes are drained and rebooted,
// and says where the time goes.
func BenchmarkReboot(b *testing.B) {
	cluster(b, "up", "--hosts", "--nodes", fmt.Sprint(rebootNodes))
	b.Cleanup(func() { cluster(b, "down") })
	cache, err := toolchain.CacheDir()
	require.NoError(b, err)
	s, err := stack.New(repository(b), cache, name)
	require.NoError(b, err)
	registry, err := s.Registry(b.Context())
	require.NoError(b, err)
	config, err := s.Config()
	require.NoError(b, err)
	ctrl.SetLogger(logr.Discard())
	scheme := runtime.NewScheme()
	require.NoError(b, mcfgv1.AddToScheme(scheme))
	a := &arena{host: registry.Host}
	a.WithWatch, err = client.NewWithWatch(config, client.Options{Scheme: scheme})
	require.NoError(b, err)
	refs, err := s.PushFixtures(b.Context(), fixtures.Tiny, []fixtures.Stream{fixtures.RHEL9}, b.Logf)
	require.NoError(b, err)
	a.base = refs.OS[fixtures.RHEL9].String()
	nodes := nodelog.New(b, kubernetes.NewForConfigOrDie(config), func(n *corev1.Node) string { return fmt.Sprint(stepsOf(n)) })

	const pool = mcfgv1.PoolWorker
	require.NoError(b, a.Create(b.Context(), a.scaleConfig("50-"+pool, pool, 0)))
	workers := a.pool(pool)
	workers.Spec.NodeSelector = &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelOSStable: "linux"}}
	require.NoError(b, a.Create(b.Context(), workers))
	wanted := a.osConfig(pool)
	wanted.Spec.BaseImagePullSecret.Name, wanted.Spec.RenderedImagePushSecret.Name = stack.PullSecret, stack.PushSecret
	require.NoError(b, a.Create(b.Context(), wanted))
	image, _ := a.updated(b, pool, "")
	var took []float64
	var spent []map[string]float64
	for b.Loop() {
		nodes.Forget()
		mc := &mcfgv1.MachineConfig{}
		require.NoError(b, a.Get(b.Context(), client.ObjectKey{Name: "50-" + pool}, mc))
		mc.Spec.Config.Raw = a.scaleConfig(mc.Name, pool, time.Now().UnixNano()).Spec.Config.Raw
		begin := time.Now()
		require.NoError(b, a.Update(b.Context(), mc))
		var end time.Time
		image, end = a.updated(b, pool, image)
		took = append(took, end.Sub(begin).Seconds())
		spent = append(spent, spentOn(nodes.Changes(), begin, end))
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(median(took), "s")
	b.ReportMetric(median(took)/budgetReboot, "s-of-budget")
	for i, step := range steps {
		var each []float64
		for _, one := range spent {
			each = append(each, one[step])
		}
		b.ReportMetric(median(each), fmt.Sprintf("s-%d-%s", i+1, step))
	}
}

// updated waits until a pool says that all its nodes have another image than the one before, and
// gives that image and when it was seen.
func (a *arena) updated(b *testing.B, name string, before mcfgv1.ImageDigestFormat) (image mcfgv1.ImageDigestFormat, at time.Time) {
	b.Helper()
	require.Eventually(b, func() bool {
		pool := &mcfgv1.MachineConfigPool{}
		require.NoError(b, a.Get(b.Context(), client.ObjectKey{Name: name}, pool))
		image, at = pool.Status.OSImagePullSpec, time.Now()
		return image != "" && image != before && pool.Status.MachineCount == rebootNodes && pool.Status.UpdatedMachineCount == rebootNodes &&
			status.IsTrue(pool.GetConditions(), string(mcfgv1.PoolUpdated))
	}, patience, 20*time.Millisecond)
	return image, at
}
