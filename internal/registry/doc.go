// Package registry talks to container registries: it resolves and inspects images, checks before a
// build whether a secret may push, and appends the layer with a pool's configuration to an image
// without pulling it.
//
// Rule: what an answer means is decided here, once, and every error says so with internal/fault:
// not found, denied, unsupported and unreadable are Terminal, a registry that is read-only is
// Waiting, and all else (5xx, 429, timeouts, lost connections) is Transient. Texts name the image,
// what was tried and what helps; they have no secrets of URLs and no pages of HTML. The end of a
// context is passed on as it is. Nothing is written to disk, and no blob is held in memory.
//
// The rules of appending are in docs/adr/0009-append.md.
package registry
