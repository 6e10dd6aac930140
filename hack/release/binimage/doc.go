// Package binimage makes a container image of static programs, without Docker, a base image or a
// registry.
//
// The image holds the program, a passwd and a group file that name its unprivileged user, and on
// request a bundle of CA certificates; nothing else, so that nothing else can be attacked or go out
// of date. The same program gives the same digest on every machine and at any time. A program that
// needs a loader or C library is refused, because it could not start.
package binimage
