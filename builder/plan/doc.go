// Package plan decides what has to be done for an image, and says why.
//
// Rule: pure. Two images that hold the same have the same keys, whatever the objects are called
// that their inputs came from, and any difference between two images can be told in words.
package plan
