// Package toolchain builds the programs that a test cluster consists of from
// their pinned sources, once, into a cache folder.
//
// Every set of programs has a module of its own below hack/cluster, because
// Kubernetes, containerd and CoreDNS each need other versions of shared
// modules than the product. A set is known by a key over everything that goes
// into it, so a changed pin builds anew and an unchanged one costs a stat.
package toolchain
