// Package watches says which changes of objects the reconcilers of builds look at.
//
// Rule: what more than one controller watches is here, what one watches is beside it.
package watches
