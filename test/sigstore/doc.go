// Package sigstore has what signing without a key takes, for tests: an OpenID Connect provider that gives tokens, the real Fulcio as a program, and
// stand-ins for Fulcio and for Rekor.
//
// The stand-ins check what they are given as the real ones do, and answer in the same form; that of Fulcio is for what a real one can't be made to do, such
// as to fail. The real Rekor needs databases beside it.
package sigstore
