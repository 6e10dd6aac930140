//go:build !client

package main

import (
	"errors"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/layerwright/layerwright/builder/pods"
	"github.com/layerwright/layerwright/builder/verification"
	"github.com/layerwright/layerwright/internal/metrics"
	"github.com/layerwright/layerwright/internal/testjobs"
	"github.com/layerwright/layerwright/pipelines"
)

// securityConstraints is the kind by which OpenShift gives pods a user.
var securityConstraints = schema.GroupKind{Group: "security.openshift.io", Kind: "SecurityContextConstraints"}

// addVerifier adds what has administrators' tests run on images.
func addVerifier(options *controllerOptions) part {
	return func(manager ctrl.Manager) error {
		counted := metrics.NewVerifications()
		err := ctrlmetrics.Registry.Register(counted)
		var registered prometheus.AlreadyRegisteredError
		if errors.As(err, &registered) { // another manager in this process
			counted, _ = registered.ExistingCollector.(*metrics.Verifications)
		} else if err != nil {
			return fmt.Errorf("registering the metrics of verifications: %w", err)
		}
		assigned, err := usersAssigned(manager)
		if err != nil {
			return err
		}
		var runs verification.Pipelines
		if options.pipelines {
			tekton := newTekton(manager, options.namespace, testjobs.Component)
			if err := manager.Add(tekton); err != nil {
				return err
			}
			core, err := corev1client.NewForConfigAndClient(manager.GetConfig(), manager.GetHTTPClient())
			if err != nil {
				return fmt.Errorf("making a client for the logs of tests: %w", err)
			}
			runs = pipelines.NewTests(pipelines.TestOptions{
				Namespace: options.namespace, Component: testjobs.Component, Client: manager.GetClient(), Reader: manager.GetAPIReader(),
				Presence: tekton, Ends: pods.NewEnds(core),
			})
		}
		return verification.New(verification.Options{
			Namespace:     options.namespace,
			Pipelines:     runs,
			Signed:        options.signing.isOn(),
			SigningSecret: options.signing.secret,
			UsersAssigned: assigned,
			Metrics:       counted,
		}).SetupWithManager(manager)
	}
}

// usersAssigned reports whether the cluster gives pods a user.
func usersAssigned(manager ctrl.Manager) (bool, error) {
	_, err := manager.GetRESTMapper().RESTMapping(securityConstraints)
	if err != nil && !meta.IsNoMatchError(err) {
		return false, fmt.Errorf("looking for %s: %w", securityConstraints, err)
	}
	return err == nil, nil
}
