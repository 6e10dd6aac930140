package credentials

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/distribution/reference"
	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/internal/fault"
	"github.com/layerwright/layerwright/internal/names"
	"github.com/layerwright/layerwright/internal/registry"
	"github.com/layerwright/layerwright/internal/registry/dockerconfig"
	"github.com/layerwright/layerwright/internal/registry/mirrors"
)

// Recheck is when something that is missing in the cluster is looked for again.
const Recheck = dockerconfig.Recheck

// Source reads the secrets that MachineOSConfigs name.
type Source struct {
	// Reader should ask the API server, since a cache would hold all secrets.
	Reader client.Reader
	// Namespace is where they are.
	Namespace string
	// Connect makes a client for registries that logs in with the credentials.
	Connect func(authn.Keychain) *registry.Client
	// Mirrors say where images are read; nil reads them where their names say.
	Mirrors Mirrors
}

// Mirrors say where the images of a pool are read.
type Mirrors interface {
	Of(ctx context.Context, pool string) (mirrors.Table, error)
}

// Credentials are clients for registries that log in with the secrets of a MachineOSConfig.
type Credentials struct {
	// Pull reads images, in mirrors too, and Push writes the result; nil where the secret can't be
	// used.
	Pull, Push *registry.Client
	// PullSecret is the name of the secret for reading; empty where images are read anonymously.
	PullSecret string
	// Access identifies the secrets with their versions, and the mirrors.
	Access string
}

// Credentials reads the secrets. What can be used is returned beside the error.
func (s *Source) Credentials(ctx context.Context, config *mcfgv1.MachineOSConfig) (Credentials, error) {
	pullName := ""
	if config.Spec.BaseImagePullSecret != nil {
		pullName = config.Spec.BaseImagePullSecret.Name
	}
	out, err := s.CredentialsOf(ctx, config.Spec.RenderedImagePushSecret.Name, pullName)
	table, unread := s.mirrors(ctx, config.Spec.MachineConfigPool.Name)
	if unread != nil { // the source may be one that must not be asked
		out.Pull = nil
		return out, fault.Join(err, unread)
	}
	if version := table.Version(); version != "" {
		out.Access = shortened(sha256.Sum256([]byte(out.Access + version)))
	}
	if out.Pull != nil {
		out.Pull = out.Pull.Through(table)
	}
	return out, err
}

// mirrors are those that the images of a pool are read in.
func (s *Source) mirrors(ctx context.Context, pool string) (mirrors.Table, error) {
	if s.Mirrors == nil {
		return nil, nil
	}
	return s.Mirrors.Of(ctx, pool)
}

func shortened(sum [sha256.Size]byte) string { return hex.EncodeToString(sum[:])[:16] }

// Access identifies the secrets of a MachineOSConfig with their versions, as Credentials does. It
// asks no registry.
func (s *Source) Access(ctx context.Context, config *mcfgv1.MachineOSConfig) string {
	found, _ := s.Credentials(ctx, config) // what is missing is a version too
	return found.Access
}

// CredentialsOf reads the secrets of the given names, for no pool: mirrors don't count. Without a
// name for pulling, it is the cluster's global pull secret where there is one.
func (s *Source) CredentialsOf(ctx context.Context, pushName, pullName string) (Credentials, error) {
	var out Credentials
	var errs []error
	identity := sha256.New()
	keychain := func(field, name string) authn.Keychain {
		store, version, err := s.secret(ctx, name)
		_, _ = fmt.Fprintf(identity, "%s\n", version)
		if err != nil {
			errs = append(errs, about(field, err))
			return nil
		}
		return store
	}
	if store := keychain("spec.renderedImagePushSecret", pushName); store != nil {
		out.Push = s.Connect(store)
	}
	if pullName == "" {
		store, version, err := s.secret(ctx, names.GlobalPullSecret)
		_, _ = fmt.Fprintf(identity, "%s\n", version)
		switch {
		case apierrors.IsNotFound(err):
			out.Pull = s.Connect(registry.NoSecret("spec.baseImagePullSecret"))
		case err != nil:
			errs = append(errs, err)
		default:
			out.Pull, out.PullSecret = s.Connect(store), names.GlobalPullSecret
		}
	} else if store := keychain("spec.baseImagePullSecret", pullName); store != nil {
		out.Pull, out.PullSecret = s.Connect(store), pullName
	}
	out.Access = shortened([sha256.Size]byte(identity.Sum(nil)))
	return out, fault.Join(errs...)
}

// ReadWith is a client that reads images of a pool with the secrets of the given names: the first
// of them that knows the registry, then the cluster's global pull secret where there is one, and
// else anonymously.
func (s *Source) ReadWith(ctx context.Context, pool string, secrets ...string) (*registry.Client, error) {
	table, err := s.mirrors(ctx, pool)
	if err != nil {
		return nil, err
	}
	var chain []authn.Keychain
	for _, name := range append(secrets, names.GlobalPullSecret) {
		store, _, err := s.secret(ctx, name)
		if name == names.GlobalPullSecret && apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return nil, err
		}
		chain = append(chain, store)
	}
	if len(chain) == 0 {
		return s.Connect(registry.NoSecret("spec.currentImagePullSecret of the pool's MachineOSConfig")).Through(table), nil
	}
	return s.Connect(authn.NewMultiKeychain(chain...)).Through(table), nil
}

// secret reads one secret, and says which version of it that is.
func (s *Source) secret(ctx context.Context, name string) (authn.Keychain, string, error) {
	secret := &corev1.Secret{}
	err := s.Reader.Get(ctx, client.ObjectKey{Namespace: s.Namespace, Name: name}, secret)
	if apierrors.IsNotFound(err) {
		return nil, "", fault.NewWaiting(mcfgv1.ReasonWaitingForSecret, Recheck, &missingError{
			what: fmt.Sprintf("the secret %q does not exist in namespace %q; create it with `kubectl create secret docker-registry`, or correct the name", name, s.Namespace),
			err:  err,
		})
	}
	if err != nil {
		return nil, "", fmt.Errorf("reading secret %q: %w", name, err)
	}
	version := fmt.Sprintf("%s/%s/%s", name, secret.UID, secret.ResourceVersion)
	store, err := dockerconfig.Parse(secret)
	if err != nil {
		return nil, version, err
	}
	return store, version, nil
}

// missingError means that something is not there.
type missingError struct {
	what string
	err  error
}

// Error says what, and what helps.
func (e *missingError) Error() string { return e.what }

// Unwrap is the API server's answer.
func (e *missingError) Unwrap() error { return e.err }

// about says which field an error is about.
func about(field string, err error) error { return fmt.Errorf("%s: %w", field, err) }

// Repository is the repository of a push spec: its tag is not used. The published rule accepts
// names that no registry does.
func Repository(pushSpec mcfgv1.ImageTagFormat) (string, error) {
	text := string(pushSpec)
	repository := text
	if colon := strings.LastIndex(text, ":"); colon > strings.LastIndex(text, "/") {
		repository = text[:colon]
	}
	if _, err := name.NewRepository(repository); err != nil {
		return "", fault.NewTerminal(mcfgv1.ReasonInvalid, about("spec.renderedImagePushSpec", err))
	}
	if _, err := reference.WithName(repository); err != nil {
		return "", fault.NewTerminal(mcfgv1.ReasonInvalid, fmt.Errorf("spec.renderedImagePushSpec: no registry takes the name %q: "+
			"each part of its path has to be lowercase letters and digits, with '.', '_', '__' or '-' between them", repository))
	}
	return repository, nil
}
