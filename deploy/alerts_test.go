package deploy

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/textparse"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/template"
	"github.com/prometheus/prometheus/util/annotations"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/cmd/layerwright/states" //nolint:depguard // rules are tried with what the program says
	"github.com/layerwright/layerwright/internal/metrics"
	"github.com/layerwright/layerwright/internal/version"
	"github.com/layerwright/layerwright/view"
)

// alert is an alerting rule of Prometheus.
type alert struct {
	Alert, Expr, For    string
	Labels, Annotations map[string]string
}

// alerts are those of components/alerts, by name.
func alerts(t *testing.T) map[string]alert {
	t.Helper()
	all := map[string]alert{}
	for _, d := range documents(t, "components/alerts") {
		var rule struct {
			Spec struct {
				Groups []struct {
					Name  string
					Rules []alert
				}
			}
		}
		require.NoError(t, yaml.Unmarshal(d.raw, &rule))
		for _, group := range rule.Spec.Groups {
			for _, a := range group.Rules {
				require.NotContains(t, all, a.Alert)
				all[a.Alert] = a
			}
		}
	}
	return all
}

var promQL = parser.NewParser(parser.Options{})

func TestAlertsAreComplete(t *testing.T) {
	t.Parallel()
	runbooks, err := os.ReadFile("../docs/runbooks.md")
	require.NoError(t, err)
	sections := map[string]string{}
	for _, section := range strings.Split(string(runbooks), "\n## ")[1:] {
		name, text, _ := strings.Cut(section, "\n")
		sections[name] = text
	}
	all := alerts(t)
	for name, a := range all {
		assert.NotEmpty(t, a.For, name)
		assert.Contains(t, []string{"info", "warning", "critical"}, a.Labels["severity"], name)
		assert.NotEmpty(t, a.Annotations["summary"], name)
		assert.NotEmpty(t, a.Annotations["description"], name)
		assert.Equal(t, "https://github.com/layerwright/layerwright/blob/main/docs/runbooks.md#"+strings.ToLower(name), a.Annotations["runbook_url"])
		for _, part := range []string{"**Meaning.**", "**Impact.**", "**Diagnosis.**", "**Mitigation.**"} {
			assert.Contains(t, sections[name], part, "docs/runbooks.md, %s", name)
		}
	}
	for name := range sections {
		assert.Contains(t, all, name, "docs/runbooks.md has an alert that does not exist")
	}
}

// ownMetrics are the names of the metrics that the controller serves.
func ownMetrics(t *testing.T) []string {
	t.Helper()
	var names []string
	nameIn := regexp.MustCompile(`fqName: "(\w+)"`)
	for _, collector := range []prometheus.Collector{
		metrics.NewBuildInfo(version.Info{}), metrics.NewBuilds(), metrics.NewPools(nil), metrics.NewPoolStreams(nil), metrics.NewState(nil),
		metrics.NewVerifications(), metrics.NewRollouts(), metrics.NewDrains(), metrics.NewBootImages(), metrics.NewRegistries(),
	} {
		descriptions := make(chan *prometheus.Desc, 64)
		collector.Describe(descriptions)
		close(descriptions)
		for description := range descriptions {
			names = append(names, nameIn.FindStringSubmatch(description.String())[1])
		}
	}
	return names
}

// requireOwnMetrics requires an expression of metrics that exist.
func requireOwnMetrics(t *testing.T, of, expression string) {
	t.Helper()
	parsed, err := promQL.ParseExpr(expression)
	require.NoError(t, err, of)
	known, seen := ownMetrics(t), 0
	parser.Inspect(parsed, func(node parser.Node, _ []parser.Node) error {
		if selector, is := node.(*parser.VectorSelector); is {
			seen++
			histogram := regexp.MustCompile(`_(bucket|count|sum)$`).ReplaceAllString(selector.Name, "")
			assert.True(t, slices.Contains(known, selector.Name) || slices.Contains(known, histogram), "%s asks for the metric %q", of, selector.Name)
		}
		return nil
	})
	require.NotZero(t, seen, of)
}

func TestAlertsAskForMetricsThatExist(t *testing.T) {
	t.Parallel()
	for name, a := range alerts(t) {
		requireOwnMetrics(t, name, a.Expr)
	}
}

// alertCase is a case of testdata/alerts.yaml, in the format of promtool test rules.
type alertCase struct {
	Name        string
	InputSeries []struct{ Series, Values string } `json:"input_series"`
	AlertTests  []struct {
		EvalTime  string `json:"eval_time"`
		Alertname string
		Expected  []struct {
			Labels      map[string]string `json:"exp_labels"`
			Annotations map[string]string `json:"exp_annotations"`
		} `json:"exp_alerts"`
	} `json:"alert_rule_test"`
}

// TestAlerts evaluates the rules with Prometheus's own engine, once a minute.
func TestAlerts(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("testdata/alerts.yaml")
	require.NoError(t, err)
	var file struct{ Tests []alertCase }
	require.NoError(t, yaml.Unmarshal(text, &file))
	all, fired, quiet := alerts(t), map[string]bool{}, map[string]bool{}
	for _, c := range file.Tests {
		series := seriesOf(t, &c)
		for _, test := range c.AlertTests {
			a, exists := all[test.Alertname]
			require.True(t, exists, "%s: %s", c.Name, test.Alertname)
			at, err := model.ParseDuration(test.EvalTime)
			require.NoError(t, err)
			firing := firing(t, &a, series, time.Duration(at))
			var want []map[string]string
			for _, expected := range test.Expected {
				expected.Labels["severity"] = a.Labels["severity"]
				want = append(want, expected.Labels)
			}
			var got []map[string]string
			for _, f := range firing {
				got = append(got, f.labels)
				assert.NotContains(t, f.description, "<no value>", a.Alert)
				if len(test.Expected) == 1 && test.Expected[0].Annotations != nil {
					assert.Equal(t, strings.TrimSpace(test.Expected[0].Annotations["description"]), f.description, c.Name)
				}
			}
			assert.ElementsMatch(t, want, got, "%s: %s after %s", c.Name, a.Alert, test.EvalTime)
			fired[a.Alert] = fired[a.Alert] || len(want) > 0
			quiet[a.Alert] = quiet[a.Alert] || len(want) == 0
		}
	}
	for name := range all {
		assert.True(t, fired[name], "no case fires %s", name)
		assert.True(t, quiet[name], "no case keeps %s quiet", name)
	}
}

// start is when all cases begin.
var start = time.Unix(0, 0)

// seriesOf are the series of a case, with a sample a minute.
func seriesOf(t *testing.T, c *alertCase) []storage.Series {
	t.Helper()
	var all []storage.Series
	for _, input := range c.InputSeries {
		metric, values, err := promQL.ParseSeriesDesc(input.Series + " " + input.Values)
		require.NoError(t, err, c.Name)
		s := promql.Series{Metric: metric}
		for i, v := range values {
			if !v.Omitted {
				s.Floats = append(s.Floats, promql.FPoint{T: start.Add(time.Duration(i) * time.Minute).UnixMilli(), F: v.Value})
			}
		}
		all = append(all, promql.NewStorageSeries(s))
	}
	return all
}

// served has series asked for as a Prometheus has them.
func served(all []storage.Series) storage.Queryable {
	return &storage.MockQueryable{MockQuerier: &storage.MockQuerier{
		SelectMockFunction: func(_ bool, _ *storage.SelectHints, matchers ...*labels.Matcher) storage.SeriesSet {
			selected := &seriesSet{}
			for _, s := range all {
				if !slices.ContainsFunc(matchers, func(m *labels.Matcher) bool { return !m.Matches(s.Labels().Get(m.Name)) }) {
					selected.left = append(selected.left, s)
				}
			}
			return selected
		},
	}}
}

type seriesSet struct {
	at   storage.Series
	left []storage.Series
}

func (s *seriesSet) Next() bool {
	if len(s.left) == 0 {
		return false
	}
	s.at, s.left = s.left[0], s.left[1:]
	return true
}

func (s *seriesSet) At() storage.Series                { return s.at }
func (s *seriesSet) Err() error                        { return nil }
func (s *seriesSet) Warnings() annotations.Annotations { return nil }

type firingAlert struct {
	labels      map[string]string
	description string
}

// firing are the alerts of a rule that have been true for as long as it says.
func firing(t *testing.T, a *alert, all []storage.Series, after time.Duration) []firingAlert {
	t.Helper()
	hold, err := model.ParseDuration(a.For)
	require.NoError(t, err)
	end := start.Add(after)
	engine := promql.NewEngine(promql.EngineOpts{MaxSamples: 1 << 20, Timeout: time.Minute, Parser: promQL})
	t.Cleanup(func() { _ = engine.Close() })
	query, err := engine.NewRangeQuery(t.Context(), served(all), nil, a.Expr, start, end, time.Minute)
	require.NoError(t, err, a.Alert)
	defer query.Close()
	matrix, err := query.Exec(t.Context()).Matrix()
	require.NoError(t, err, a.Alert)
	var out []firingAlert
	for _, s := range matrix {
		minutes := 0
		for i := len(s.Floats) - 1; i >= 0 && s.Floats[i].T == end.Add(-time.Duration(minutes)*time.Minute).UnixMilli(); i-- {
			minutes++
		}
		if minutes == 0 || time.Duration(minutes-1)*time.Minute < time.Duration(hold) {
			continue
		}
		of := s.Metric.DropReserved(func(name string) bool { return name == model.MetricNameLabel }).Map()
		description := expand(t, a.Annotations["description"], of, s.Floats[len(s.Floats)-1].F)
		for name, value := range a.Labels {
			of[name] = value
		}
		out = append(out, firingAlert{of, description})
	}
	return out
}

// expand fills in an annotation as Prometheus does.
func expand(t *testing.T, text string, of map[string]string, value float64) string {
	t.Helper()
	data := template.AlertTemplateData(of, nil, "", promql.Sample{F: value})
	const defs = "{{$labels := .Labels}}{{$value := .Value}}"
	none := func(context.Context, string, time.Time) (promql.Vector, error) { return nil, nil }
	expanded, err := template.NewTemplateExpander(t.Context(), defs+text, "alert", data, model.Time(0), none, &url.URL{}, []string{"missingkey=error"}).Expand()
	require.NoError(t, err, text)
	return strings.TrimSpace(expanded)
}

// TestWhatTheControllerServesFires takes an alert from objects to its text, by way of what
// Prometheus reads: a real Prometheus does the same with a network between.
func TestWhatTheControllerServesFires(t *testing.T) {
	t.Parallel()
	pool := mcfgv1.MachineConfigPool{ObjectMeta: metav1.ObjectMeta{Name: "worker"}}
	pool.Spec.NodeSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"role": "worker"}}
	node := corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "worker-0", Labels: map[string]string{"role": "worker"}}}
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	config := mcfgv1.MachineOSConfig{ObjectMeta: metav1.ObjectMeta{Name: "worker"}}
	config.Status.Conditions = []metav1.Condition{{Type: mcfgv1.ConditionReady, Status: metav1.ConditionFalse, Reason: mcfgv1.ReasonPushDenied}, {Type: mcfgv1.ConditionStalled, Status: metav1.ConditionTrue, Reason: mcfgv1.ReasonPushDenied}}
	build := mcfgv1.MachineOSBuild{ObjectMeta: metav1.ObjectMeta{Name: "worker-1"}}
	build.Spec.MachineOSConfig.Name, build.Status.BuildEnd = "worker", new(metav1.Now())
	build.Status.Conditions = []metav1.Condition{{Type: mcfgv1.BuildFailed, Status: metav1.ConditionTrue, Reason: mcfgv1.ReasonPushDenied}}
	report := mcfgv1.MachineConfigNode{ObjectMeta: metav1.ObjectMeta{Name: "worker-0"}}
	report.Spec.Pool.Name = "worker"
	report.Status.Conditions = []metav1.Condition{{Type: mcfgv1.NodeDrained, Status: metav1.ConditionFalse, Reason: mcfgv1.ReasonDrainOverdue}}
	o := &view.Objects{
		Pools: []mcfgv1.MachineConfigPool{pool}, Nodes: []corev1.Node{node}, Reports: []mcfgv1.MachineConfigNode{report},
		Configs: []mcfgv1.MachineOSConfig{config}, Builds: []mcfgv1.MachineOSBuild{build},
	}
	registry := prometheus.NewPedanticRegistry()
	require.NoError(t, registry.Register(metrics.NewState(func(context.Context) (*metrics.State, error) { return states.Of(o), nil })))
	require.NoError(t, registry.Register(metrics.NewBuildInfo(version.Info{Version: "v0.1.0"})))
	fires := func() []string {
		all := scrape(t, registry)
		var names []string
		for name, a := range alerts(t) {
			if len(firing(t, &a, all, 3*time.Hour)) > 0 {
				names = append(names, name)
			}
		}
		slices.Sort(names)
		return names
	}
	require.Equal(t, []string{"LayerwrightDrainOverdue", "LayerwrightNodeWithoutAgent", "OCLBuildDegraded", "OCLImagePushFailed"}, fires())
	o.Nodes, o.Reports, o.Builds = nil, nil, nil
	require.Empty(t, fires(), "an alert ends with its cause")
}

// scrape reads what a registry serves as Prometheus does, once a minute for three hours.
func scrape(t *testing.T, registry *prometheus.Registry) []storage.Series {
	t.Helper()
	recorder := httptest.NewRecorder()
	promhttp.HandlerFor(registry, promhttp.HandlerOpts{}).ServeHTTP(recorder, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", http.NoBody))
	require.Equal(t, http.StatusOK, recorder.Code)
	exposed := textparse.NewPromParser(recorder.Body.Bytes(), labels.NewSymbolTable(), false)
	var all []storage.Series
	for {
		entry, err := exposed.Next()
		if errors.Is(err, io.EOF) {
			return all
		}
		require.NoError(t, err)
		if entry != textparse.EntrySeries {
			continue
		}
		var s promql.Series
		exposed.Labels(&s.Metric)
		_, _, value := exposed.Series()
		for at := start; !at.After(start.Add(3 * time.Hour)); at = at.Add(time.Minute) {
			s.Floats = append(s.Floats, promql.FPoint{T: at.UnixMilli(), F: value})
		}
		all = append(all, promql.NewStorageSeries(s))
	}
}

func TestDashboardsAskForMetricsThatExist(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("components/dashboards/*.json")
	require.NoError(t, err)
	require.Len(t, files, 2)
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		var dashboard struct {
			UID    string
			Panels []struct {
				Type, Title string
				Targets     []struct{ Expr string }
			}
		}
		require.NoError(t, json.Unmarshal(text, &dashboard))
		assert.Equal(t, strings.TrimSuffix(filepath.Base(file), ".json"), dashboard.UID)
		titles := map[string]bool{}
		for _, panel := range dashboard.Panels {
			assert.False(t, titles[panel.Title], "%s has two panels %q", file, panel.Title)
			titles[panel.Title] = true
			if panel.Type == "row" {
				continue
			}
			require.Len(t, panel.Targets, 1, panel.Title)
			requireOwnMetrics(t, panel.Title, panel.Targets[0].Expr)
		}
	}
}
