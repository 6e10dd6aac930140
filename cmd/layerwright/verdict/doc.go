// Package verdict reports whether an image is trusted, and by whom: by a key, by a trust policy, or
// by the signature policy that nodes of a pool have.
//
// Rule: trust and trust/sign verify, as in the controller. Where nothing is asked for, nothing is
// verified, and that is no trust.
package verdict
