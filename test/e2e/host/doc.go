// Package host tests the hosts of the playground by themselves: real deployments of ostree, real
// images of a real registry, and boots without a virtual machine. It needs root.
package host
