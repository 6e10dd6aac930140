// Package deployments keeps the bootable states of a host as ostree does: images become commits,
// commits become deployments. It calls the ostree program, and knows neither registries nor how a
// host boots.
//
// Rule: what it makes, ostree and a boot loader that reads BLS entries can use without it.
package deployments
