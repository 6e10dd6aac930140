package metrics_test

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/layerwright/layerwright/internal/metrics"
)

func TestVerifications(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewPedanticRegistry()
	v := metrics.NewVerifications()
	require.NoError(t, registry.Register(v))
	v.Ended("worker", metrics.VerificationPassed, time.Minute)
	v.Ended("worker", metrics.VerificationFailed, -time.Second)
	v.Interrupted("worker")
	families, err := registry.Gather()
	require.NoError(t, err)
	counted := map[string]float64{}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			require.Equal(t, "worker", m.GetLabel()[0].GetValue())
			counted[family.GetName()+" "+m.GetLabel()[1].GetValue()] = m.GetCounter().GetValue() + m.GetHistogram().GetSampleSum()
		}
	}
	assert.Equal(t, map[string]float64{
		"layerwright_image_verifications_total passed": 1, "layerwright_image_verifications_total failed": 1, "layerwright_image_verifications_total interrupted": 1,
		"layerwright_image_verification_duration_seconds passed": 60, "layerwright_image_verification_duration_seconds failed": 0,
	}, counted)
}

func TestNoVerificationsCountNothing(t *testing.T) {
	t.Parallel()
	var v *metrics.Verifications
	assert.NotPanics(t, func() {
		v.Ended("a", metrics.VerificationPassed, 0)
		v.Interrupted("a")
	})
}
