// Package plan decides which nodes of a pool move next, and says of every other node why it does
// not.
//
// Rule: pure. A plan follows from the pool, its nodes, the image and the time alone, so that every
// reconcile, also the first one after a restart, goes on from where the cluster stands. Gate judges
// whether an image may reach nodes at all; Decide takes its answer and orders the nodes. Nothing
// here knows who built an image.
package plan
