// Package builder turns a MachineOSConfig into an image: what has to be built, what the registry
// has already, and what became of it.
//
// Rule: packages below decide (plan), describe (description), make (maker) or touch one outside
// thing each (preflight, remote). A backend is handed in by cmd, never imported. What becomes of a
// finished image is package images.
package builder
