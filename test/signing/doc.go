// Package signing tests that what Layerwright signs is accepted, and what anybody else pushes
// refused, by the library that nodes pull with (containers/image), under the policy that
// Layerwright gives them, from a real registry.
package signing
