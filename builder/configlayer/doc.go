// Package configlayer makes a configuration layer: it gets what the plan of one asks for, and
// builds it.
//
// Rule: what is asked for comes from files by URL and from the image below, nothing else, and all
// of it through the two interfaces.
package configlayer
