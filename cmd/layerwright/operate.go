package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/cmd/layerwright/survey"
	"github.com/layerwright/layerwright/internal/command"
)

// clusterFlags say which cluster a command is about, as those of kubectl do. They are client-go's:
// those of cli-runtime bring kustomize, which is two MB of this program.
type clusterFlags struct {
	loader clientcmd.ClientConfig
	// Namespace is that of Layerwright, and not the one of the kubeconfig.
	Namespace *string
}

// newClusterFlags adds the flags of kubectl to a command.
func newClusterFlags(cmd *cobra.Command) clusterFlags {
	rules, overrides := clientcmd.NewDefaultClientConfigLoadingRules(), &clientcmd.ConfigOverrides{}
	flags, namespace := cmd.Flags(), "layerwright"
	flags.StringVar(&rules.ExplicitPath, "kubeconfig", "", "kubeconfig of the cluster (default: $KUBECONFIG, then ~/.kube/config)")
	flags.StringVarP(&namespace, "namespace", "n", namespace, "namespace of Layerwright; on OpenShift openshift-machine-config-operator")
	names := clientcmd.RecommendedConfigOverrideFlags("")
	names.ContextOverrideFlags.Namespace.LongName = "" // is the flag above
	clientcmd.BindOverrideFlags(overrides, flags, names)
	flags.VisitAll(func(f *pflag.Flag) {
		if slices.Contains(hiddenFlags, f.Name) {
			f.Hidden = true
		}
	})
	return clusterFlags{clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, overrides), &namespace}
}

// hiddenFlags are those of kubectl that few need.
var hiddenFlags = []string{
	"as", "as-group", "as-uid", "as-user-extra", "certificate-authority", "client-certificate", "client-key", "cluster", "disable-compression",
	"insecure-skip-tls-verify", "password", "proxy-url", "server", "tls-server-name", "token", "user", "username",
}

// config finds the cluster.
func (f clusterFlags) config() (*rest.Config, error) {
	config, err := f.loader.ClientConfig()
	if clientcmd.IsEmptyConfig(err) {
		return nil, errors.New("no cluster: name a kubeconfig with --kubeconfig or KUBECONFIG")
	}
	if err != nil {
		return nil, fmt.Errorf("kubeconfig: %w", err)
	}
	config.QPS = -1 // the API server's priority and fairness limits us, not a guess made here
	return config, nil
}

// answerPatience is how long one answer of the API server may take. Lists come in pages.
const answerPatience = time.Minute

// impatient is a configuration for all but what is followed: with --request-timeout, or else one
// with which no command waits forever for an API server that has stopped answering.
func (f clusterFlags) impatient() (*rest.Config, error) {
	config, err := f.config()
	if err == nil && config.Timeout == 0 {
		config.Timeout = answerPatience
	}
	return config, err
}

// client reads and changes the kinds of a survey.
func (f clusterFlags) client() (client.Client, error) {
	config, err := f.impatient()
	if err != nil {
		return nil, err
	}
	scheme, err := survey.Scheme()
	if err != nil {
		return nil, err
	}
	return client.New(config, client.Options{Scheme: scheme, Mapper: survey.Mapper()})
}

// nodeColumns has the API server print the Nodes.
func (f clusterFlags) nodeColumns() (survey.Columns, error) {
	config, err := f.impatient()
	if err != nil {
		return nil, err
	}
	config.NegotiatedSerializer = serializer.NewCodecFactory(runtime.NewScheme()).WithoutConversion()
	from, err := rest.UnversionedRESTClientFor(config)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) (*metav1.Table, error) {
		text, err := from.Get().AbsPath("/api/v1/nodes").Param("includeObject", string(metav1.IncludeNone)).
			SetHeader("Accept", "application/json;as=Table;g=meta.k8s.io;v=v1").Do(ctx).Raw()
		if err != nil {
			return nil, err
		}
		table := &metav1.Table{}
		return table, json.Unmarshal(text, table)
	}, nil
}

// run does the work of a command in the cluster.
func (f clusterFlags) run(work func(client.Client) error) error {
	c, err := f.client()
	if err == nil {
		err = work(c)
	}
	return failed(err)
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

// completeChoices has shells complete the words of all flags that take one of a few.
func completeChoices(cmd *cobra.Command) {
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if choice, is := f.Value.(*command.Choice); is {
			_ = cmd.RegisterFlagCompletionFunc(f.Name, cobra.FixedCompletions(choice.Allowed, cobra.ShellCompDirectiveNoFileComp)) // the flag is there
		}
	})
	for _, sub := range cmd.Commands() {
		completeChoices(sub)
	}
}
