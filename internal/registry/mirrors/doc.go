// Package mirrors says where an image is read besides the registry that its name has: by
// registries.conf, and by the mirror sets of a cluster.
//
// Rule: it is pure, and the semantics are those of containers/image, which nodes and builds go by:
// a test compares the two. Only places change. An image keeps its name in keys, status and
// statements, and nothing is ever written to a mirror.
package mirrors
