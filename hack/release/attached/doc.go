// Package attached writes images of a release into OCI layouts, with what is attached to them: SBOM
// and provenance, and signatures where there is a key.
//
// An in-process registry stands for the one that the names of the images belong to, so that package
// trust/sign attaches to a release what the controller attaches to its images, in the same form.
//
// Rule: a layout has all that belongs to one image, as descriptors of its index.json: the image and
// what cosign looks for under tags with their tag, referrers without one.
package attached
