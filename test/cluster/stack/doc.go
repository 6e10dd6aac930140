// Package stack puts a whole test cluster together and takes it apart: private
// network, control plane, nodes, name server, service proxy, registry, and the
// Layerwright controller on top.
//
// Up makes true what is not yet: it can be repeated at any time, also after it
// was killed. Down removes everything outside the cache folder. What a cluster
// is made of is kept in <cache>/clusters/<name>.
package stack
