// Package stored has objects as earlier versions of Layerwright left them in clusters, for tests
// that read them with today's code.
//
// Rule: a file is recorded once, by the version that it is called after, and never changed. What it
// says has to mean the same for ever.
package stored
