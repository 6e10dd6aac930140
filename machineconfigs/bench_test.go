package machineconfigs

import (
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	k8sruntime "k8s.io/apimachinery/pkg/runtime"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
)

// largePool makes MachineConfigs with files of random content, every tenth of which another
// MachineConfig has too.
func largePool(configs, files, size int) []*mcfgv1.MachineConfig {
	var pool []*mcfgv1.MachineConfig
	for c := range configs {
		var list []string
		for f := range files / configs {
			number := c*(files/configs) + f
			if f%10 == 9 {
				number = f
			}
			content := make([]byte, 0, size+sha256.Size)
			for i := 0; len(content) < size; i++ {
				sum := sha256.Sum256(fmt.Appendf(nil, "%d %d %d", c, f, i))
				content = append(content, sum[:]...)
			}
			list = append(list, fmt.Sprintf(`{"path":"/etc/large/%d.conf","mode":420,"user":{"name":"root"},"contents":{"compression":"","source":"data:text/plain;charset=utf-8;base64,%s"}}`,
				number, base64.StdEncoding.EncodeToString(content[:size])))
		}
		unit := fmt.Sprintf(`{"name":"large-%d.service","enabled":true,"contents":"[Service]\nExecStart=/bin/true\n[Install]\nWantedBy=multi-user.target\n"}`, c)
		raw := fmt.Sprintf(`{"ignition":{"version":"3.4.0"},"storage":{"files":[%s]},"systemd":{"units":[%s]}}`, strings.Join(list, ","), unit)
		pool = append(pool, &mcfgv1.MachineConfig{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%02d-large", c)},
			Spec:       mcfgv1.MachineConfigSpec{Config: k8sruntime.RawExtension{Raw: []byte(raw)}},
		})
	}
	return pool
}

// BenchmarkRender measures the budget: 100 MachineConfigs with 2,000 files, 20 MB of content, below
// 300 ms and 200 MB. Its peak-MB is all memory that the heap ever took from the system: that of the
// MachineConfigs (27 MB of JSON), and of what the collector has not yet collected, is a part of it.
func BenchmarkRender(b *testing.B) {
	pool := largePool(100, 2000, 10_000)
	opts := Options{Pool: "worker", Images: streamImages}
	runtime.GC()
	debug.FreeOSMemory()
	var before runtime.MemStats
	runtime.ReadMemStats(&before)
	b.ReportAllocs()
	worked := cpuTime(b)
	for b.Loop() {
		_, err := Render(opts, pool)
		require.NoError(b, err)
	}
	b.ReportMetric(float64((cpuTime(b)-worked).Milliseconds())/float64(b.N), "cpu-ms/op")
	var after runtime.MemStats
	runtime.ReadMemStats(&after)
	b.ReportMetric(float64(after.HeapSys-before.HeapReleased)/1e6, "peak-MB")
}

// cpuTime is how long this process has used processors. Unlike the time that passes, it says
// something on a busy machine too.
func cpuTime(b *testing.B) time.Duration {
	b.Helper()
	var usage syscall.Rusage
	require.NoError(b, syscall.Getrusage(syscall.RUSAGE_SELF, &usage))
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// BenchmarkParse reads what BenchmarkRender renders, as the builder does.
func BenchmarkParse(b *testing.B) {
	rendered, err := Render(Options{Pool: "worker", Images: streamImages}, largePool(100, 2000, 10_000))
	require.NoError(b, err)
	b.ReportAllocs()
	b.SetBytes(int64(len(rendered.MachineConfig.Spec.Config.Raw)))
	for b.Loop() {
		_, err := Parse(rendered.MachineConfig)
		require.NoError(b, err)
	}
}
