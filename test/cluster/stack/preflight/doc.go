// Package preflight looks at what this machine must offer before a cluster is started: privileges,
// file systems, namespaces and control groups for nodes, and free ports of the loopback interface.
package preflight
