// Package controlplane runs etcd, kube-apiserver, kube-controller-manager and,
// where there are nodes, kube-scheduler as processes of this machine. It needs
// no privileges by itself: alone it is the rootless test tier, inside a network
// namespace it is the control plane of a whole cluster.
package controlplane
