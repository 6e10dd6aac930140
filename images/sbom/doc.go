// Package sbom makes SBOMs: SPDX documents of what an image has beyond its base image.
//
// Rule: it lists what the package databases in the image say, by comparing them with those of the
// base image, and says of everything else that it does not know it. Databases are made by others,
// so that no text of theirs is believed to be short, or UTF-8, or one line. The same image gives
// the same bytes.
package sbom
