//go:build !client

package main

import (
	"errors"
	"fmt"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client/config"
)

// restConfig finds the cluster, in the order of controller-runtime; the flag comes first, and is
// handled here because controller-runtime keeps its own in a global variable.
func restConfig(kubeconfig string) (*rest.Config, error) {
	if kubeconfig == "" {
		found, err := config.GetConfig()
		if clientcmd.IsEmptyConfig(err) {
			return nil, errors.New("no kubeconfig and no pod's service account: pass --kubeconfig or set KUBECONFIG")
		}
		return found, err
	}
	rules := &clientcmd.ClientConfigLoadingRules{ExplicitPath: kubeconfig}
	loaded, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{}).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("--kubeconfig: %w", err)
	}
	loaded.QPS = -1 // the API server's priority and fairness limits us, not a guess made here
	return loaded, nil
}
