// Package story is what `make try` shows: files become a signed image, and a changed file becomes
// one small layer.
//
// Rule: everything that it shows is done by the commands that it prints, in a registry that is in
// memory.
package story
