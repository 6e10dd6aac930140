// Package guests makes nodes that are virtual machines: their disks, with the node's identity on
// them, and the processes that run them.
package guests
