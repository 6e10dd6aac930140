// Package document knows where in the JSON of an Ignition config something is, and what people call
// it, for messages that name the line and the element.
//
// Rule: it explains and never judges: what is wrong is found out by machineconfigs.
package document
