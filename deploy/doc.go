// Package deploy holds the manifests that run Layerwright in a cluster, for the programs that write
// those of a release, and tests that keep them safe.
//
// base is what every cluster gets, without a namespace. overlays/kubernetes adds the namespace of
// plain Kubernetes; overlays/openshift fits base into the namespace and the conventions of
// OpenShift and OKD. Apply an overlay:
//
//	kubectl apply -k deploy/overlays/kubernetes
package deploy
