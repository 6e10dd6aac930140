// Command load brings a release into a registry that has no way to the internet: images, and
// manifests that name them there. It comes with the bundle of a release and needs nothing else.
//
// It verifies checksums and signature first. It may be killed at any point and run again: what the
// registry has is not uploaded again, and manifests are written when all images are there.
//
// Exit codes: 0 success, 1 the work failed (one line on standard error says how), 2 the command
// line was wrong.
package main
