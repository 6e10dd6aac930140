// Package standalone makes an image and answers for it in one call, without a cluster: what
// `layerwright build` does.
//
// Rule: it decides and makes nothing itself. It calls what the reconcilers call, in their order, so
// that the same inputs give the same bytes, keys and digest, and a cluster that signs with the same
// key takes the image for its own. It leaves nothing but what is in the registry.
package standalone
