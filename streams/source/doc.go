// Package source finds out what images of streams are: it reads the list of images out of a release
// image, resolves tags, and reads the labels of images, from their registries or from a cache.
//
// Rule: this is the I/O of package streams, and nothing is decided here: what is wrong becomes a
// streams.Problem of the image or of the source, and what may pass is an error besides, for whoever
// tries again. Of an image only manifest and config are read, and of a release image the newest
// layers down to the one that has the list. What a digest stands for never changes, so it is asked
// for once.
package source
