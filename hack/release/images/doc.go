// Package images has the images of a release: what is in each of them, and the index that lists
// them for several platforms.
//
// Rule: it is the only place that knows what is in an image. A release and the playground both make
// theirs here, so that tests run what users get. The same programs give the same digests.
package images
