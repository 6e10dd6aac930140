// Package apitest is what tests share that have an API server in memory: the scheme, what a fake
// client leaves out of an API server, and the events that were sent.
//
// Rule: what only one kind of controller needs stays in its tests. The package is for tests only,
// so that no program links testing.
package apitest
