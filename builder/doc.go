// Package builder turns a MachineOSConfig into an image: what has to be built, what the registry has already, and what became of
// it.
//
// Rule: packages below decide (plan), describe (description) or touch one outside thing each (baseimage, remote). A backend is
// handed in by cmd, never imported.
package builder
