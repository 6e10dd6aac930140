// Package readable says which files of a configuration keep a host from pulling images, because the
// user who pulls cannot read them.
//
// Rule: it is pure, and warns. The author of a MachineConfig may know why.
package readable
