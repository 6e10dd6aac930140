// Package osindex knows which paths an image has, without the image: what each path is, who owns
// it, and what the few files hold that decide how configuration is laid over it.
//
// Rule: pure. An index is built by applying the layers of an image, as tar streams, from the first
// to the last, and gives the same answers wherever it was built. Its size is that of names, not of
// contents, so it can be kept per image digest. What it shows is what an overlay of the unpacked
// layers would show; what it keeps of contents is never a secret.
package osindex
