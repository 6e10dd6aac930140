// Command house prints how large the rooms of this repository are: packages, the knots of files in
// them, what they import, and how far a build's scope is handed on. internal/archtest holds the
// limits.
package main
