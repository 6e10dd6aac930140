// Package nodelog writes down how the Nodes of a cluster change.
package nodelog
