//go:build cgo && containers_image_openpgp && exclude_graphdriver_btrfs

package engine

import (
	"encoding/base64"
	"encoding/json"
	"fmt"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"go.podman.io/image/v5/docker/reference"

	"github.com/layerwright/layerwright/internal/registry/dockerconfig"
)

// authFile is the file of credentials for these repositories, as containers/image reads it: an
// entry for each repository, found by the kubelet's rules, so that a login is sent to no other
// place than the secret says.
func authFile(store *dockerconfig.Store, repositories []reference.Named) ([]byte, error) {
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
