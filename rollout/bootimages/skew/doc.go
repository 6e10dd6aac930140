// Package skew decides whether boot images are too old for the release that a cluster runs or is to
// be upgraded to.
//
// Rule: it is pure. What no one knows the version of is as old as can be, and every refusal says
// what to do about it.
package skew
