// Package wire is how requests to registries are made: to which hosts, how much is read of an
// answer, when a registry is left alone, and what is counted.
//
// Rule: each rule is a decorator of http.RoundTripper and knows nothing of images. No request
// leaves for a host that a registry may not point to.
package wire
