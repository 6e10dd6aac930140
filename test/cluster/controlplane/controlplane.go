package controlplane

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strconv"
	"strings"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/layerwright/layerwright/test/cluster/await"
	"github.com/layerwright/layerwright/test/cluster/daemon"
	"github.com/layerwright/layerwright/test/cluster/freeport"
	"github.com/layerwright/layerwright/test/cluster/pki"
)

// Names of the processes.
const (
	Etcd              = "etcd"
	APIServer         = "kube-apiserver"
	ControllerManager = "kube-controller-manager"
	Scheduler         = "kube-scheduler"
)

// Names of certificates in the PKI store.
const (
	Authority           = "ca"
	etcdAuthority       = "etcd-ca"
	frontProxyAuthority = "front-proxy-ca"
	etcdCert            = "etcd"
	apiServerCert       = "apiserver"
	etcdClient          = "apiserver-etcd"
	kubeletClient       = "apiserver-kubelet"
	frontProxyClient    = "front-proxy-client"
	serviceAccounts     = "sa"
	// Admin is the user whose kubeconfig people get.
	Admin             = "admin"
	controllerManager = "controller-manager"
	scheduler         = "scheduler"
)

// Service network of every test cluster.
const (
	ServiceCIDR = "10.96.0.0/16"
	// firstServiceIP is that of the kubernetes Service.
	firstServiceIP = "10.96.0.1"
)

// Ports are those the components listen on.
type Ports struct {
	Etcd              int `json:"etcd"`
	EtcdPeer          int `json:"etcdPeer"`
	API               int `json:"api"`
	ControllerManager int `json:"controllerManager"`
	Scheduler         int `json:"scheduler"`
}

// StandardPorts are the well-known ones, for a namespace of their own.
var StandardPorts = Ports{Etcd: 2379, EtcdPeer: 2380, API: 6443, ControllerManager: 10257, Scheduler: 10259}

// FreePorts returns ports of the loopback interface that no one listens on.
func FreePorts() (p Ports, err error) {
	var listeners []net.Listener
	// All stay open until the last is chosen, so that no two are the same.
	defer func() {
		for _, l := range listeners {
			_ = l.Close()
		}
	}()
	for _, port := range []*int{&p.Etcd, &p.EtcdPeer, &p.API, &p.ControllerManager, &p.Scheduler} {
		l, err := freeport.Listen(context.Background(), "127.0.0.1")
		if err != nil {
			return Ports{}, err
		}
		listeners = append(listeners, l)
		*port = l.Addr().(*net.TCPAddr).Port
	}
	return p, nil
}

// Config describes a control plane.
type Config struct {
	// Cluster names it in kubeconfig files.
	Cluster string
	// Bin is the folder with the programs, Dir the one for data.
	Bin, Dir string
	PKI      *pki.Store
	Manager  *daemon.Manager
	Ports    Ports
	// NodeAddress is the address that nodes and pods reach the API server at;
	// empty when there are none and everything stays on loopback.
	NodeAddress string
	// NetNSOf names the process whose network namespace everything joins.
	NetNSOf string
	// AdminServer is the URL of the API server in the admin's kubeconfig;
	// https://127.0.0.1:<API port> if empty.
	AdminServer string
	// DieWithParent ends the control plane with the program that started it.
	DieWithParent bool
}

// EnsurePKI makes the certificates and kubeconfig files.
func (c *Config) EnsurePKI() error {
	for _, authority := range []string{Authority, etcdAuthority, frontProxyAuthority} {
		if err := c.PKI.EnsureAuthority(authority); err != nil {
			return err
		}
	}
	serving := []string{
		"127.0.0.1", firstServiceIP, "localhost", "kubernetes", "kubernetes.default",
		"kubernetes.default.svc", "kubernetes.default.svc.cluster.local",
	}
	if c.NodeAddress != "" {
		serving = append(serving, c.NodeAddress)
	}
	masters := []string{"system:masters"}
	leaves := map[string][]pki.Leaf{
		etcdAuthority: {
			{Name: etcdCert, CommonName: "etcd", Hosts: []string{"127.0.0.1", "localhost"}},
			{Name: etcdClient, CommonName: "kube-apiserver"},
		},
		frontProxyAuthority: {{Name: frontProxyClient, CommonName: "front-proxy-client"}},
		Authority: {
			{Name: apiServerCert, CommonName: "kube-apiserver", Hosts: serving},
			{Name: kubeletClient, CommonName: "kube-apiserver-kubelet-client", Organization: masters},
			{Name: Admin, CommonName: "admin", Organization: masters},
			{Name: controllerManager, CommonName: "system:kube-controller-manager"},
			{Name: scheduler, CommonName: "system:kube-scheduler"},
		},
	}
	for authority, all := range leaves {
		for _, leaf := range all {
			if err := c.PKI.EnsureLeaf(authority, leaf); err != nil {
				return err
			}
		}
	}
	if err := c.PKI.EnsureKeyPair(serviceAccounts); err != nil {
		return err
	}
	return c.writeKubeconfigs()
}

func (c *Config) writeKubeconfigs() error {
	admin := c.AdminServer
	if admin == "" {
		admin = c.Server()
	}
	for name, server := range map[string]string{Admin: admin, controllerManager: c.Server(), scheduler: c.Server()} {
		if err := c.PKI.WriteKubeconfig(name, Authority, c.Cluster, server); err != nil {
			return err
		}
	}
	return nil
}

// Server is the URL of the API server on the loopback interface of its own
// network namespace.
func (c *Config) Server() string { return "https://127.0.0.1:" + strconv.Itoa(c.Ports.API) }

// Start runs etcd, the API server and the controller manager, and the
// scheduler if there are nodes to schedule to. It returns when the API server
// is ready.
func (c *Config) Start(ctx context.Context) (*rest.Config, error) {
	for _, spec := range []daemon.Spec{c.etcd(), c.apiServer()} {
		if _, err := c.Manager.Ensure(ctx, spec); err != nil {
			return nil, err
		}
	}
	config, err := c.Client()
	if err != nil {
		return nil, err
	}
	clients, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	if err := await.ServerReady(ctx, clients); err != nil {
		return nil, err
	}
	rest := []daemon.Spec{c.controllerManager()}
	if c.NodeAddress != "" {
		rest = append(rest, c.scheduler())
	}
	for _, spec := range rest {
		if _, err := c.Manager.Ensure(ctx, spec); err != nil {
			return nil, err
		}
	}
	return config, nil
}

// Client returns the admin's client configuration, without the client-side
// rate limit that would only slow tests down.
func (c *Config) Client() (*rest.Config, error) {
	config, err := clientcmd.BuildConfigFromFlags("", c.PKI.Kubeconfig(Admin))
	if err != nil {
		return nil, err
	}
	config.QPS = -1
	return config, nil
}

// Stop ends the processes, newest first.
func (c *Config) Stop(ctx context.Context) error {
	var errs []error
	for _, name := range []string{Scheduler, ControllerManager, APIServer, Etcd} {
		errs = append(errs, c.Manager.Stop(ctx, name))
	}
	return errors.Join(errs...)
}

func (c *Config) spec(name string, ready daemon.Readiness, inputs []string, args ...string) daemon.Spec {
	return daemon.Spec{
		Name:    name,
		Argv:    append([]string{filepath.Join(c.Bin, name)}, args...),
		Inputs:  inputs,
		NetNSOf: c.NetNSOf,
		Ready:   ready,
		// Test clusters have memory to spare, and few processors.
		Env:           []string{"GOGC=400"},
		DieWithParent: c.DieWithParent,
	}
}

func (c *Config) etcd() daemon.Spec {
	client := fmt.Sprintf("https://127.0.0.1:%d", c.Ports.Etcd)
	peer := fmt.Sprintf("http://127.0.0.1:%d", c.Ports.EtcdPeer)
	return c.spec(Etcd, daemon.Readiness{Notify: true}, []string{c.PKI.Cert(etcdCert)},
		"--name="+c.Cluster,
		"--data-dir="+filepath.Join(c.Dir, "etcd"),
		"--listen-client-urls="+client,
		"--advertise-client-urls="+client,
		"--listen-peer-urls="+peer,
		"--initial-advertise-peer-urls="+peer,
		"--initial-cluster="+c.Cluster+"="+peer,
		"--cert-file="+c.PKI.Cert(etcdCert),
		"--key-file="+c.PKI.Key(etcdCert),
		"--client-cert-auth",
		"--trusted-ca-file="+c.PKI.Cert(etcdAuthority),
		"--log-level=warn",
		// A test cluster need not survive a power cut, and two cores wait long
		// for a disk that is busy with images.
		"--unsafe-no-fsync",
	)
}

func (c *Config) apiServer() daemon.Spec {
	args := []string{
		"--secure-port=" + strconv.Itoa(c.Ports.API),
		"--etcd-servers=" + fmt.Sprintf("https://127.0.0.1:%d", c.Ports.Etcd),
		"--etcd-cafile=" + c.PKI.Cert(etcdAuthority),
		"--etcd-certfile=" + c.PKI.Cert(etcdClient),
		"--etcd-keyfile=" + c.PKI.Key(etcdClient),
		"--tls-cert-file=" + c.PKI.Cert(apiServerCert),
		"--tls-private-key-file=" + c.PKI.Key(apiServerCert),
		"--client-ca-file=" + c.PKI.Cert(Authority),
		"--kubelet-client-certificate=" + c.PKI.Cert(kubeletClient),
		"--kubelet-client-key=" + c.PKI.Key(kubeletClient),
		"--kubelet-certificate-authority=" + c.PKI.Cert(Authority),
		"--kubelet-preferred-address-types=InternalIP,Hostname",
		"--requestheader-client-ca-file=" + c.PKI.Cert(frontProxyAuthority),
		"--requestheader-allowed-names=front-proxy-client",
		"--requestheader-username-headers=X-Remote-User",
		"--requestheader-group-headers=X-Remote-Group",
		"--requestheader-extra-headers-prefix=X-Remote-Extra-",
		"--proxy-client-cert-file=" + c.PKI.Cert(frontProxyClient),
		"--proxy-client-key-file=" + c.PKI.Key(frontProxyClient),
		"--service-account-key-file=" + c.PKI.PublicKey(serviceAccounts),
		"--service-account-signing-key-file=" + c.PKI.Key(serviceAccounts),
		"--service-account-issuer=https://kubernetes.default.svc.cluster.local",
		"--authorization-mode=Node,RBAC",
		"--enable-admission-plugins=NodeRestriction",
		"--service-cluster-ip-range=" + ServiceCIDR,
		"--allow-privileged=true",
		"--profiling=false",
	}
	if c.NodeAddress == "" {
		args = append(args, "--bind-address=127.0.0.1", "--advertise-address=127.0.0.1", "--endpoint-reconciler-type=none")
	} else {
		// Webhooks and aggregated servers are reached at their pods' addresses,
		// because the service network exists only where kube-proxy made it.
		args = append(args, "--bind-address=0.0.0.0", "--advertise-address="+c.NodeAddress, "--enable-aggregator-routing=true")
	}
	return c.spec(APIServer, daemon.Readiness{Notify: true}, []string{
		c.PKI.Cert(apiServerCert), c.PKI.Cert(etcdClient), c.PKI.Cert(kubeletClient), c.PKI.Cert(frontProxyClient), c.PKI.PublicKey(serviceAccounts),
	}, args...)
}

// authentication makes a component use one kubeconfig for all its purposes.
func (c *Config) authentication(name string) []string {
	path := c.PKI.Kubeconfig(name)
	return []string{
		"--kubeconfig=" + path,
		"--authentication-kubeconfig=" + path,
		"--authorization-kubeconfig=" + path,
		"--leader-elect=false",
		"--bind-address=127.0.0.1",
	}
}

func (c *Config) controllerManager() daemon.Spec {
	args := append(c.authentication(controllerManager),
		"--secure-port="+strconv.Itoa(c.Ports.ControllerManager),
		"--service-account-private-key-file="+c.PKI.Key(serviceAccounts),
		"--root-ca-file="+c.PKI.Cert(Authority),
		"--cluster-signing-cert-file="+c.PKI.Cert(Authority),
		"--cluster-signing-key-file="+c.PKI.Key(Authority),
		"--use-service-account-credentials",
		// It makes some forty accounts before its controllers start; at the
		// default rate that alone takes most of the time until they do.
		"--kube-api-qps=500",
		"--kube-api-burst=1000",
		"--service-cluster-ip-range="+ServiceCIDR,
		"--profiling=false",
	)
	return c.spec(ControllerManager, daemon.Readiness{}, []string{c.PKI.Kubeconfig(controllerManager)}, args...)
}

func (c *Config) scheduler() daemon.Spec {
	args := append(c.authentication(scheduler), "--secure-port="+strconv.Itoa(c.Ports.Scheduler), "--profiling=false")
	return c.spec(Scheduler, daemon.Readiness{}, []string{c.PKI.Kubeconfig(scheduler)}, args...)
}

// IsPortTaken reports whether err is that of a process that found its port in
// use: someone took it between FreePorts and the start.
func IsPortTaken(err error) bool {
	died := (*daemon.DiedError)(nil)
	return errors.As(err, &died) && strings.Contains(died.LastLines, "address already in use")
}
