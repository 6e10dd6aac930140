package node

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/layerwright/layerwright/test/cluster/files"
)

// writeConfigs writes the configuration of all of a node's programs.
func (n *Node) writeConfigs() error {
	configs := map[string]string{
		n.path("containerd.toml"):                       n.containerdConfig(),
		n.path("cni", "10-lw.conflist"):                 n.cniConfig(),
		n.kubeletConfigPath():                           n.kubeletConfig(),
		n.path("certs.d", n.RegistryHost, "hosts.toml"): HostsConfig(n.RegistryHost, n.CA),
	}
	for path, content := range configs {
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			return err
		}
		if err := files.Write(path, []byte(content), 0o600); err != nil {
			return err
		}
	}
	return nil
}

// stateDir is where containerd has what does not outlive it, the root file systems of containers
// among it: in the node's own /run (see masked). Root of a pod with a user namespace has to get
// there, and the node's folder is in its owner's home, which is closed to others.
const stateDir = "/run/containerd"

func (n *Node) containerdConfig() string {
	return fmt.Sprintf(`version = 3
root = %[1]q
state = %[2]q
# Not needed, or in need of what the machine may lack.
disabled_plugins = [
  "io.containerd.snapshotter.v1.blockfile",
  "io.containerd.snapshotter.v1.erofs",
  "io.containerd.nri.v1.nri",
  "io.containerd.tracing.processor.v1.otlp",
  "io.containerd.image-verifier.v1.bindir",
]

[grpc]
  address = %[3]q

[plugins.'io.containerd.internal.v1.opt']
  path = %[4]q

[plugins.'io.containerd.cri.v1.images']
  snapshotter = "overlayfs"
  [plugins.'io.containerd.cri.v1.images'.pinned_images]
    sandbox = %[5]q
  [plugins.'io.containerd.cri.v1.images'.registry]
    config_path = %[6]q

[plugins.'io.containerd.cri.v1.runtime']
  # Without CAP_SYS_RESOURCE no one may lower a score below its parent's.
  restrict_oom_score_adj = true
  [plugins.'io.containerd.cri.v1.runtime'.cni]
    bin_dirs = [%[7]q]
    conf_dir = %[8]q
  [plugins.'io.containerd.cri.v1.runtime'.containerd]
    default_runtime_name = "runc"
    [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
        BinaryName = %[9]q
        SystemdCgroup = false
`, n.path("containerd"), stateDir, n.socket(), n.path("opt"), PauseImage,
		n.path("certs.d"), n.NodeBin, n.path("cni"), filepath.Join(n.NodeBin, "runc"))
}

// cniConfig connects pods by a bridge of the node. All nodes share one network
// namespace, so the kernel routes between their bridges.
func (n *Node) cniConfig() string {
	return fmt.Sprintf(`{
  "cniVersion": "1.0.0",
  "name": "lw",
  "plugins": [{
    "type": "bridge",
    "bridge": "cni%[1]d",
    "isGateway": true,
    "ipMasq": false,
    "hairpinMode": true,
    "ipam": {
      "type": "host-local",
      "dataDir": %[2]q,
      "ranges": [[{"subnet": "10.244.%[1]d.0/24"}]],
      "routes": [{"dst": "0.0.0.0/0"}]
    }
  }]
}
`, n.Number, n.path("ipam"))
}

// PodCIDR holds the addresses of all pods.
const PodCIDR = "10.244.0.0/16"

func (n *Node) kubeletConfig() string {
	return fmt.Sprintf(`apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
# Version 1 control groups are refused by default since Kubernetes 1.35.
failCgroupV1: false
failSwapOn: false
cgroupDriver: cgroupfs
cgroupRoot: /%[1]s
enforceNodeAllocatable: []
address: %[2]s
port: 10250
healthzBindAddress: %[2]s
healthzPort: 10248
readOnlyPort: 0
authentication:
  anonymous: {enabled: false}
  webhook: {enabled: true}
  x509: {clientCAFile: %[3]q}
authorization: {mode: Webhook}
tlsCertFile: %[4]q
tlsPrivateKeyFile: %[5]q
containerRuntimeEndpoint: %[6]q
podLogsDir: %[7]q
volumePluginDir: %[8]q
staticPodPath: ""
resolvConf: ""
clusterDNS: [%[9]q]
clusterDomain: cluster.local
# The disk is that of a developer's machine, which is often nearly full.
evictionHard: {memory.available: 100Mi, nodefs.available: 1%%, imagefs.available: 1%%}
imageGCHighThresholdPercent: 100
makeIPTablesUtilChains: false
# Tests ask for status often and wait for it, and for pods that fill their volumes.
nodeStatusUpdateFrequency: 5s
volumeStatsAggPeriod: 10s
`, n.podGroup(), n.Address, n.CA, n.Cert, n.Key, "unix://"+n.socket(),
		n.path("pod-logs"), n.path("volume-plugins"), n.DNSAddress)
}

// HostsConfig makes containerd trust a registry's certificate.
func HostsConfig(registry, authority string) string {
	return strings.Join([]string{
		fmt.Sprintf("server = %q", "https://"+registry),
		fmt.Sprintf("[host.%q]", "https://"+registry),
		fmt.Sprintf("  ca = %q", authority),
		"",
	}, "\n")
}
