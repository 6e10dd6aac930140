package pods

import (
	"cmp"
	"fmt"

	"k8s.io/utils/clock"
)

// Options are what a backend works with. Namespace and Image are required.
type Options struct {
	// Namespace is where builds run; it has their secrets.
	Namespace string
	// Image is that of the builder, whose program gets the name of a step as its argument.
	Image string
	// ServiceAccount is that of the pods, DefaultAccount where empty. It needs no rights, and its
	// token is not mounted.
	ServiceAccount string
	// PriorityClass is that of the pods; empty for the cluster's default.
	PriorityClass string
	// UserNamespaces is UserNamespacesAuto where empty.
	UserNamespaces UserNamespaces
	// Logs reads how far a step is; nil where no one needs to know.
	Logs Logs
	// Clock is the real one where nil.
	Clock clock.PassiveClock
}

// Complete has the defaults, and refuses what no backend, which builds with some objects, can use.
func (o Options) Complete(objects string) (Options, error) {
	if o.Namespace == "" || o.Image == "" {
		return o, fmt.Errorf("setting up %s: the namespace of builds, or the image of the builder, is not known", objects)
	}
	o.ServiceAccount = cmp.Or(o.ServiceAccount, DefaultAccount)
	switch o.UserNamespaces = cmp.Or(o.UserNamespaces, UserNamespacesAuto); o.UserNamespaces {
	case UserNamespacesAuto, UserNamespacesAlways, UserNamespacesNever:
	default:
		return o, fmt.Errorf("setting up %s: user namespaces can be %s, %s or %s, and not %q",
			objects, UserNamespacesAuto, UserNamespacesAlways, UserNamespacesNever, o.UserNamespaces)
	}
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	return o, nil
}
