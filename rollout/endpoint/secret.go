package endpoint

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
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
		if err := reader.Get(ctx, client.ObjectKey{Namespace: namespace, Name: secret}, s); err != nil {
			return Address{}, fmt.Errorf("reading Secret %q: %w", secret, err)
		}
		text := func(key string) string { return strings.TrimSpace(string(s.Data[key])) }
		return Address{URL: text(keyURL), Token: text(keyToken), CA: s.Data[keyCA]}, nil
	}
}
