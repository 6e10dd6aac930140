// Package conformance imports our images with the code that bootc and rpm-ostree import images
// with, ostree-ext, and compares what it deploys with what the image says, with what the stand-in
// of the playground's hosts deploys (test/host), and with what `layerwright render` describes. It
// needs root, and Rust to compile the importer:
//
//	make conformance
//
// Rule: what differs is a fault of ours. ostree-ext is called by the command line that it has, and
// the library that skopeo serves it with is skopeo's own.
package conformance
