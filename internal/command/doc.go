// Package command is what Layerwright's programs that run in clusters do alike: what they log and
// how, flags that take one of a few words, and the probes that the kubelet asks.
//
// Rule: it knows no options of a single program, and no kind of Layerwright's.
package command
