// Package watched keeps what the health checks of pools read, such as the pods of a namespace, in
// memory: each set of objects by a watch of its own, for as long as a check reads it.
//
// Rule: a set that can't be read, or not any more, gives an error and no objects. Only what is
// named is asked for, so that rights to one namespace, or to one name, suffice.
package watched
