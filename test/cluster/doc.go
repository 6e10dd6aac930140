// Command cluster runs a real Kubernetes cluster on one machine: etcd, the
// control plane, containerd, kubelets, a name server, a service proxy and an
// OCI registry, built from pinned sources into a cache folder, in a private
// network namespace. See docs/playground.md.
package main
