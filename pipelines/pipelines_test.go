package pipelines

import (
	"time"

	"knative.dev/pkg/apis"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/builder/backend"
	"github.com/layerwright/layerwright/builder/buildertest"
	"github.com/layerwright/layerwright/builder/pods"
)

const (
	namespace = "layerwright"
	buildName = "worker-0123456789abcdef0123456789abcdef"
	image     = "ghcr.io/layerwright/layerwright-builder:v1"
	target    = "registry.example.com/os/worker:content-1"
	digest    = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
	pushed    = "registry.example.com/os/worker@" + digest
)

var (
	key = backend.Key{Build: buildName, UID: "uid-1"}
	// t0 is when the PipelineRun was made.
	t0 = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
)

func testOptions() *Options {
	return &Options{Namespace: namespace, Image: image, ServiceAccount: pods.DefaultAccount, UserNamespaces: pods.UserNamespacesAuto}
}

// asError is nil where there is none, which a *apis.FieldError in an interface is not.
func asError(err *apis.FieldError) error {
	if err == nil {
		return nil
	}
	return err
}

func plainSpec(architectures ...mcfgv1.Architecture) *backend.Spec {
	return buildertest.Spec(key, "worker", target, architectures...)
}

func fullSpec() *backend.Spec { return buildertest.FullSpec(key, "worker", target) }
