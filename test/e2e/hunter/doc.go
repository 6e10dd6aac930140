// Command hunter is what a RUN line runs that looks for secrets: in every file, environment and
// memory that it can reach, from inside of its root and from outside of it, if it gets there. Tests
// plant secrets that begin with a mark, and read what was found in the image that comes of it.
package main
