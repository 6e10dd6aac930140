// Package engine tests layerwright-builder as build pods run it: three processes that share a
// folder, as root, with real overlay mounts and a real registry, and no cluster. It is built with
// the tag e2e.
package engine
