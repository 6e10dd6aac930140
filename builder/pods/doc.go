// Package pods is what every backend needs of the pods that build images: what they mount and how
// far they are kept from their node, why one does not start, how far it is, how it ended, and what
// the architectures of a build make together.
//
// Rule: it knows pods and the ConfigMaps that they mount, and not what makes the pods. All but
// Cluster, GiveUp and Logs is pure.
package pods
