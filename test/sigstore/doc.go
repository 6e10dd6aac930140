// Package sigstore has what signing without a key takes, for tests: an OpenID Connect provider that
// gives tokens, the real Fulcio and the real Rekor as programs, and stand-ins for both.
//
// The stand-ins check what they are given as the real ones do, and answer in the same form; they
// are for what real ones can't be made to do, such as to fail.
package sigstore
