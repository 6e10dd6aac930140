// Package fleet rolls images out to three nodes of a real cluster, whose hosts stage, reboot and go
// back, with every fault that a cluster can show. It needs root.
package fleet
