// Command layerwright-builder is what runs in build pods: fetch, build and push of an image, one
// step in each container.
//
// It is the only program that links Buildah, and for that it needs cgo and build tags; "make
// bin/layerwright-builder" knows them. Without them there is a program that says so.
//
// Exit codes: 0 success, 42 a failure that the same inputs meet again, 43 one that another attempt
// may not meet, 2 the command line was wrong. The report says more (builder/backend).
package main
