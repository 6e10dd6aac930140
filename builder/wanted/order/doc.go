// Package order is an image to make, as those who know what is wanted hand it on to those who make
// it: what it is made of, which keys it has, where it goes, and what is in the registry then.
//
// Rule: plain data. Nothing here asks a registry or a cluster; a build, a trial and a command order
// images alike.
package order
