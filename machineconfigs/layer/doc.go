// Package layer says what a rendered configuration means for an image: which part of it becomes one
// layer over the image below, and which part only a node can apply.
//
// [Split] goes through the whole configuration and puts every item of it into exactly one of two
// lists: [Plan.Items], what the image gets, and [Plan.NodeState], what the node agent applies, each
// with the reason. [Plan.Build] then makes the layer, a tar archive with the same bytes wherever
// and whenever it is made.
//
// Rule: pure. The layer depends on the configuration, on the index of the image below and on the
// bytes that [Plan.Remote] and [Plan.Wanted] name, and on nothing else. Nothing is dropped, nothing
// secret that belongs to nodes gets into an image, and no entry of the layer goes through a
// symbolic link of the image below, or turns one into a directory.
package layer
