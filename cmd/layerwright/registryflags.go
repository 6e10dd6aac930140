package main

import (
	"github.com/spf13/pflag"

	"github.com/layerwright/layerwright/internal/registry"
)

// registryFlags say how registries are reached from this machine.
type registryFlags struct {
	authFile   string
	registryCA string
	plainHTTP  []string
}

func (f *registryFlags) add(flags *pflag.FlagSet) {
	flags.StringVar(&f.authFile, "authfile", "", "file with registry credentials, such as a pull secret (default: those of \"docker login\" or \"podman login\")")
	flags.StringVar(&f.registryCA, "registry-ca", "", "file with certificates (PEM) of registries that the system does not know")
	flags.StringSliceVar(&f.plainHTTP, plainHTTPFlag, nil, plainHTTPUsage)
}

// client reaches registries so.
func (f *registryFlags) client() (*registry.Client, error) {
	transport, err := trusting(f.registryCA)
	if err != nil {
		return nil, err
	}
	keychain, err := keychainOf(f.authFile)
	if err != nil {
		return nil, err
	}
	return registry.New(registry.Options{Keychain: registry.Logins{Keychain: keychain}, Transport: transport, PlainHTTP: f.plainHTTP}), nil
}
