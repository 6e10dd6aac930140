// Package signing tests that what Layerwright signs is accepted, and what anybody else pushes
// refused, by the library that nodes pull with (containers/image), under the policy that
// Layerwright gives them, from a real registry. Those who sign with a real Fulcio, Rekor or Vault
// have the build tag signing: make e2e-signing runs them.
package signing
