// Command standin stands in for the program of the build steps: it keeps the contract of
// builder/backend, builds nothing, and does what the Containerfile that it is given says, line by
// line, as "<step> <what>". So the tests of what runs builds need no builder.
//
// In its report every step says what it finds in its container, and whether it could mount, as
// notes.
package main
