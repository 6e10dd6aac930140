// Package difference says how two images of a pool differ, and what the change would do to a node.
//
// Rule: pure. builder/plan compares recorded inputs, rollout/disruption judges what a change does.
// What is not known is said, and nothing is taken for equal because it could not be read. Values of
// kernel arguments, keys and passwords are compared and never shown.
package difference
