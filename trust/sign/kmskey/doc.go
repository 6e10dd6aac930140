// Package kmskey signs with a key that a key management service keeps.
//
// Rule: the key never leaves the service, which one of sigstore's plugins asks, a program beside
// this one. What it has signed is verified before it is used, and no message has what could be a
// secret of its environment.
package kmskey
