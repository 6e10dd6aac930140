// Package backend is what a build backend and its caller say to each other: what to build, how far
// it is, and why it failed.
//
// Rule: pure, neutral data. A backend turns a Spec into objects of its own kind and those back into
// a State; which kind that is, and what becomes of the result, is the other side's business. How a
// backend is called is the interface backends.Backend.
package backend
