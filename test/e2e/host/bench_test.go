//go:build e2e

package host

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	rollouthost "github.com/layerwright/layerwright/rollout/host"
)

// budget is in seconds, for a deployment, staging, a reboot and a rollback together.
const budget = 6.0

// BenchmarkHost has a new host deployed from an image, stage the next one, boot that, and return to
// the first by another reboot. Of several hosts the median counts.
func BenchmarkHost(b *testing.B) {
	parts := map[string][]float64{}
	for b.Loop() {
		w := newWorld(b)
		next := w.sign(w.push("worker", w.with(w.base, map[string]string{"etc/lw.conf": "from the image\n"})))
		begun := time.Now()
		since := begun
		took := func(part string) {
			parts[part], since = append(parts[part], time.Since(since).Seconds()), time.Now()
		}
		w.install()
		w.boot()
		took("s-deploy")
		agent := w.agent(rollouthost.ModeBootc)
		require.NoError(b, agent.Stage(b.Context(), mcfgv1.ImageDigestFormat(next), rollouthost.TrustSignature))
		took("s-stage")
		w.reboot()
		took("s-reboot")
		require.NoError(b, agent.Rollback(b.Context()))
		w.reboot()
		took("s-rollback")
		parts["s"] = append(parts["s"], time.Since(begun).Seconds())
		at, err := agent.Status(b.Context())
		require.NoError(b, err)
		require.Equal(b, digestOf(b, w), at.Booted.Digest)
		require.Equal(b, next, at.Rollback.Image)
	}
	b.ReportMetric(0, "ns/op")
	for part, seconds := range parts {
		slices.Sort(seconds)
		b.ReportMetric(seconds[len(seconds)/2], part)
	}
	b.ReportMetric(slices.Sorted(slices.Values(parts["s"]))[len(parts["s"])/2]/budget, "of-budget")
}
