// Command apidocs writes the API reference, docs/api.md, from CustomResourceDefinitions: what it
// says is what the API server checks.
//
//	apidocs -o docs/api.md deploy/crds/*_*.yaml
package main
