//go:build cgo && containers_image_openpgp && exclude_graphdriver_btrfs

package engine

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"go.podman.io/image/v5/docker/reference"
	corev1 "k8s.io/api/core/v1"

	"github.com/layerwright/layerwright/internal/registry/credentials"
)

// readCredentials reads the secret in a folder; nil where there is no folder.
func readCredentials(dir string) (*credentials.Store, error) {
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		return nil, nil //nolint:nilnil // anonymous is no error, and nothing to read
	}
	secret := &corev1.Secret{Type: corev1.SecretTypeDockerConfigJson, Data: map[string][]byte{}}
	secret.Name = "of the registries"
	for key, kind := range map[string]corev1.SecretType{
		corev1.DockerConfigKey:     corev1.SecretTypeDockercfg,
		corev1.DockerConfigJsonKey: corev1.SecretTypeDockerConfigJson,
	} {
		switch content, err := os.ReadFile(filepath.Join(dir, key)); {
		case errors.Is(err, fs.ErrNotExist):
		case err != nil:
			return nil, fmt.Errorf("reading the credentials: %w", err)
		default:
			secret.Data[key], secret.Type = content, kind
		}
	}
	return credentials.Parse(secret)
}

// authFile is the file of credentials for these repositories, as containers/image reads it: an entry for each repository, found by the
// kubelet's rules, so that a login is sent to no other place than the secret says.
func authFile(store *credentials.Store, repositories []reference.Named) ([]byte, error) {
	type login struct {
		Auth          string `json:"auth,omitempty"`
		IdentityToken string `json:"identitytoken,omitempty"`
	}
	logins := map[string]login{}
	for _, repository := range repositories {
		if store == nil {
			break
		}
		resource, err := name.NewRepository(repository.Name())
		if err != nil {
			return nil, fmt.Errorf("reading the name of repository %q: %w", repository.Name(), err)
		}
		found, err := store.Resolve(resource)
		if err != nil {
			return nil, fmt.Errorf("looking for credentials for %q: %w", repository.Name(), err)
		}
		if found == authn.Anonymous {
			continue
		}
		config, err := found.Authorization()
		if err != nil {
			return nil, fmt.Errorf("reading the credentials for %q: %w", repository.Name(), err)
		}
		logins[repository.Name()] = login{
			Auth:          base64.StdEncoding.EncodeToString([]byte(config.Username + ":" + config.Password)),
			IdentityToken: config.IdentityToken,
		}
	}
	return json.Marshal(map[string]any{"auths": logins})
}
