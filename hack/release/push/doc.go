// Package push brings the images of a release from OCI layouts into a registry, by digest.
//
// Rule: it may be killed at any point and run again. What the registry has is not uploaded again,
// and the tag of a release is written last: whoever finds it finds all that belongs to the image.
// Signatures that others have attached there stay.
package push
