// Package nodestest makes Nodes for tests.
package nodestest
