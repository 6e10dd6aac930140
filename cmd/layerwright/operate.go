package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/cmd/layerwright/survey"
)

// clusterFlags say which cluster a command is about, as those of kubectl do.
type clusterFlags struct{ *genericclioptions.ConfigFlags }

// newClusterFlags adds the flags of kubectl to a command. The namespace is that of Layerwright, not
// the one of the kubeconfig.
func newClusterFlags(cmd *cobra.Command) clusterFlags {
	f := clusterFlags{genericclioptions.NewConfigFlags(true)}
	*f.Namespace = "layerwright"
	flags := cmd.Flags()
	f.AddFlags(flags)
	flags.Lookup("namespace").Usage = "namespace of Layerwright; on OpenShift openshift-machine-config-operator"
	for _, hidden := range []string{
		"as", "as-group", "as-uid", "as-user-extra", "cache-dir", "certificate-authority", "client-certificate", "client-key", "cluster",
		"disable-compression", "insecure-skip-tls-verify", "server", "tls-server-name", "token", "user",
	} {
		flags.Lookup(hidden).Hidden = true
	}
	return f
}

// config finds the cluster.
func (f clusterFlags) config() (*rest.Config, error) {
	config, err := f.ToRESTConfig()
	if err != nil {
		return nil, fmt.Errorf("kubeconfig: %w", err)
	}
	if config.Host == clientcmd.ClusterDefaults.Server && *f.APIServer == "" { // kubectl would ask this machine
		return nil, errors.New("no cluster: name a kubeconfig with --kubeconfig or KUBECONFIG")
	}
	config.QPS = -1 // the API server's priority and fairness limits us, not a guess made here
	return config, nil
}

// client reads and changes the kinds of a survey.
func (f clusterFlags) client() (client.Client, error) {
	config, err := f.config()
	if err != nil {
		return nil, err
	}
	scheme, err := survey.Scheme()
	if err != nil {
		return nil, err
	}
	return client.New(config, client.Options{Scheme: scheme, Mapper: survey.Mapper()})
}

// completePools are the names of pools, for shells.
func (f clusterFlags) completePools(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	from, err := f.client()
	if err != nil || len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var pools mcfgv1.MachineConfigPoolList
	_ = from.List(cmd.Context(), &pools) // a shell shows no errors
	return poolNames(pools.Items), cobra.ShellCompDirectiveNoFileComp
}
