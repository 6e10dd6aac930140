// Package gateway is the one way into a test cluster's private network: it
// owns the network namespace, gives it its addresses, and carries connections
// from a loopback port of the host to a server inside. Nothing is routed
// between the two, so nothing that runs in the cluster reaches the network of
// the machine.
package gateway
