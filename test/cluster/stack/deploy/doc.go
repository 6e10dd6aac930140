// Package deploy brings the programs of a checkout onto a cluster: it compiles them, makes images
// of them, loads these into nodes, and applies deploy/ with what a playground adds to it.
package deploy
