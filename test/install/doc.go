// Package install puts the kinds and the admission policies of deploy/ into a control plane, for
// tests that need them:
//
//	config := clustertest.ControlPlane(t)
//	install.Kinds(t, config)
//
// It applies the files as they are shipped, and returns when the API server serves them.
package install
