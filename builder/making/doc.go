// Package making brings the image of a build into the registry: it takes one that is there, or puts
// the configuration on content, and has what was made written down.
//
// Rule: everything can be done again, and ends the same. What is written down is what is signed
// then, whatever the tags stand for.
package making
