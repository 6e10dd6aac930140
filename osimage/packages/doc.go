// Package packages says which packages an operating-system image has, from the databases of rpm and
// dpkg in it.
//
// Rule: it reads what the databases say and judges nothing. Images are made by others, so no byte
// of a database is believed: sizes are bounded before memory is taken, every offset is checked, a
// chain of pages ends. That is why the formats are read here, all of them in one read of one
// table, and not by a library that panics in a goroutine of its own, where no one can catch it.
package packages
