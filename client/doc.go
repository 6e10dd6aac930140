// Package client holds nothing itself. Below it lie, generated from the types in api: applyconfiguration, the arguments of server-side
// apply, and clientset, a typed client with a fake for tests. `make generate` writes both.
//
// Controllers of this project use controller-runtime's client; these are for other programs, and
// for the playground and tests of the API.
package client
