// Package sign signs images in registries and verifies their signatures, in the format of cosign
// that podman, bootc and rpm-ostree verify (an image of signatures under the tag
// sha256-<digest>.sig).
//
// It works with keys, and without: then Fulcio certifies a key of minutes for an identity, and each
// signature is in the transparency log Rekor. Keys, their encryption and key management services
// are those of sigstore's own libraries, which cosign stands on too. What is above them is by hand,
// because cosign's own library takes a registry that does not answer for an image without
// signatures; docs/adr/0021-signing.md and docs/adr/0027-keyless.md say more.
package sign
