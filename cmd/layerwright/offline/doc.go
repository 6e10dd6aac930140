// Package offline describes the image of a pool from files, without a cluster: what `layerwright
// render` does.
//
// Rule: it finds the inputs (objects in files, images in registries or on disk) and hands them to
// the packages that decide. What it prints and writes is what the controllers would make of the
// same objects.
package offline
