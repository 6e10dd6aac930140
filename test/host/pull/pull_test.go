//go:build containers_image_openpgp

package pull

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.podman.io/image/v5/signature"
)

// TestADefaultThatAcceptsAnythingIsRefused is about a policy that says enough of the image, as real
// hosts refuse it all the same.
func TestADefaultThatAcceptsAnythingIsRefused(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		policy string
		want   bool
	}{
		"accepts anything":   {`{"default":[{"type":"insecureAcceptAnything"}],"transports":{"docker":{"a.test":[{"type":"reject"}]}}}`, true},
		"rejects":            {`{"default":[{"type":"reject"}]}`, false},
		"asks for something": {`{"default":[{"type":"insecureAcceptAnything"},{"type":"reject"}]}`, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			policy, err := signature.NewPolicyFromBytes([]byte(tt.policy))
			require.NoError(t, err)
			p := &Puller{}
			p.isOpen, err = acceptsAnything(policy.Default)
			require.NoError(t, err)
			require.Equal(t, tt.want, p.isOpen)
			if tt.want {
				require.ErrorContains(t, p.RequireSignatures(), "refusing usage")
			}
		})
	}
}
