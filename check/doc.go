// Package check says what a cluster lacks for Layerwright, before and after it is installed: each
// finding with why it matters and the command that mends it.
//
// Gather reads facts, GatherPods has pods find out what the API server does not know, and Of judges
// them without asking the cluster. What the user may not read is Unknown, and never taken for good.
package check
