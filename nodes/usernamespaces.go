package nodes

import corev1 "k8s.io/api/core/v1"

// OffersUserNamespaces reports whether the node's kubelet, kernel and default runtime support user
// namespaces.
func OffersUserNamespaces(node *corev1.Node) bool {
	for _, handler := range node.Status.RuntimeHandlers {
		if handler.Name == "" {
			return handler.Features != nil && handler.Features.UserNamespaces != nil && *handler.Features.UserNamespaces
		}
	}
	return false
}
