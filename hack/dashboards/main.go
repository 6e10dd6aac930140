package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"

	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/common"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
	"github.com/grafana/grafana-foundation-sdk/go/prometheus"
	"github.com/grafana/grafana-foundation-sdk/go/timeseries"
)

func main() {
	dir := flag.String("o", "deploy/components/dashboards", "the folder to write to")
	flag.Parse()
	if err := run(*dir); err != nil {
		fmt.Fprintln(os.Stderr, "dashboards:", err)
		os.Exit(1)
	}
}

// panel is a graph of one expression. Controllers that run at the same time report the same, so
// that expressions take the largest value of each.
type panel struct{ title, description, unit, expression, legend string }

// row is a row of panels.
type row struct {
	title  string
	panels []panel
}

func run(dir string) error {
	for name, d := range map[string]struct {
		title string
		rows  []row
	}{
		"layerwright-fleet":  {"Layerwright: pools and nodes", fleet()},
		"layerwright-builds": {"Layerwright: builds and registries", builds()},
	} {
		content, err := render(name, d.title, d.rows)
		if err != nil {
			return fmt.Errorf("making %s: %w", name, err)
		}
		if err := os.WriteFile(filepath.Join(dir, name+".json"), content, 0o644); err != nil { //nolint:gosec // it is committed
			return err
		}
	}
	return nil
}

func fleet() []row {
	return []row{
		{"Pools", []panel{
			{"Assessment", "1 for what each pool is, as `kubectl layerwright status` shows it", "short", `max by (pool, assessment) (layerwright_objects{kind="MachineConfigPool"})`, "{{pool}} {{assessment}}"},
			{"Updated nodes", "The part of each pool's nodes that have what they should have", "percentunit", `max by (pool) (layerwright_pool_machines{state="updated"}) / (max by (pool) (layerwright_pool_machines{state="all"}) > 0)`, "{{pool}}"},
			{"Unavailable and degraded nodes", "", "short", `max by (pool, state) (layerwright_pool_machines{state=~"unavailable|degraded"})`, "{{pool}} {{state}}"},
			{"Degraded conditions", "Conditions of pools that are True", "short", `max by (pool, condition, reason) (layerwright_pool_condition{condition=~".*Degraded|OSStreamDeprecated|PoliciesMissing"}) == 1`, "{{pool}} {{condition}} {{reason}}"},
		}},
		{"Nodes", []panel{
			{"Nodes that are not done", "Nodes by the step that they are at", "short", `max by (pool, assessment, step) (layerwright_objects{kind="Node",assessment!="Done"})`, "{{pool}} {{step}} ({{assessment}})"},
			{"Trouble that nodes report", "", "short", `max by (pool, condition, reason) (layerwright_conditions{kind="MachineConfigNode"})`, "{{pool}} {{reason}}"},
			{"Pods that block drains", "", "short", `max by (node) (layerwright_drain_blocking_pods)`, "{{node}}"},
			{"Streams", "1 for each stream that a pool uses", "short", `max by (pool, stream, lifecycle) (layerwright_pool_os_stream)`, "{{pool}} {{stream}} {{lifecycle}}"},
		}},
		{"Rollouts", []panel{
			{"Moves", "What nodes were told to do in an hour", "short", `sum by (pool, action) (increase(layerwright_rollout_moves_total[1h]))`, "{{pool}} {{action}}"},
			{"Update of a node", "95 of 100 updates took at most so long", "s", `histogram_quantile(0.95, sum by (pool, le) (rate(layerwright_rollout_node_duration_seconds_bucket[1h])))`, "{{pool}}"},
			{"Drain of a node", "95 of 100 drains took at most so long", "s", `histogram_quantile(0.95, sum by (le) (rate(layerwright_drain_duration_seconds_bucket[1h])))`, "drain"},
			{"Evictions", "Evictions in an hour, by what the API server made of them", "short", `sum by (result) (increase(layerwright_drain_evictions_total[1h]))`, "{{result}}"},
		}},
	}
}

func builds() []row {
	return []row{
		{"Builds", []panel{
			{"State of the newest build", "", "short", `max by (pool, state) (ocl_build_state) == 1`, "{{pool}} {{state}}"},
			{"Builds that run", "", "short", `max by (pool) (ocl_active_builds)`, "{{pool}}"},
			{"Builds that ended", "In an hour, by result", "short", `sum by (pool, state) (increase(ocl_build_total[1h]))`, "{{pool}} {{state}}"},
			{"Builds that wait", "Builds and MachineOSConfigs that do not go on", "short", `max by (pool, kind, step) (layerwright_objects{kind=~"MachineOSConfig|MachineOSBuild",assessment=~"Waiting|Held"})`, "{{pool}} {{step}}"},
			{"Duration", "95 of 100 builds took at most so long", "s", `histogram_quantile(0.95, sum by (pool, le) (rate(ocl_build_duration_seconds_bucket[6h])))`, "{{pool}}"},
			{"Time in the queue", "95 of 100 builds waited at most so long", "s", `histogram_quantile(0.95, sum by (pool, le) (rate(ocl_build_queue_duration_seconds_bucket[6h])))`, "{{pool}}"},
		}},
		{"Images", []panel{
			{"Pushes", "In an hour, by result", "short", `sum by (pool, state) (increase(ocl_image_push_total[1h]))`, "{{pool}} {{state}}"},
			{"Images that are not ready", "Images that a pool should have, by what holds them back", "short", `max by (pool, step) (layerwright_objects{kind="MachineOSImage",assessment!="Done"})`, "{{pool}} {{step}}"},
			{"Trouble with images", "", "short", `max by (pool, condition, reason) (layerwright_conditions{kind="MachineOSImage"})`, "{{pool}} {{reason}}"},
			{"Verifications", "In an hour, by result", "short", `sum by (pool, result) (increase(layerwright_image_verifications_total[1h]))`, "{{pool}} {{result}}"},
		}},
		{"Registries", []panel{
			{"Requests", "Requests of the controller in a second", "reqps", `sum by (registry, result) (rate(layerwright_registry_requests_total[5m]))`, "{{registry}} {{result}}"},
			{"Certificates", "How long the certificates of registries are valid", "s", `max by (registry) (layerwright_registry_certificate_expiry_timestamp_seconds) - time()`, "{{registry}}"},
			{"Deleted images", "In a day, by result", "short", `sum by (result) (increase(layerwright_image_deletions_total[1d]))`, "{{result}}"},
		}},
	}
}

// source has each dashboard read from the Prometheus that its reader chooses.
const source = "datasource"

// Sizes in Grafana's grid, which has 24 columns.
const (
	height = 7
	span   = 8
)

func render(name, title string, rows []row) ([]byte, error) {
	//nolint:staticcheck // what comes after it is for Grafana 13, and is not read by earlier ones
	d := dashboard.NewDashboardBuilder(title).Uid(name).Tags([]string{"layerwright"}).Refresh("1m").Time("now-6h", "now").
		WithVariable(dashboard.NewDatasourceVariableBuilder(source).Type("prometheus").Label("Prometheus"))
	for _, r := range rows {
		d.WithRow(dashboard.NewRowBuilder(r.title))
		for _, p := range r.panels {
			d.WithPanel(p.graph())
		}
	}
	built, err := d.Build()
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	err = encoder.Encode(built)
	return out.Bytes(), err
}

func (p *panel) graph() cog.Builder[dashboard.Panel] {
	return timeseries.NewPanelBuilder().Title(p.title).Description(p.description).Unit(p.unit).Min(0).Height(height).Span(span).
		Datasource(common.DataSourceRef{Type: cog.ToPtr("prometheus"), Uid: cog.ToPtr("${" + source + "}")}).
		WithTarget(prometheus.NewDataqueryBuilder().RefId("A").Expr(p.expression).LegendFormat(p.legend))
}
