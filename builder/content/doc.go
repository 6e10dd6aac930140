// Package content obtains what the configuration of a build's image goes onto: the base image,
// content that was built before, or content that a backend builds now.
//
// Rule: it follows what builds content in one reconcile or more, each of which can end anywhere,
// and says how far that is. The status of the build is changed in memory alone; who asks writes it.
package content
