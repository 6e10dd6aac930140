// Package version says which build of Layerwright is running.
//
// A release build sets Version and Revision with the linker; any other build is described by what
// the Go tool recorded in the binary, so that no build is ever anonymous. The package imports
// nothing of ours and reads nothing but its own binary.
package version
