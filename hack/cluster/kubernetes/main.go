// Command kubernetes is etcd, the Kubernetes components and kubectl in one
// executable that behaves as the component it is called by. One link of one
// package graph takes a third of the disk and of the build time that seven
// separate executables take, and the page cache holds it once.
//
// It is started through a symbolic link that carries a component's name
// (kube-apiserver, kubelet, ...), or with that name as the first argument.
package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	kubectlcli "k8s.io/kubectl/pkg/cmd"
	kubectlutil "k8s.io/kubectl/pkg/cmd/util"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	proxy "k8s.io/kubernetes/cmd/kube-proxy/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

// components maps the name of a component to its command.
var components = map[string]func() *cobra.Command{
	"kube-apiserver":          apiserver.NewAPIServerCommand,
	"kube-controller-manager": controllermanager.NewControllerManagerCommand,
	"kube-proxy":              proxy.NewProxyCommand,
	"kube-scheduler":          func() *cobra.Command { return scheduler.NewSchedulerCommand() },
	"kubelet":                 func() *cobra.Command { return kubelet.NewKubeletCommand(context.Background()) },
}

func main() {
	args := os.Args
	name := filepath.Base(args[0])
	if !known(name) && len(args) > 1 {
		args = args[1:]
		name = args[0]
	}
	switch {
	case name == "etcd":
		etcdmain.Main(args)
	case name == "kubectl":
		os.Args = args // kubectl looks for plugins by its own arguments
		kubectl := kubectlcli.NewDefaultKubectlCommand()
		if err := cli.RunNoErrOutput(kubectl); err != nil {
			kubectlutil.CheckErr(err)
		}
	case components[name] != nil:
		command := components[name]()
		command.SetArgs(args[1:])
		os.Exit(cli.Run(command))
	default:
		fmt.Fprintf(os.Stderr, "%s: no such component; known: %s\n", name, strings.Join(names(), ", "))
		os.Exit(2)
	}
}

func known(name string) bool { return slices.Contains(names(), name) }

func names() []string {
	all := []string{"etcd", "kubectl"}
	for name := range components {
		all = append(all, name)
	}
	slices.Sort(all)
	return all
}
