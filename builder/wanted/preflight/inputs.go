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

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/builder/backend"
	"github.com/layerwright/layerwright/builder/plan"
	"github.com/layerwright/layerwright/builder/wanted/recipe"
	"github.com/layerwright/layerwright/containerfiles"
	"github.com/layerwright/layerwright/internal/fault"
	"github.com/layerwright/layerwright/internal/registry/credentials"
)

// recheck is when something that is missing in the cluster is looked for again.
const recheck = credentials.Recheck

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

// BuildInputs finds the optional objects for a pool.
func (c *Checker) BuildInputs(ctx context.Context, pool string) (recipe.BuildInputs, error) {
	var found recipe.BuildInputs
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
