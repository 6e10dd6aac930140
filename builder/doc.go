// Package builder turns a MachineOSConfig into an image. It puts the rooms together that do it; in
// its tests are the stories in which all of them take part.
//
// Rule: configs and builds are reconcilers with options of their own, and neither knows the other,
// nor those of trials, which cmd puts beside them. What several of them need is a package that
// neither owns: wanted, objects, runs, retention. Packages decide (plan), say what an image is made
// of (wanted), make (maker) or touch one outside thing each (preflight, remote). A backend is
// handed in by cmd, never imported. What becomes of a finished image is package images.
package builder
