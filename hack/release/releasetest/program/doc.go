// Command program stands in for the programs of a release: it prints its arguments, and links a
// module as they do.
package main
