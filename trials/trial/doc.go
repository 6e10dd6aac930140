// Package trial finds out what a pool's move to another stream would change, from the objects and
// images on both sides.
//
// Rule: it reads and never writes. What it reads goes to streams/compare, which judges; who asks (a
// controller, a command) decides what becomes of the report.
package trial
