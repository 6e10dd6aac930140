// Package folder lets a folder with images (OCI image layout) stand for a registry, so that what
// reads and writes registries reads and writes folders too.
//
// Rule: the protocol and the files are go-containerregistry's. Nothing listens where another
// process could connect.
package folder
