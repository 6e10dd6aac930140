package dockerconfig

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/internal/fault"
)

// Recheck is when a secret that is missing or can't be used is looked at again. Secrets are not
// watched: that would take the right to list all of the namespace.
const Recheck = 15 * time.Second

// Error says why a secret can't be used, and what to do about it. It never holds a credential.
type Error struct {
	// Namespace and Secret name the secret.
	Namespace, Secret string
	// Key is the key in its data, empty where the secret as a whole is at fault.
	Key string
	// Server is the entry, as it is spelled in the secret; empty where it is not about one.
	Server string
	// Problem is what is wrong, and Fix what helps.
	Problem, Fix string
}

// Error names the secret, the key and the server, and ends with the fix.
func (e *Error) Error() string {
	text := &strings.Builder{}
	fmt.Fprintf(text, "reading registry secret %q", e.Namespace+"/"+e.Secret)
	if e.Key != "" {
		fmt.Fprintf(text, ", key %q", e.Key)
	}
	if e.Server != "" {
		fmt.Fprintf(text, ", server %q", e.Server)
	}
	fmt.Fprintf(text, ": %s; %s", e.Problem, e.Fix)
	return text.String()
}

// problem is what a parser finds; it does not know the secret.
type problem struct{ server, what, fix string }

func (p *problem) Error() string { return p.what + "; " + p.fix }

// in makes the problem of a parser an error about a secret. Someone else has to change the secret,
// so it is Waiting.
func (p *problem) in(secret *corev1.Secret, key string) error {
	return fault.NewWaiting(mcfgv1.ReasonWaitingForSecret, Recheck, &Error{
		Namespace: secret.Namespace, Secret: secret.Name, Key: key, Server: p.server, Problem: p.what, Fix: p.fix,
	})
}

// What helps.
const (
	fixType   = "make it with `kubectl create secret docker-registry`, or with --type=kubernetes.io/dockerconfigjson and the key \".dockerconfigjson\""
	fixFormat = "create it again with `kubectl create secret docker-registry`, or from a file that `podman login --authfile` wrote"
	fixEntry  = "give it \"auth\" (the base64 of name:password) or \"username\" and \"password\", or remove the server"
	fixOne    = "keep only one of the two"
)
