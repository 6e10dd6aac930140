package guests

import (
	"fmt"

	"github.com/layerwright/layerwright/test/cluster/controlplane"
	"github.com/layerwright/layerwright/test/cluster/gateway"
	"github.com/layerwright/layerwright/test/cluster/node"
	"github.com/layerwright/layerwright/test/cluster/pki"
	"github.com/layerwright/layerwright/test/guest"
)

// Identity is what makes a machine a node of a cluster.
type Identity struct {
	// PKI has the certificates, those of the node among them.
	PKI *pki.Store
	// Registry is the name and port of the cluster's registry, and Login the docker configuration
	// that pulls from it.
	Registry string
	Login    []byte
	// Pause and Agent are archives of images that no registry has. Agent may be empty.
	Pause, Agent string
}

// EnsurePKI makes the certificates of nodes. apiServer is the address that they reach it at.
func EnsurePKI(store *pki.Store, nodes []Node, cluster, apiServer string) error {
	for _, n := range nodes {
		leaf := pki.Leaf{
			Name: n.Name, CommonName: "system:node:" + n.Name, Organization: []string{"system:nodes"}, Hosts: []string{n.Name, n.address},
		}
		if err := store.EnsureLeaf(controlplane.Authority, leaf); err != nil {
			return err
		}
		if err := store.WriteKubeconfig(n.Name, controlplane.Authority, cluster, apiServer); err != nil {
			return err
		}
	}
	return nil
}

// files are what a machine gets when it is installed, and no image has.
func (n Node) files(of Identity) map[string]guest.File {
	private := func(path string) guest.File { return guest.File{From: path, Mode: 0o600} }
	text := func(content string) guest.File { return guest.File{Content: []byte(content), Mode: 0o644} }
	authority, certificates := of.PKI.Cert(controlplane.Authority), "/etc/containerd/certs.d/"+of.Registry
	content := map[string]guest.File{
		"/etc/resolv.conf": text("nameserver " + gateway.NodeAddress(1) + "\n"),
		"/etc/containers/certs.d/" + of.Registry + "/ca.crt": {From: authority, Mode: 0o644},
		certificates + "/ca.crt":                             private(authority),
		certificates + "/hosts.toml":                         text(node.HostsConfig(of.Registry, certificates+"/ca.crt")),
		"/var/lib/kubelet/config.json":                       {Content: of.Login, Mode: 0o600},
		"/var/lib/kubelet/config.yaml":                       text(kubeletConfig()),
		"/var/lib/kubelet/node.env":                          text("NODE_NAME=" + n.Name + "\nNODE_IP=" + n.address + "\n"),
		"/var/lib/kubelet/kubeconfig":                        private(of.PKI.Kubeconfig(n.Name)),
		"/var/lib/kubelet/pki/ca.crt":                        private(authority),
		"/var/lib/kubelet/pki/serving.crt":                   private(of.PKI.Cert(n.Name)),
		"/var/lib/kubelet/pki/serving.key":                   private(of.PKI.Key(n.Name)),
		"/var/lib/guest/images/pause.tar":                    private(of.Pause),
	}
	if of.Agent != "" {
		content["/var/lib/guest/images/agent.tar"] = private(of.Agent)
	}
	return content
}

// kubeletConfig is a kubelet's configuration on a host of its own. /usr is read-only, so plugins
// are below /var.
func kubeletConfig() string {
	return fmt.Sprintf(`apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
cgroupDriver: systemd
authentication:
  anonymous: {enabled: false}
  webhook: {enabled: true}
  x509: {clientCAFile: /var/lib/kubelet/pki/ca.crt}
authorization: {mode: Webhook}
tlsCertFile: /var/lib/kubelet/pki/serving.crt
tlsPrivateKeyFile: /var/lib/kubelet/pki/serving.key
containerRuntimeEndpoint: unix:///run/containerd/containerd.sock
volumePluginDir: /var/lib/kubelet/volume-plugins
resolvConf: ""
clusterDNS: [%q]
clusterDomain: cluster.local
evictionHard: {memory.available: 50Mi, nodefs.available: 1%%, imagefs.available: 1%%}
makeIPTablesUtilChains: false
nodeStatusUpdateFrequency: 5s
registerWithTaints: [{key: %q, effect: NoSchedule}]
# An emulated machine takes long for everything.
runtimeRequestTimeout: 10m
`, gateway.NodeAddress(1), Label)
}
