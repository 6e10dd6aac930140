package pods

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/layerwright/layerwright/builder/backend"
	"github.com/layerwright/layerwright/nodes"
)

// UserNamespaces is whether builds have user namespaces of their own.
type UserNamespaces string

const (
	// UserNamespacesAuto gives a build one where every node that it can run on offers them.
	UserNamespacesAuto UserNamespaces = "Auto"
	// UserNamespacesAlways gives every build one. On a node that offers none it does not run, and
	// says so.
	UserNamespacesAlways UserNamespaces = "Always"
	// UserNamespacesNever gives none, for clusters whose nodes promise them and can't keep it.
	UserNamespacesNever UserNamespaces = "Never"
)

// Isolation is how far the containers of a build are kept from their node, and why not further.
type Isolation struct {
	Kind backend.Isolation
	Why  string
}

// String says it for people.
func (i Isolation) String() string {
	if i.Why == "" {
		return string(i.Kind)
	}
	return fmt.Sprintf("%s (%s)", i.Kind, i.Why)
}

// ChooseIsolation is the strongest isolation that every node offers which the build can run on.
func ChooseIsolation(setting UserNamespaces, all []corev1.Node, selector map[string]string) Isolation {
	switch setting {
	case UserNamespacesAlways:
		return Isolation{Kind: backend.IsolationUserNamespace}
	case UserNamespacesNever:
		return Isolation{Kind: backend.IsolationCapabilities, Why: "user namespaces are turned off"}
	case UserNamespacesAuto:
	}
	wanted, candidates := labels.SelectorFromSet(selector), 0
	for i := range all {
		if !wanted.Matches(labels.Set(all[i].Labels)) {
			continue
		}
		candidates++
		if !nodes.OffersUserNamespaces(&all[i]) {
			return Isolation{Kind: backend.IsolationCapabilities, Why: fmt.Sprintf("node %s does not offer user namespaces", all[i].Name)}
		}
	}
	if candidates == 0 {
		return Isolation{Kind: backend.IsolationCapabilities, Why: "no node that fits is there yet, so nothing is known of its user namespaces"}
	}
	return Isolation{Kind: backend.IsolationUserNamespace}
}

// Capabilities of the two rungs, as they were found by taking away until Buildah failed.
var (
	// ownNamespace are those that let a program make a user namespace with more than one user in
	// it.
	ownNamespace = []corev1.Capability{"SETFCAP", "SETGID", "SETUID"}
	// podNamespace are those of root in a container, of which RUN lines get all but the last, and
	// SYS_ADMIN for mounts. They are held in the pod's user namespace only.
	podNamespace = []corev1.Capability{
		"CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "NET_BIND_SERVICE", "SETFCAP", "SETGID", "SETPCAP", "SETUID", "SYS_CHROOT", "SYS_ADMIN",
	}
)

// SecurityContext is that of each of the containers. All three work on the same store, and see its
// files with the same users.
func (i Isolation) SecurityContext() *corev1.SecurityContext {
	seccomp, capabilities := corev1.SeccompProfileTypeUnconfined, ownNamespace
	if i.Kind == backend.IsolationUserNamespace {
		// With SYS_ADMIN runtimes' own profile allows mounting; without it, it allows neither that
		// nor another user namespace.
		seccomp, capabilities = corev1.SeccompProfileTypeRuntimeDefault, podNamespace
	}
	return &corev1.SecurityContext{
		RunAsUser: new(int64), RunAsGroup: new(int64), // root of its user namespace, or of one that Buildah makes
		Privileged:               new(bool),
		AllowPrivilegeEscalation: new(bool),
		ReadOnlyRootFilesystem:   new(true),
		Capabilities:             &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}, Add: capabilities},
		SeccompProfile:           &corev1.SeccompProfile{Type: seccomp},
		// Runtimes' own profile forbids every mount, and is in force wherever a node has AppArmor.
		AppArmorProfile: &corev1.AppArmorProfile{Type: corev1.AppArmorProfileTypeUnconfined},
	}
}
