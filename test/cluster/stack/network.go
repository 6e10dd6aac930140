package stack

import (
	"fmt"
	"path/filepath"
	"regexp"

	"github.com/layerwright/layerwright/test/cluster/daemon"
	"github.com/layerwright/layerwright/test/cluster/files"
	"github.com/layerwright/layerwright/test/cluster/gateway"
	"github.com/layerwright/layerwright/test/cluster/node"
	"github.com/layerwright/layerwright/test/cluster/stack/preflight"
)

// Names of the processes that belong to no node and not to the control plane.
const (
	gatewayName  = "gateway"
	registryName = "registry"
	dnsName      = "coredns"
	proxyName    = "kube-proxy"
)

// gatewaySpec owns the network namespace that all others join.
func (u *up) gatewaySpec() daemon.Spec {
	return daemon.Spec{
		Name: gatewayName,
		Argv: []string{
			u.program, "internal", "gateway", "--nodes", fmt.Sprint(gateway.MaxNodes),
			"--target", fmt.Sprintf("127.0.0.1:%d", u.state.Ports.API),
		},
		Files:    preflight.HandedListener(u.state.APIPort),
		NewNetNS: true,
		Ready:    daemon.Readiness{Notify: true},
	}
}

// registrySpec serves the registry on the host, and inside the namespace where
// there is one.
func (u *up) registrySpec() daemon.Spec {
	spec := daemon.Spec{
		Name: registryName,
		Argv: []string{
			u.program, "internal", "registry",
			"--dir", filepath.Join(u.dir, "registry"),
			"--cert", u.pki.Cert(registryName), "--key", u.pki.Key(registryName),
			"--accounts", u.accountsPath(),
		},
		Inputs: []string{u.pki.Cert(registryName), u.accountsPath()},
		Files:  preflight.HandedListener(u.state.RegistryPort),
		Ready:  daemon.Readiness{Notify: true},
	}
	if !u.state.ControlPlaneOnly {
		spec.Argv = append(spec.Argv, "--listen", fmt.Sprintf("0.0.0.0:%d", u.state.RegistryPort))
		spec.NetNSOf = gatewayName
	}
	return spec
}

func (u *up) accountsPath() string { return filepath.Join(u.dir, "registry-accounts.json") }

// corefile serves the cluster's Services and the registry's name, and knows
// nothing of the world outside, nor of the host's own hosts file.
func (u *up) corefile() string {
	address := gateway.NodeAddress(1)
	return fmt.Sprintf(`.:53 {
    bind %[1]s
    errors
    hosts /dev/null {
        %[1]s %[2]s
        fallthrough
    }
    kubernetes cluster.local in-addr.arpa {
        kubeconfig %[3]s
        pods insecure
    }
}
`, address, u.RegistryHost(), u.pki.Kubeconfig(dnsName))
}

func (u *up) dnsSpec() (daemon.Spec, error) {
	path := filepath.Join(u.dir, "Corefile")
	if err := files.Write(path, []byte(u.corefile()), 0o600); err != nil {
		return daemon.Spec{}, err
	}
	return daemon.Spec{
		Name:    dnsName,
		Argv:    []string{filepath.Join(u.bin.dns, "coredns"), "-conf", path},
		Inputs:  []string{path, u.pki.Kubeconfig(dnsName)},
		NetNSOf: gatewayName,
		Ready:   daemon.Readiness{LogLine: regexp.MustCompile(`^CoreDNS-`)},
	}, nil
}

// proxySpec runs one kube-proxy for all nodes, which share a namespace.
func (u *up) proxySpec() (daemon.Spec, error) {
	path := filepath.Join(u.dir, "kube-proxy.yaml")
	config := fmt.Sprintf(`apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: nftables
bindAddress: %[1]s
healthzBindAddress: 127.0.0.1:10256
metricsBindAddress: 127.0.0.1:10249
clusterCIDR: %[2]s
hostnameOverride: node1
clientConnection: {kubeconfig: %[3]q}
# These settings belong to the whole machine.
conntrack: {maxPerCore: 0, min: 0, tcpEstablishedTimeout: 0s, tcpCloseWaitTimeout: 0s}
`, gateway.NodeAddress(1), node.PodCIDR, u.pki.Kubeconfig(proxyName))
	if err := files.Write(path, []byte(config), 0o600); err != nil {
		return daemon.Spec{}, err
	}
	return daemon.Spec{
		Name:    proxyName,
		Argv:    []string{filepath.Join(u.bin.kubernetes, "kube-proxy"), "--config=" + path},
		Inputs:  []string{path, u.pki.Kubeconfig(proxyName)},
		NetNSOf: gatewayName,
	}, nil
}
