// Package position follows a build through its Containerfile by what Buildah says that it does. It
// knows the line of a failure, and how much is done.
package position
