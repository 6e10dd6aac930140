// Package streams decides which OS image stream a pool follows.
//
// Rule: everything here is a function of API objects. Who names a stream wins over who remembers one, and a stream that cannot be
// followed is an error and never silently another one: a pool would change its operating system without anybody having asked.
package streams
