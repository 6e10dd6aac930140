package metrics

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
)

// State is what alerts and dashboards read of the cluster's objects. It is computed when it is
// scraped: a restart loses nothing, and nothing is left of an object that is gone.
type State struct {
	// Objects and Conditions have each combination of their labels once.
	Objects    []Objects
	Conditions []Conditions
	// Builds has each MachineOSConfig once.
	Builds []PoolBuilds
	// LayeredNodes are the nodes with an image of their own, by pool.
	LayeredNodes map[string]int
	// Configs is how many MachineOSConfigs there are.
	Configs int
}

// Objects are so many objects that are alike, in the words of the command's status.
type Objects struct {
	// Pool is empty for what belongs to none, and Step for pools, whose steps are free text.
	Pool, Kind, Assessment, Step string
	Count                        int
}

// Conditions are so many objects that have the same trouble.
type Conditions struct {
	Pool, Kind, Condition, Reason string
	Count                         int
}

// PoolBuilds are how the builds of a pool are.
type PoolBuilds struct {
	Pool string
	// Stage is that of the newest build; HasBuild is false where there is none.
	Stage    mcfgv1.BuildStage
	HasBuild bool
	// Active is how many run.
	Active int
	// Started and Ended are of the newest build, in seconds since 1970; zero where it has not.
	Started, Ended float64
	// Push is how the newest push ended: succeeded, failed; empty where it is not known.
	Push string
}

// The ends of a push.
const (
	PushSucceeded = "succeeded"
	PushFailed    = "failed"
)

var (
	objectCount = prometheus.NewDesc("layerwright_objects",
		"Objects by pool, kind, assessment and step, in the words of `kubectl layerwright status`.", []string{"pool", "kind", "assessment", "step"}, nil)
	conditionCount = prometheus.NewDesc("layerwright_conditions",
		"Objects by pool and kind whose condition tells of trouble, with its reason.", []string{"pool", "kind", "condition", "reason"}, nil)
	configCount  = prometheus.NewDesc("mco_mosc_count", "Number of MachineOSConfigs.", nil, nil)
	layeredNodes = prometheus.NewDesc("ocl_layered_nodes_count", "Nodes of a pool that have a layered image.", []string{"pool"}, nil)
	buildState   = prometheus.NewDesc("ocl_build_state", "1 for the state that the pool's newest build is in, 0 for the others.", []string{"pool", "state"}, nil)
	activeBuilds = prometheus.NewDesc("ocl_active_builds", "Number of the pool's builds that run.", []string{"pool"}, nil)
	buildStarted = prometheus.NewDesc("ocl_build_start_timestamp_seconds", "When the pool's newest build began.", []string{"pool"}, nil)
	buildEnded   = prometheus.NewDesc("ocl_build_end_timestamp_seconds", "When the pool's newest build ended, by result.", []string{"pool", "state"}, nil)
	pushState    = prometheus.NewDesc("ocl_image_push_state", "1 for the result of the pool's newest push, 0 for the other result.", []string{"pool", "state"}, nil)
)

// NewState makes the metrics of objects. Those that begin with ocl and mco have the names of
// openshift/machine-config-operator.
func NewState(read func(ctx context.Context) (*State, error)) prometheus.Collector {
	return stateMetrics{read}
}

type stateMetrics struct {
	read func(ctx context.Context) (*State, error)
}

// Describe implements prometheus.Collector.
func (m stateMetrics) Describe(descriptions chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		objectCount, conditionCount, configCount, layeredNodes, buildState, activeBuilds, buildStarted, buildEnded, pushState,
	} {
		descriptions <- d
	}
}

// Collect implements prometheus.Collector.
func (m stateMetrics) Collect(metrics chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), listTimeout) //nolint:forbidigo // a collector is given none
	defer cancel()
	s, err := m.read(ctx)
	if err != nil {
		metrics <- prometheus.NewInvalidMetric(objectCount, err)
		return
	}
	gauge := func(of *prometheus.Desc, value float64, labels ...string) {
		metrics <- prometheus.MustNewConstMetric(of, prometheus.GaugeValue, value, labels...)
	}
	gauge(configCount, float64(s.Configs))
	for _, o := range s.Objects {
		gauge(objectCount, float64(o.Count), o.Pool, o.Kind, o.Assessment, o.Step)
	}
	for _, c := range s.Conditions {
		gauge(conditionCount, float64(c.Count), c.Pool, c.Kind, c.Condition, c.Reason)
	}
	for pool, n := range s.LayeredNodes {
		gauge(layeredNodes, float64(n), pool)
	}
	for i := range s.Builds {
		s.Builds[i].collect(gauge)
	}
}

func (b *PoolBuilds) collect(gauge func(of *prometheus.Desc, value float64, labels ...string)) {
	gauge(activeBuilds, float64(b.Active), b.Pool)
	is := func(yes bool) float64 {
		if yes {
			return 1
		}
		return 0
	}
	if b.Push != "" {
		for _, state := range []string{PushSucceeded, PushFailed} {
			gauge(pushState, is(state == b.Push), b.Pool, state)
		}
	}
	if !b.HasBuild {
		return
	}
	for stage, state := range buildStates {
		gauge(buildState, is(stage == int(b.Stage)), b.Pool, state)
	}
	if b.Started != 0 {
		gauge(buildStarted, b.Started, b.Pool)
	}
	if b.Ended != 0 {
		gauge(buildEnded, b.Ended, b.Pool, buildStates[b.Stage])
	}
}
