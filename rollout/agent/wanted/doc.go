// Package wanted reads from the cluster what a node agent needs to know about its node's pool.
//
// Rule: it reads objects by name and decides nothing.
package wanted
