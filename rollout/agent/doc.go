// Package agent is what runs on every node: it brings its host to what the controller asks for by
// annotations of the Node, and says by others how far it is.
//
// Rule: each reconcile looks at the Node, the host and a journal on the host's disk, and does one
// step that follows from these alone (next). The process may be killed between any two.
package agent
