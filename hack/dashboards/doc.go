// Command dashboards writes the Grafana dashboards of deploy/components/dashboards: one for pools,
// rollouts and nodes, one for builds and registries.
package main
