package endpoint

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Keys of a Secret with an address.
const (
	keyURL   = "url"
	keyToken = "token"
	keyCA    = "ca.crt"
)

// Secrets finds addresses in the Secrets of a namespace.
func Secrets(reader client.Reader, namespace string) Lookup {
	return func(ctx context.Context, secret string) (Address, error) {
		s := &corev1.Secret{}
		err := reader.Get(ctx, client.ObjectKey{Namespace: namespace, Name: secret}, s)
		text := func(key string) string { return strings.TrimSpace(string(s.Data[key])) }
		switch {
		case apierrors.IsNotFound(err):
			return Address{}, fmt.Errorf("Secret %q does not exist in namespace %q: create it with the key %s, or correct secretName", secret, namespace, keyURL) //nolint:staticcheck // a kind
		case err != nil:
			return Address{}, fmt.Errorf("reading Secret %q: %w", secret, err)
		case text(keyURL) == "":
			return Address{}, fmt.Errorf("Secret %q in namespace %q has no key %s: add the address", secret, namespace, keyURL) //nolint:staticcheck // a kind
		}
		return Address{URL: text(keyURL), Token: text(keyToken), CA: s.Data[keyCA]}, nil
	}
}
