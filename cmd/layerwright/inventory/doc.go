// Package inventory lists the images of a pool: those that the cluster knows, and those that the
// registry has under tags of the pool.
//
// Rule: Of is a pure function of plain objects. Read alone asks a registry, for tags, manifests and
// configs and never for layers, and what it can't find out stays unknown.
package inventory
