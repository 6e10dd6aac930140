// Package tekton installs Tekton Pipelines on a test cluster: its programs as images of their own,
// and the manifests of the module that they are compiled from, with these images in them.
package tekton
