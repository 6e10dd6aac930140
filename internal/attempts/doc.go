// Package attempts decides whether something that failed is tried again, and when.
//
// Rule: pure. A count is written on the object that is tried, or kept by what tries it, and anybody
// may have changed what is written: Written reads it with that in mind.
package attempts
