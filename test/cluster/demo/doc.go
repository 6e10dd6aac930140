// Package demo tells the story of an image, from nothing to the second one, on a cluster that is
// up: what an administrator applies, what follows, and what stands in the registry afterwards. It
// does what it prints and nothing else, and can be told again on the same cluster.
package demo
