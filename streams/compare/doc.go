// Package compare says what a pool's move to another stream changes, and what is in its way.
//
// Rule: it is pure, and judges only what it is given. What is not known (an image without a package
// database, a stream without an extensions image that could be read) is reported as not known and
// blocks nothing. Each rule about what is known to break is a row of one table.
package compare
