// Package states makes of a cluster's objects what alerts and dashboards read.
//
// Rule: pure. An object is as view says, so that an alert and the command's status never differ.
// Labels have a few values each: names of pools, and words and reasons of ours, never free text
// and never the name of a node, a build or an image.
package states
