// Package sign signs images in registries and verifies their signatures, in the format of cosign that podman, bootc and rpm-ostree verify
// (an image of signatures under the tag sha256-<digest>.sig).
//
// It works with keys alone: no certificates, no transparency log. Keys, their encryption and key management services are those of sigstore's
// own libraries, which cosign stands on too; what is missing of cosign, and why, is in docs/adr/0021-signing.md.
package sign
