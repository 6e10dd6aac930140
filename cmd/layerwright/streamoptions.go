//go:build !client

package main

import (
	"fmt"
	"strings"

	"github.com/google/go-containerregistry/pkg/authn"
	"k8s.io/apimachinery/pkg/types"

	"github.com/layerwright/layerwright/internal/registry"
	"github.com/layerwright/layerwright/internal/registry/mirrors"
	streamcontroller "github.com/layerwright/layerwright/streams/controller"
	"github.com/layerwright/layerwright/streams/source"
)

// streams are the settings of the streams' reconciler.
func (o *controllerOptions) streams() streamcontroller.Options {
	transport := o.registryTransport()
	return streamcontroller.Options{
		Namespace:      o.namespace,
		ReleaseVersion: o.releaseVersion,
		ReleaseImage:   o.releaseImage,
		PullSecret:     o.pullSecret(),
		Distribution:   distributionOf(o.osDistribution),
		Connect: func(keychain authn.Keychain, table mirrors.Table) source.Registry {
			if keychain == nil {
				keychain = registry.NoSecret(fmt.Sprintf("--stream-pull-secret (there is no secret %q)", o.pullSecret()))
			}
			return o.registryClient(keychain, transport).Through(table)
		},
		Reader:  source.NewReader(source.Options{CacheDir: o.streamCacheDir, TagInterval: o.streamTagInterval, InWork: o.inWork}),
		Recheck: o.streamTagInterval,
	}
}

// pullSecret is that of streams; without a namespace it lies in the controller's.
func (o *controllerOptions) pullSecret() types.NamespacedName {
	if namespace, name, found := strings.Cut(o.streamPullSecret, "/"); found {
		return types.NamespacedName{Namespace: namespace, Name: name}
	}
	return types.NamespacedName{Namespace: o.namespace, Name: o.streamPullSecret}
}
