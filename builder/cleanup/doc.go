// Package cleanup removes what builds leave behind: what built them when they have ended, and their
// images when they are deleted.
//
// Rule: a build goes at last, whatever its registry does. What could not be removed is said.
package cleanup
