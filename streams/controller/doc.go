// Package controller keeps the OSImageStream, of which there is one: it asks the sources which
// streams there are, makes the object where they give any, and says in its status what pools can
// follow and what is wrong.
//
// Rule: reconciles are level-based. Each reads spec, ConfigMaps, release and registry anew (digests
// from a cache: what they stand for never changes), decides with the functions of package streams,
// and writes what differs. Streams that have been available stay as they were while a source that
// may have them cannot be read: no pool loses its operating system, or gets another one, by an
// outage or a typing error.
package controller
