// Package ignition translates the stub Ignition configuration that machines start with from
// specification 2 to 3.
//
// Rule: what an administrator added stays. What has no meaning in specification 3 is refused with
// its place, never dropped.
package ignition
