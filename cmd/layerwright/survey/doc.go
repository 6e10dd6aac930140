// Package survey reads what view shows: one list for each kind, all at once, in pages.
//
// Rule: it reads and changes nothing. What a user may not read, and what a cluster has no kind of,
// is said beside the rest; it is an error only where nothing is left to show.
package survey
