package main

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"path/filepath"

	"github.com/spf13/pflag"

	"github.com/layerwright/layerwright/internal/command"
)

// off is the bind address that turns a server off, as in controller-runtime.
const off = "0"

// Variables that our manifests set from the pod itself.
const (
	nodeNameEnv     = "NODE_NAME"
	podNamespaceEnv = "POD_NAMESPACE"
)

// defaultNamespace is where Layerwright lives where nothing else is said.
const defaultNamespace = "layerwright"

// defaultHostRoot is where our manifests mount the host's root.
const defaultHostRoot = "/host"

// options are the settings of the program.
type options struct {
	kubeconfig             string
	nodeName               string
	hostRoot               string
	namespace              string
	metricsBindAddress     string
	healthProbeBindAddress string
	log                    command.LogOptions
}

func defaultOptions() *options {
	return &options{
		hostRoot:           defaultHostRoot,
		metricsBindAddress: "127.0.0.1:9632", healthProbeBindAddress: "127.0.0.1:9633",
		log: command.DefaultLogOptions(),
	}
}

func (o *options) addFlags(flags *pflag.FlagSet) {
	flags.StringVar(&o.kubeconfig, "kubeconfig", o.kubeconfig,
		"file that says how to reach the cluster; without it the pod's service account")
	flags.StringVar(&o.nodeName, "node-name", o.nodeName,
		"node that this process runs on (default $"+nodeNameEnv+")")
	addHostRoot(flags, &o.hostRoot)
	flags.StringVar(&o.namespace, "namespace", o.namespace,
		"namespace of the pull secrets that MachineOSConfigs name (default $"+podNamespaceEnv+", then "+defaultNamespace+")")
	flags.StringVar(&o.metricsBindAddress, "metrics-bind-address", o.metricsBindAddress,
		"host:port of the metrics (plain HTTP, so on loopback); 0 turns them off")
	flags.StringVar(&o.healthProbeBindAddress, "health-probe-bind-address", o.healthProbeBindAddress,
		"host:port of /healthz and /readyz (plain HTTP); 0 turns them off")
	o.log.AddFlags(flags)
}

// complete fills in what the flags left open and refuses what cannot work. Each error names the
// flag.
func (o *options) complete(getenv func(string) string) error {
	o.nodeName = cmp.Or(o.nodeName, getenv(nodeNameEnv))
	if o.nodeName == "" {
		return errors.New("--node-name is needed, or $" + nodeNameEnv)
	}
	o.namespace = cmp.Or(o.namespace, getenv(podNamespaceEnv), defaultNamespace)
	if err := checkHostRoot(o.hostRoot); err != nil {
		return err
	}
	for flag, address := range map[string]string{
		"metrics-bind-address": o.metricsBindAddress, "health-probe-bind-address": o.healthProbeBindAddress,
	} {
		if _, port, err := net.SplitHostPort(address); address != off && (err != nil || port == "") {
			return fmt.Errorf("--%s %q: must be host:port, :port, or 0 to turn it off", flag, address)
		}
	}
	return nil
}

func addHostRoot(flags *pflag.FlagSet, root *string) {
	flags.StringVar(root, "host-root", *root, "folder in which the host's root is mounted; its programs run with it as their root")
}

func checkHostRoot(root string) error {
	if !filepath.IsAbs(root) {
		return fmt.Errorf("--host-root %q: must be an absolute path", root)
	}
	return nil
}
