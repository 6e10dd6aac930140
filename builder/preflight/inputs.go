package preflight

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/builder/backend"
	"github.com/layerwright/layerwright/builder/plan"
	"github.com/layerwright/layerwright/containerfiles"
	"github.com/layerwright/layerwright/internal/fault"
	"github.com/layerwright/layerwright/internal/names"
	"github.com/layerwright/layerwright/internal/registry"
	"github.com/layerwright/layerwright/internal/registry/credentials"
)

// recheck is when something that is missing in the cluster is looked for again. Secrets are not watched: that would take the right to list
// all of the namespace.
const recheck = 15 * time.Second

// Credentials are clients for registries that log in with the secrets of a MachineOSConfig.
type Credentials struct {
	// Pull reads images, and Push writes the result; nil where the secret can't be used.
	Pull, Push *registry.Client
	// PullSecret is the name of the secret for reading; empty where images are read anonymously.
	PullSecret string
	// Access identifies the secrets with their versions.
	Access string
}

// Credentials reads the secrets. What can be used is returned beside the error.
func (c *Checker) Credentials(ctx context.Context, config *mcfgv1.MachineOSConfig) (Credentials, error) {
	pullName := ""
	if config.Spec.BaseImagePullSecret != nil {
		pullName = config.Spec.BaseImagePullSecret.Name
	}
	return c.CredentialsOf(ctx, config.Spec.RenderedImagePushSecret.Name, pullName)
}

// Access identifies the secrets of a MachineOSConfig with their versions, as Credentials does. It asks
// no registry.
func (c *Checker) Access(ctx context.Context, config *mcfgv1.MachineOSConfig) string {
	found, _ := c.Credentials(ctx, config) // what is missing is a version too
	return found.Access
}

// CredentialsOf reads the secrets of the given names. Without a name for pulling, it is the cluster's global pull secret where there is one.
func (c *Checker) CredentialsOf(ctx context.Context, pushName, pullName string) (Credentials, error) {
	var out Credentials
	var errs []error
	identity := sha256.New()
	keychain := func(field, name string) authn.Keychain {
		store, version, err := c.secret(ctx, name)
		_, _ = fmt.Fprintf(identity, "%s\n", version)
		if err != nil {
			errs = append(errs, about(field, err))
			return nil
		}
		return store
	}
	if store := keychain("spec.renderedImagePushSecret", pushName); store != nil {
		out.Push = c.options.Connect(store)
	}
	if pullName == "" {
		store, version, err := c.secret(ctx, names.GlobalPullSecret)
		_, _ = fmt.Fprintf(identity, "%s\n", version)
		switch {
		case apierrors.IsNotFound(err):
			out.Pull = c.options.Connect(authn.NewMultiKeychain())
		case err != nil:
			errs = append(errs, err)
		default:
			out.Pull, out.PullSecret = c.options.Connect(store), names.GlobalPullSecret
		}
	} else if store := keychain("spec.baseImagePullSecret", pullName); store != nil {
		out.Pull, out.PullSecret = c.options.Connect(store), pullName
	}
	out.Access = hex.EncodeToString(identity.Sum(nil))[:16]
	return out, fault.Join(errs...)
}

// Reader is a client that reads images with the secrets of the given names: the first of them that knows the registry, then the cluster's global
// pull secret where there is one, and else anonymously.
func (c *Checker) Reader(ctx context.Context, secrets ...string) (*registry.Client, error) {
	var chain []authn.Keychain
	for _, name := range append(secrets, names.GlobalPullSecret) {
		store, _, err := c.secret(ctx, name)
		if name == names.GlobalPullSecret && apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return nil, err
		}
		chain = append(chain, store)
	}
	return c.options.Connect(authn.NewMultiKeychain(chain...)), nil
}

// secret reads one secret, and says which version of it that is.
func (c *Checker) secret(ctx context.Context, name string) (authn.Keychain, string, error) {
	secret := &corev1.Secret{}
	err := c.options.Reader.Get(ctx, client.ObjectKey{Namespace: c.options.Namespace, Name: name}, secret)
	if apierrors.IsNotFound(err) {
		return nil, "", fault.NewWaiting(mcfgv1.ReasonWaitingForSecret, recheck, &missingError{
			what: fmt.Sprintf("the secret %q does not exist in namespace %q; create it with `kubectl create secret docker-registry`, or correct the name", name, c.options.Namespace),
			err:  err,
		})
	}
	if err != nil {
		return nil, "", fmt.Errorf("reading secret %q: %w", name, err)
	}
	version := fmt.Sprintf("%s/%s/%s", name, secret.UID, secret.ResourceVersion)
	store, err := credentials.Parse(secret)
	if err != nil {
		return nil, version, err
	}
	return store, version, nil
}

// missingError is that something is not there.
type missingError struct {
	what string
	err  error
}

// Error says what, and what helps.
func (e *missingError) Error() string { return e.what }

// Unwrap is the API server's answer.
func (e *missingError) Unwrap() error { return e.err }

// Sources reads the Containerfiles of a MachineOSConfig, and the ConfigMaps that some are in.
func (c *Checker) Sources(ctx context.Context, config *mcfgv1.MachineOSConfig) ([]containerfiles.Source, error) {
	configMaps := map[string]containerfiles.ConfigMap{}
	for _, entry := range config.Spec.Containerfile {
		if entry.ConfigMapRef == nil {
			continue
		}
		found := &corev1.ConfigMap{}
		err := c.options.Reader.Get(ctx, client.ObjectKey{Namespace: c.options.Namespace, Name: entry.ConfigMapRef.Name}, found)
		if client.IgnoreNotFound(err) != nil {
			return nil, fmt.Errorf("reading ConfigMap %q: %w", entry.ConfigMapRef.Name, err)
		}
		if err == nil {
			configMaps[found.Name] = containerfiles.ConfigMap{Data: found.Data, BinaryData: found.BinaryData}
		}
	}
	sources, err := containerfiles.ResolveSources(config.Spec.Containerfile, configMaps)
	var missing *containerfiles.MissingError
	if errors.As(err, &missing) {
		return sources, fault.NewWaiting(mcfgv1.ReasonWaitingForConfigMap, recheck, fmt.Errorf("%w; create it in namespace %q", err, c.options.Namespace))
	}
	if err != nil {
		return sources, fault.NewTerminal(mcfgv1.ReasonInvalidContainerfile, err)
	}
	return sources, nil
}

// BuildInputs are the optional objects that RUN lines can use, as far as they are there: published names, in the controller's namespace.
type BuildInputs struct {
	// Inputs are for the backend, and Items for the keys: a build with other certificates or repositories is another build.
	Inputs []backend.Input
	Items  []plan.Item
}

// BuildInputs finds the optional objects for a pool.
func (c *Checker) BuildInputs(ctx context.Context, pool string) (BuildInputs, error) {
	var found BuildInputs
	for _, wanted := range []struct {
		input  backend.Input
		object client.Object
		data   func(client.Object) map[string][]byte
	}{
		{backend.Input{Name: backend.InputEntitlement, Secret: backend.InputEntitlement + "-" + pool}, &corev1.Secret{}, secretData},
		{backend.Input{Name: backend.InputYumRepos, ConfigMap: backend.InputYumRepos}, &corev1.ConfigMap{}, configMapData},
		{backend.Input{Name: backend.InputRPMKeys, Secret: backend.InputRPMKeys}, &corev1.Secret{}, secretData},
	} {
		object := cmp.Or(wanted.input.Secret, wanted.input.ConfigMap)
		err := c.options.Reader.Get(ctx, client.ObjectKey{Namespace: c.options.Namespace, Name: object}, wanted.object)
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return found, fmt.Errorf("reading the build input %q: %w", object, err)
		}
		found.Inputs = append(found.Inputs, wanted.input)
		found.Items = append(found.Items, plan.Item{Name: "build input " + wanted.input.Name, Hash: hashOf(wanted.data(wanted.object))})
	}
	return found, nil
}

func secretData(object client.Object) map[string][]byte {
	secret, _ := object.(*corev1.Secret)
	return secret.Data
}

func configMapData(object client.Object) map[string][]byte {
	configMap, _ := object.(*corev1.ConfigMap)
	data := maps.Clone(configMap.BinaryData)
	for key, value := range configMap.Data {
		if data == nil {
			data = map[string][]byte{}
		}
		data[key] = []byte(value)
	}
	return data
}

// hashOf is over keys and values, each with its length.
func hashOf(data map[string][]byte) string {
	hash := sha256.New()
	for _, key := range slices.Sorted(maps.Keys(data)) {
		_, _ = fmt.Fprintf(hash, "%d %s %d ", len(key), key, len(data[key]))
		_, _ = hash.Write(data[key])
	}
	return hex.EncodeToString(hash.Sum(nil))
}

// Repository is the repository of a push spec: its tag is not used.
func Repository(pushSpec mcfgv1.ImageTagFormat) (string, error) {
	text := string(pushSpec)
	repository := text
	if colon := strings.LastIndex(text, ":"); colon > strings.LastIndex(text, "/") {
		repository = text[:colon]
	}
	if _, err := name.NewRepository(repository); err != nil {
		return "", fault.NewTerminal(mcfgv1.ReasonInvalid, about("spec.renderedImagePushSpec", err))
	}
	return repository, nil
}
