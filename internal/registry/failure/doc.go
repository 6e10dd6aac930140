// Package failure says what a registry's answer means for what was tried, in words and as a class
// of internal/fault.
//
// Rule: whoever sees an answer first classifies it, and it keeps that class on its way up. Texts
// have no secrets.
package failure
