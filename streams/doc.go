// Package streams decides which OS image stream a pool follows, and says how far streams are in
// their life.
//
// Rule: everything here is a function of API objects. Who names a stream wins over what is
// remembered, what is remembered over the default, and a stream that cannot be followed is an error
// and never silently another one: a pool would change its operating system without anybody having
// asked.
package streams
