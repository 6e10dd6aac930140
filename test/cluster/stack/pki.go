package stack

import (
	"fmt"

	"github.com/layerwright/layerwright/test/cluster/controlplane"
	"github.com/layerwright/layerwright/test/cluster/gateway"
	"github.com/layerwright/layerwright/test/cluster/pki"
	"github.com/layerwright/layerwright/test/cluster/stack/guests"
)

// controllerUser is the certificate of the controller where it is a process:
// that of its own ServiceAccount, so that it has the rights that it is deployed
// with and no others.
var controllerUser = pki.Leaf{
	Name:         "layerwright-controller",
	CommonName:   "system:serviceaccount:" + Namespace + ":" + ControllerName,
	Organization: []string{"system:serviceaccounts", "system:serviceaccounts:" + Namespace},
}

// ensurePKI makes the certificates that the control plane does not need itself.
func (u *up) ensurePKI() error {
	if err := u.plane.EnsurePKI(); err != nil {
		return err
	}
	if u.state.ControlPlaneOnly {
		return u.ensureProcessPKI()
	}
	leaves := []pki.Leaf{
		{Name: registryName, CommonName: registryName, Hosts: []string{u.RegistryHost(), "127.0.0.1", localHost, gateway.NodeAddress(1)}},
		{Name: proxyName, CommonName: "system:kube-proxy"},
		{Name: dnsName, CommonName: "layerwright:coredns"},
	}
	clients := []string{proxyName, dnsName}
	for n := 1; n <= u.state.Nodes; n++ {
		name := fmt.Sprintf("node%d", n)
		leaves = append(leaves, pki.Leaf{
			Name: name, CommonName: "system:node:" + name, Organization: []string{"system:nodes"},
			Hosts: []string{name, gateway.NodeAddress(n), "127.0.0.1"},
		})
		clients = append(clients, name)
	}
	for _, leaf := range leaves {
		if err := u.pki.EnsureLeaf(controlplane.Authority, leaf); err != nil {
			return err
		}
	}
	for _, client := range clients {
		if err := u.pki.WriteKubeconfig(client, controlplane.Authority, u.name, u.plane.Server()); err != nil {
			return err
		}
	}
	server := fmt.Sprintf("https://%s:%d", gateway.NodeAddress(1), u.state.Ports.API)
	return guests.EnsurePKI(u.pki, guests.Nodes(u.dir, u.state.Guests), u.name, server)
}

// ensureProcessPKI makes the certificates of registry and controller.
func (u *up) ensureProcessPKI() error {
	if !u.state.Controller {
		return nil
	}
	leaves := []pki.Leaf{
		{Name: registryName, CommonName: registryName, Hosts: []string{localHost, "127.0.0.1"}},
		controllerUser,
	}
	for _, leaf := range leaves {
		if err := u.pki.EnsureLeaf(controlplane.Authority, leaf); err != nil {
			return err
		}
	}
	return u.pki.WriteKubeconfig(controllerUser.Name, controlplane.Authority, u.name, u.plane.Server())
}
