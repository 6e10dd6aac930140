// Package sign signs images in registries and verifies their signatures, in the format of cosign
// that podman, bootc and rpm-ostree verify (an image of signatures under the tag
// sha256-<digest>.sig).
//
// It works with keys, and without: then Fulcio certifies a key of minutes for an identity, and each
// signature is in the transparency log Rekor. cosign's own library gives the verdict and writes to
// the log.
//
// Rule: cosign is handed all that it judges with, and asks no one. What is from a registry reaches
// it through internal/registry, where a registry that does not answer is not an image without
// signatures; docs/adr/0021-signing.md says more.
package sign
