// Package baseimage reads base images as far as the builder has to know them: which paths they
// have, and what a few of their files hold. Nothing is unpacked, and no layer is ever in memory or
// on disk as a whole.
//
// Rule: I/O around osimage/osindex, which decides what an index is. Each byte that is used has been
// verified against the digests of the image. What is known once is kept in a cache folder that may
// be deleted at any time. Errors of registries and images are classified here, with internal/fault.
package baseimage
