package dockerconfig

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
)

// ReadFolder reads the secret in a folder; nil where there is no folder.
func ReadFolder(dir string) (*Store, error) {
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		return nil, nil //nolint:nilnil // anonymous is no error, and nothing to read
	}
	secret := &corev1.Secret{Type: corev1.SecretTypeDockerConfigJson, Data: map[string][]byte{}}
	secret.Name = "of the registries"
	for key, kind := range map[string]corev1.SecretType{
		corev1.DockerConfigKey:     corev1.SecretTypeDockercfg,
		corev1.DockerConfigJsonKey: corev1.SecretTypeDockerConfigJson,
	} {
		switch content, err := os.ReadFile(filepath.Join(dir, key)); { //nolint:gosec // the path or index is the program's own
		case errors.Is(err, fs.ErrNotExist):
		case err != nil:
			return nil, fmt.Errorf("reading the credentials: %w", err)
		default:
			secret.Data[key], secret.Type = content, kind
		}
	}
	return Parse(secret)
}
