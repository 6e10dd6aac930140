// Package node runs a real Kubernetes node (containerd, runc, CNI bridge,
// kubelet) as processes of this machine. Everything that these would leave on
// the host is kept in a mount namespace, in the cluster's folder, or in the
// cluster's control groups, so that removing those three removes the node.
package node
