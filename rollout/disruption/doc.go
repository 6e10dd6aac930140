// Package disruption says what a change of its configuration does to a running node: which units
// are reloaded or restarted, whether the node is drained, and why it has to reboot.
//
// Rule: pure. What no policy names reboots the node, as in openshift/machine-config-operator, whose
// built-in policies these are.
package disruption
