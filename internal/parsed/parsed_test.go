package parsed_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/layerwright/layerwright/internal/parsed"
)

func TestAValueIsMadeOnceOfEachVersion(t *testing.T) {
	t.Parallel()
	var value parsed.Value[string]
	made := 0
	of := func(object *corev1.Secret, content string, problem error) (string, error) {
		return value.Of(object, func() (string, error) {
			made++
			return content, problem
		})
	}
	secret := &corev1.Secret{}
	secret.UID, secret.ResourceVersion = "a", "1"
	for range 2 {
		got, err := of(secret, "one", nil)
		require.NoError(t, err)
		assert.Equal(t, "one", got)
	}
	assert.Equal(t, 1, made)

	secret.ResourceVersion = "2"
	broken := errors.New("broken")
	for range 2 {
		_, err := of(secret, "", broken)
		require.ErrorIs(t, err, broken, "that it is none is kept too")
	}
	assert.Equal(t, 2, made)

	secret.UID = "b" // deleted and made again
	got, err := of(secret, "three", nil)
	require.NoError(t, err)
	assert.Equal(t, "three", got)
	assert.Equal(t, 3, made)
}
