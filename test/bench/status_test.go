//go:build e2e

package bench

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/test/cluster/clustertest"
	"github.com/layerwright/layerwright/test/install"
)

// Budgets of the program of administrators' machines.
const (
	statusNodes      = 5000
	budgetStatus     = 300.0 // milliseconds against that many nodes
	budgetStatusMiB  = 150.0 // resident at most, meanwhile
	budgetClient     = 60.0  // MB of the program
	budgetClientOpen = 60.0  // milliseconds until it has said its version
)

// BenchmarkClient measures the program that releases have: how large it is, how soon it has
// started, and how long it reads a large cluster.
func BenchmarkClient(b *testing.B) {
	program := filepath.Join(b.TempDir(), "kubectl-layerwright")
	cmd := exec.CommandContext(b.Context(), "make", "-C", repository(b), "client-binary", "OUT="+program)
	out, err := cmd.CombinedOutput()
	require.NoError(b, err, string(out))
	info, err := os.Stat(program)
	require.NoError(b, err)
	b.Run("program", func(b *testing.B) {
		var opened []float64
		for b.Loop() {
			milliseconds, _, _ := ran(b, program, "version")
			opened = append(opened, milliseconds)
		}
		report(b, median(opened), "ms", budgetClientOpen)
		b.ReportMetric(float64(info.Size())/1e6, "MB")
		b.ReportMetric(float64(info.Size())/1e6/budgetClient, "MB-of-budget")
	})
	b.Run("status", func(b *testing.B) {
		manyNodes(b)
		var took, peak []float64
		for b.Loop() {
			milliseconds, mib, text := ran(b, program, "status", "--kubeconfig", clustertest.Kubeconfig(b))
			require.Contains(b, text, fmt.Sprintf("/%d", statusNodes))
			took, peak = append(took, milliseconds), append(peak, mib)
		}
		report(b, median(took), "ms", budgetStatus)
		b.ReportMetric(median(peak), "MiB")
		b.ReportMetric(median(peak)/budgetStatusMiB, "MiB-of-budget")
	})
}

// ran is how long a program ran, and what it had resident at most.
func ran(b *testing.B, program string, args ...string) (milliseconds, mib float64, stdout string) {
	b.Helper()
	var out, stderr bytes.Buffer
	cmd := exec.CommandContext(b.Context(), program, args...)
	cmd.Stdout, cmd.Stderr = &out, &stderr
	begin := time.Now()
	require.NoError(b, cmd.Run(), stderr.String())
	milliseconds = float64(time.Since(begin).Microseconds()) / 1e3
	usage, is := cmd.ProcessState.SysUsage().(*syscall.Rusage)
	require.True(b, is)
	return milliseconds, float64(usage.Maxrss) / 1024, out.String()
}

// manyNodes makes a pool and its nodes, with what a kubelet and an agent report: fifty images, and
// conditions.
func manyNodes(b *testing.B) {
	b.Helper()
	config := clustertest.ControlPlane(b)
	install.Kinds(b, config)
	scheme := runtime.NewScheme()
	require.NoError(b, corev1.AddToScheme(scheme))
	require.NoError(b, mcfgv1.AddToScheme(scheme))
	to, err := client.New(config, client.Options{Scheme: scheme})
	require.NoError(b, err)
	pool := &mcfgv1.MachineConfigPool{ObjectMeta: metav1.ObjectMeta{Name: "worker"}}
	pool.Spec.NodeSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"node-role.kubernetes.io/worker": ""}}
	require.NoError(b, to.Create(b.Context(), pool))
	group, ctx := errgroup.WithContext(b.Context())
	group.SetLimit(8)
	for i := range statusNodes {
		group.Go(func() error { return oneOfMany(ctx, to, i) })
	}
	require.NoError(b, group.Wait())
}

func oneOfMany(ctx context.Context, to client.Client, i int) error {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("node-%04d", i)}}
	node.Labels = map[string]string{"node-role.kubernetes.io/worker": "", "kubernetes.io/hostname": node.Name, "kubernetes.io/os": "linux"}
	image := "registry.example.com/os/worker@sha256:" + strings.Repeat(fmt.Sprint(i%4/3), 64)
	node.Annotations = map[string]string{
		mcfgv1.AnnotationCurrentConfig: "rendered-worker-1", mcfgv1.AnnotationDesiredConfig: "rendered-worker-1",
		mcfgv1.AnnotationCurrentImage: image, mcfgv1.AnnotationDesiredImage: image, mcfgv1.AnnotationState: mcfgv1.NodeStateDone,
	}
	for _, kind := range []corev1.NodeConditionType{corev1.NodeReady, corev1.NodeMemoryPressure, corev1.NodeDiskPressure, corev1.NodePIDPressure} {
		node.Status.Conditions = append(node.Status.Conditions, corev1.NodeCondition{
			Type: kind, Status: corev1.ConditionFalse, Reason: "KubeletHasSufficient" + string(kind), Message: "kubelet has sufficient " + string(kind),
		})
	}
	node.Status.Conditions[0].Status = corev1.ConditionTrue
	for n := range 50 {
		node.Status.Images = append(node.Status.Images, corev1.ContainerImage{SizeBytes: 1e8, Names: []string{
			fmt.Sprintf("registry.example.com/team/program-%d@sha256:%064d", n, n), fmt.Sprintf("registry.example.com/team/program-%d:v1", n),
		}})
	}
	if err := to.Create(ctx, node); err != nil {
		return err
	}
	reported := &mcfgv1.MachineConfigNode{ObjectMeta: metav1.ObjectMeta{Name: node.Name}}
	reported.Spec.Node.Name, reported.Spec.Pool.Name = node.Name, "worker"
	reported.Spec.ConfigVersion.Desired = "rendered-worker-1"
	if err := to.Create(ctx, reported); err != nil {
		return err
	}
	for _, kind := range []string{mcfgv1.NodeUpdated, mcfgv1.NodeUpdatePrepared, mcfgv1.NodeUpdateExecuted, mcfgv1.NodeCordoned, mcfgv1.NodeDrained} {
		reported.Status.Conditions = append(reported.Status.Conditions, metav1.Condition{
			Type: kind, Status: metav1.ConditionTrue, Reason: kind, Message: "as it should be", LastTransitionTime: metav1.Now(),
		})
	}
	return to.Status().Update(ctx, reported)
}
