// Package recipe is what an image is made of, and says exactly which image that means: what is
// built, what the configuration layer is made of, which keys the image has, and what only a node
// can apply.
//
// Rule: it reads nothing but the base image that it is given. Images come as digests and indexes,
// ConfigMaps as texts. Controller and command line describe an image alike, and the same recipe
// gives the same description.
package recipe
