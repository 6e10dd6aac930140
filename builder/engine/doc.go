// Package engine is what runs inside a build pod: the steps fetch, build and push of an image, with
// Buildah and containers/image as libraries. Each step is a process in a container with a trust of
// its own (builder/backend.Step); they share a store, and nothing else.
//
//   - Fetch pulls every image that the Containerfile names into the store, with the pull secret.
//   - Build runs the Containerfile on what is in the store, and pulls nothing. It has no secret.
//   - Push uploads the result, with the push secret. What the registry has already is not uploaded.
//
// Rule: credentials are in memory only. They are handed to the libraries in files without a name
// (memfd), because the store is shared with the step that runs other people's lines. For the same
// reason Push takes no setting from the store: where it uploads to, as whom, and whom it trusts
// comes from its own container. A failure is classified where it is known, and every way out leaves
// a report.
//
// What a step consists of is here. Below it are folders (where things are), position (which line),
// layout (from Export to Push), classify (what errors mean) and process (main, around a step).
//
// The libraries need cgo, and build tags that keep C libraries out: containers_image_openpgp,
// exclude_graphdriver_btrfs. Without them the package is empty, so that the rest of the repository
// builds anywhere. docs/adr/0011 says why it is as it is.
package engine
