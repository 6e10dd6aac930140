// Package installpage reads the commands and files of docs/install.md, for tests that do what the
// page says.
//
// Rule: it changes nothing of them. What a test has to replace, such as the name of the registry,
// it says itself.
package installpage
