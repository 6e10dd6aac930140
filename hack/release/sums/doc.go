// Package sums writes and checks the file SHA256SUMS of a folder, and its signature.
//
// Rule: a folder is right if it has exactly the files that SHA256SUMS lists, each with its
// checksum, and if the key has signed the list. The signature is that of `cosign sign-blob`, so
// that cosign verifies it too.
package sums
