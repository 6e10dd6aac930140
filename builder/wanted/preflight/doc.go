// Package preflight finds out before a build starts what would make it fail: secrets that are
// missing or can't be read, images that do not exist, a repository that may not be written to, a
// Containerfile or a configuration that can't become an image. On the way it pins every image by
// digest, so that what was checked is what is built.
//
// Rule: everything that can be checked independently is checked, and all that is wrong is told at
// once: the field, what is wrong, and what helps. Errors have the classes of internal/fault. What a
// registry said is remembered for a while, so that a controller with nothing to do asks no one;
// what failed is asked again each time.
package preflight
