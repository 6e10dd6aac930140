// Command skopeo is the one command of the program of this name that ostree-ext calls,
// experimental-image-proxy, by the library that skopeo itself serves it with: Debian 12's skopeo
// has the verification of sigstore's signatures turned off, and Go's module proxy has none.
//
// Rule: it has the flags that ostree-ext passes, and judges nothing by itself.
package main
