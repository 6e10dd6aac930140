package stack

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"

	"github.com/layerwright/layerwright/test/cluster/await"
	"github.com/layerwright/layerwright/test/cluster/controlplane"
	"github.com/layerwright/layerwright/test/cluster/daemon"
	"github.com/layerwright/layerwright/test/cluster/files"
	"github.com/layerwright/layerwright/test/cluster/gateway"
	"github.com/layerwright/layerwright/test/cluster/node"
	"github.com/layerwright/layerwright/test/cluster/pki"
	"github.com/layerwright/layerwright/test/cluster/toolchain"
	"github.com/layerwright/layerwright/test/fixtures"
	"github.com/layerwright/layerwright/test/guest"
)

const (
	// GuestLabel marks nodes that are virtual machines, and is the key of their taint: they have
	// few of the images that no registry has.
	GuestLabel = "layerwright.test/guest"
	// GuestStream is what they boot first.
	GuestStream = fixtures.RHEL9

	// maxGuests is how many have an address: after those of the nodes that are processes.
	maxGuests    = 20
	guestAddress = gateway.MaxNodes - maxGuests
	guestMemory  = 1536
	guestCPUs    = 2
	kubeletPort  = 10250
)

// guestNode is a node that is a virtual machine.
type guestNode struct {
	name, dir, address string
}

// GuestName is the name of the nth guest, and of its node.
func GuestName(n int) string { return fmt.Sprintf("guest%d", n) }

func (s *Stack) guests(st *state) []guestNode {
	all := make([]guestNode, 0, st.Guests)
	for n := 1; n <= st.Guests; n++ {
		name := GuestName(n)
		all = append(all, guestNode{name: name, dir: filepath.Join(s.dir, "guests", name), address: gateway.NodeAddress(guestAddress + n)})
	}
	return all
}

// Guest controls a guest of the cluster by its node's name.
func (s *Stack) Guest(name string) *guest.Control {
	return guest.Connect(filepath.Join(s.dir, "guests", name))
}

// GuestConsole is the file with what a guest prints.
func (s *Stack) GuestConsole(name string) string {
	return filepath.Join(s.dir, "logs", name+"-console.log")
}

// ensureGuestPKI makes the certificates of guests.
func (u *up) ensureGuestPKI() error {
	server := fmt.Sprintf("https://%s:%d", gateway.NodeAddress(1), u.state.Ports.API)
	for _, g := range u.guests(u.state) {
		leaf := pki.Leaf{
			Name: g.name, CommonName: "system:node:" + g.name, Organization: []string{"system:nodes"}, Hosts: []string{g.name, g.address},
		}
		if err := u.pki.EnsureLeaf(controlplane.Authority, leaf); err != nil {
			return err
		}
		if err := u.pki.WriteKubeconfig(g.name, controlplane.Authority, u.name, server); err != nil {
			return err
		}
	}
	return nil
}

// startGuests makes the disks of guests that have none, boots all that do not run, and waits until
// they are Ready.
func (u *up) startGuests(ctx context.Context, image *controllerImage) error {
	all := u.guests(u.state)
	if len(all) == 0 {
		return nil
	}
	if err := guest.Check(); err != nil {
		return err
	}
	for _, g := range all {
		if _, err := os.Stat(g.disk()); errors.Is(err, fs.ErrNotExist) {
			if err := u.makeGuest(ctx, g, image); err != nil {
				return fmt.Errorf("making %s: %w", g.name, err)
			}
		} else if err != nil {
			return err
		}
		spec, err := u.guestSpec(g)
		if err != nil {
			return err
		}
		if _, err := u.manager.Ensure(ctx, spec); err != nil {
			return err
		}
	}
	for _, g := range all {
		if err := u.awaitGuest(ctx, g); err != nil {
			return fmt.Errorf("%w; `cluster logs %s-console` shows its console", err, g.name)
		}
	}
	return nil
}

func (g guestNode) disk() string { return filepath.Join(g.dir, "disk.img") }

// awaitGuest waits for the node and labels it, which a kubelet may not do itself.
func (u *up) awaitGuest(ctx context.Context, g guestNode) error {
	if err := await.NodeReady(ctx, u.clients, g.name); err != nil {
		return err
	}
	labelled := corev1ac.Node(g.name).WithLabels(map[string]string{GuestLabel: "", "node-role.kubernetes.io/worker": ""})
	_, err := u.clients.CoreV1().Nodes().Apply(ctx, labelled, metav1.ApplyOptions{FieldManager: fieldManager, Force: true})
	return err
}

// makeGuest makes a guest's disk, with the node's identity and the images that no registry has.
func (u *up) makeGuest(ctx context.Context, g guestNode, image *controllerImage) error {
	if err := os.MkdirAll(g.dir, 0o700); err != nil {
		return err
	}
	disk, base, err := u.guestDisk(ctx)
	if err != nil {
		return err
	}
	content, err := u.guestFiles(g, image)
	if err != nil {
		return err
	}
	made := g.disk() + ".tmp"
	if err := guest.Copy(ctx, disk, made); err != nil {
		return err
	}
	if err := guest.Put(ctx, made, base, content); err != nil {
		return err
	}
	return os.Rename(made, g.disk())
}

// guestDisk makes the base image, pushes it, and installs it on a disk, as far as the cache does
// not have these. It returns the image's name too.
func (u *up) guestDisk(ctx context.Context) (disk, base string, err error) {
	maker, err := u.guestFixtures(ctx, []fixtures.Stream{GuestStream}, func(string, ...any) {})
	if err != nil {
		return "", "", err
	}
	set, err := maker.Build(ctx, fixtures.Bootable)
	if err != nil {
		return "", "", err
	}
	registry, err := u.Registry(ctx)
	if err != nil {
		return "", "", err
	}
	references, err := maker.Push(ctx, fixtures.Bootable, registry.Host+"/"+FixturesPath, registry.Options(ctx, "push")...)
	if err != nil {
		return "", "", err
	}
	disk, err = guest.Disks{Dir: filepath.Join(u.cache, "guests")}.Ensure(ctx, set.OS[GuestStream]["amd64"])
	return disk, references.OS[GuestStream].String(), err
}

// guestFiles are what a machine gets when it is installed, and no image has.
func (u *up) guestFiles(g guestNode, image *controllerImage) (map[string]guest.File, error) {
	pause, err := u.ensurePauseArchive()
	if err != nil {
		return nil, err
	}
	registry := u.registry(u.state)
	var login []byte
	for _, a := range u.state.Accounts {
		if !a.Push {
			if login, err = a.DockerConfig(registry); err != nil {
				return nil, err
			}
		}
	}
	private := func(path string) guest.File { return guest.File{From: path, Mode: 0o600} }
	text := func(content string) guest.File { return guest.File{Content: []byte(content), Mode: 0o644} }
	content := map[string]guest.File{
		"/etc/resolv.conf": text("nameserver " + gateway.NodeAddress(1) + "\n"),
		"/etc/containers/certs.d/" + registry + "/ca.crt":     private(u.pki.Cert(controlplane.Authority)),
		"/etc/containerd/certs.d/" + registry + "/ca.crt":     private(u.pki.Cert(controlplane.Authority)),
		"/etc/containerd/certs.d/" + registry + "/hosts.toml": text(node.HostsConfig(registry, "/etc/containerd/certs.d/"+registry+"/ca.crt")),
		"/var/lib/kubelet/config.json":                        {Content: login, Mode: 0o600},
		"/var/lib/kubelet/config.yaml":                        text(guestKubelet()),
		"/var/lib/kubelet/node.env":                           text("NODE_NAME=" + g.name + "\nNODE_IP=" + g.address + "\n"),
		"/var/lib/kubelet/kubeconfig":                         private(u.pki.Kubeconfig(g.name)),
		"/var/lib/kubelet/pki/ca.crt":                         private(u.pki.Cert(controlplane.Authority)),
		"/var/lib/kubelet/pki/serving.crt":                    private(u.pki.Cert(g.name)),
		"/var/lib/kubelet/pki/serving.key":                    private(u.pki.Key(g.name)),
		"/var/lib/guest/images/pause.tar":                     private(pause),
	}
	if image.agentArchive != "" {
		content["/var/lib/guest/images/agent.tar"] = private(image.agentArchive)
	}
	return content, nil
}

// guestKubelet is a kubelet's configuration on a host of its own. /usr is read-only, so plugins are
// below /var.
func guestKubelet() string {
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
`, gateway.NodeAddress(1), GuestLabel)
}

// guestSpec runs a guest in the cluster's network: it reaches everything there, and its kubelet is
// reached at its address.
func (u *up) guestSpec(g guestNode) (daemon.Spec, error) {
	machine := guest.Machine{
		Dir: g.dir, Disk: g.disk(), Console: u.GuestConsole(g.name), Memory: guestMemory, CPUs: guestCPUs,
		Forwards: []guest.Forward{{Address: g.address, Port: kubeletPort}},
	}
	text, err := json.MarshalIndent(machine, "", "  ")
	if err != nil {
		return daemon.Spec{}, err
	}
	path := filepath.Join(g.dir, "machine.json")
	if err := files.Write(path, text, 0o600); err != nil {
		return daemon.Spec{}, err
	}
	return daemon.Spec{
		Name: g.name, Argv: []string{u.program, "internal", "guest", path}, Inputs: []string{path}, NetNSOf: gatewayName,
	}, nil
}

// guestFixtures makes base images that boot, with the programs that the cluster's own nodes run.
func (s *Stack) guestFixtures(ctx context.Context, streams []fixtures.Stream, report func(string, ...any)) (*fixtures.Maker, error) {
	programs, err := s.guestPrograms(ctx)
	if err != nil {
		return nil, err
	}
	return fixtures.New(fixtures.Options{
		CacheDir: s.cache, Streams: streams, Programs: programs,
		Progress: fixtures.ProgressFunc(func(e fixtures.Event) { report("%s", e) }),
	})
}

func (s *Stack) guestPrograms(ctx context.Context) ([]string, error) {
	return GuestPrograms(ctx, s.tools, s.repository, filepath.Join(s.dir, "guests", "bin"))
}

// GuestPrograms are what makes a bootable system a node that images can be deployed on. What stands
// in for bootc and rpm-ostree is compiled into a folder.
func GuestPrograms(ctx context.Context, tools *toolchain.Toolchain, repository, dir string) ([]string, error) {
	kubernetes, err := tools.Find(ctx, toolchain.Kubernetes)
	if err != nil {
		return nil, err
	}
	runtime, err := tools.Find(ctx, toolchain.Node)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	const standIn = "layerwright-host"
	if err := makeTarget(ctx, repository, "host-binary", "OUT="+filepath.Join(dir, standIn)); err != nil {
		return nil, err
	}
	programs := []string{filepath.Join(dir, standIn)}
	for _, name := range []string{"bootc", "rpm-ostree"} {
		link := filepath.Join(dir, name)
		if err := os.Symlink(standIn, link); err != nil && !errors.Is(err, fs.ErrExist) {
			return nil, err
		}
		programs = append(programs, link)
	}
	for _, name := range []string{"kubernetes", "kubelet"} {
		programs = append(programs, filepath.Join(kubernetes, name))
	}
	for _, name := range []string{"containerd", "containerd-shim-runc-v2", "ctr", "runc", "bridge", "host-local", "loopback"} {
		programs = append(programs, filepath.Join(runtime, name))
	}
	return programs, nil
}
