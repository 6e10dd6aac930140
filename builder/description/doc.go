// Package description says exactly which image a pool's configuration and an administrator's
// Containerfile mean: what is built, what the configuration layer is made of, which keys the image
// has, and what only a node can apply.
//
// Rule: no I/O. Images come as digests and indexes, ConfigMaps as texts. Controller and command
// line describe an image alike, and the same inputs give the same description.
package description
