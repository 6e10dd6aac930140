package machineconfigs

import (
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"runtime"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	k8sruntime "k8s.io/apimachinery/pkg/runtime"

	"github.com/stretchr/testify/require"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
)

// largePool makes MachineConfigs with files of random content, every tenth of which another MachineConfig has too.
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

// BenchmarkRender measures the budget: 100 MachineConfigs with 2,000 files, 20 MB of content, below 300 ms and 200 MB.
func BenchmarkRender(b *testing.B) {
	pool := largePool(100, 2000, 10_000)
	b.ReportAllocs()
	var peak uint64
	for b.Loop() {
		r, err := Render(Options{Pool: "worker"}, pool)
		require.NoError(b, err)
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		peak = max(peak, m.HeapInuse)
		runtime.KeepAlive(r)
	}
	b.ReportMetric(float64(peak)/1e6, "peak-MB")
}
