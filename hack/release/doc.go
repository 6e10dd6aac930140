// Command release makes and publishes releases; make release and make publish call it.
//
// check reports whether a release can be made, before programs are compiled for minutes. build
// takes programs that are compiled already and makes images, archives, manifests and the bundle for
// networks without internet of them, in a folder. publish pushes what is in that folder.
//
// Rule: what it makes depends on its inputs alone: the commit, the programs, the packages of Debian
// that are named in the provenance. No clock, no name of a machine or folder gets in, so that two
// runs give the same checksums. Signatures are not the same twice, and are the only exception.
package main
