//go:build e2e && upgrade

package fleet

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	mcfgv1alpha1 "github.com/layerwright/layerwright/api/machineconfiguration/v1alpha1"
	"github.com/layerwright/layerwright/internal/names"
	"github.com/layerwright/layerwright/internal/status"
	"github.com/layerwright/layerwright/test/cluster/stack"
	"github.com/layerwright/layerwright/test/cluster/toolchain"
)

// fromVariable names the environment variable with a checkout of the version to upgrade from.
const fromVariable = "LAYERWRIGHT_UPGRADE_FROM"

// versionVariable is what the Makefile has programs say that their version is.
const versionVariable = "VERSION"

// The pools beside that of workers: one whose only node, haltedNode, went back from an image, and
// one without nodes, whose image is being built.
const (
	haltedPool, haltedNode = mcfgv1.PoolMaster, "node3"
	buildingPool           = mcfgv1.PoolArbiter
)

// upgraded is a cluster whose version changes while it is at work.
type upgraded struct {
	*fleet
	halted, building *fleet
	// gate is where RUN lines wait.
	gate *gate
	// before and now are checkouts of the two versions.
	before, now string
	// programs are the images of controller and agent of each version.
	programs map[string]map[string]string
}

// TestUpgrade changes the version of a cluster with a running build, half a rollout, a halted pool
// and an image in quarantine, and back. Then the versions of controller and agents differ, and in
// the end Layerwright is removed.
func TestUpgrade(t *testing.T) {
	before := os.Getenv(fromVariable)
	require.NotEmpty(t, before, "run this with `make e2e-upgrade`")
	now, err := toolchain.RepositoryRoot(".")
	require.NoError(t, err)
	t.Setenv(versionVariable, "v0.0.1")
	u := &upgraded{fleet: newFleetOf(t, before), before: before, now: now, programs: map[string]map[string]string{}}
	u.gate = newGate(u.fleet)
	u.programs[before] = u.workloads()
	for _, step := range []struct {
		name string
		test func(*upgraded)
	}{
		{"a pool has halted, with its image in quarantine", testHaltBefore},
		{"an upgrade at work leaves everything as it is", func(u *upgraded) { testChange(u, u.now) }},
		{"so does a downgrade", func(u *upgraded) { testChange(u, u.before) }},
		{"agents and controller may be of different versions", testSkew},
		{"nodes run what they ran after the removal", testUninstall},
	} {
		if !t.Run(step.name, func(t *testing.T) { step.test(u.in(t)) }) {
			return
		}
	}
}

// in is the cluster in a subtest.
func (u *upgraded) in(tb testing.TB) *upgraded {
	tb.Helper()
	in := *u
	in.fleet = u.fleet.in(tb)
	in.halted, in.building = in.of(haltedPool), in.of(buildingPool)
	return &in
}

// of is another pool of the cluster.
func (f *fleet) of(pool string) *fleet {
	other := *f
	other.pool = pool
	return &other
}

func testHaltBefore(u *upgraded) {
	u.patchNode(haltedNode, `{"metadata":{"labels":{"upgrade.test/pool":"`+haltedPool+`"}}}`)
	u.halted.begin(map[string]string{"upgrade.test/pool": haltedPool})
	u.building.begin(map[string]string{"upgrade.test/pool": buildingPool})
	u.ask()
	u.halted.ask()
	u.isUpdated("one", u.workers()...)
	u.halted.isUpdated("one", haltedNode)
	u.openShop()
	u.halted.changePool(needsShop)
	u.halted.write(bad)
	u.eventually(func(t *assert.CollectT) {
		pool := u.halted.readPool(t)
		assert.Equal(t, "True", poolCondition(pool, string(mcfgv1.PoolRolloutDegraded)))
		assert.EqualValues(t, 1, pool.Status.Rollout.RolledBackMachineCount)
		assert.Len(t, u.quarantined(t), 1)
		assert.True(t, u.isShopReady(t, haltedNode))
	})
}

// workers are the nodes of the workers' pool, in the order in which they go.
func (u *upgraded) workers() []string {
	u.t.Helper()
	return slices.DeleteFunc(u.next(), func(node string) bool { return node == haltedNode })
}

// isUpdated waits until nodes of the pool run its newest image, which has the content.
func (f *fleet) isUpdated(content string, nodes ...string) {
	f.t.Helper()
	f.eventually(func(t *assert.CollectT) {
		pool := f.readPool(t)
		require.NotNil(t, pool.Status.Rollout)
		require.Equal(t, fmt.Sprintf("%d/%d updated", len(nodes), len(nodes)), pool.Status.Rollout.Summary)
		require.Equal(t, "True", poolCondition(pool, "Updated"))
		require.Equal(t, string(f.config(t).Status.CurrentImagePullSpec), string(pool.Status.Rollout.TargetImagePullSpec))
		for _, node := range nodes {
			has, err := f.try(node, "cat /etc/motd")
			require.NoError(t, err)
			require.Equal(t, content, has)
		}
	})
}

// testChange brings the cluster to the version of a checkout while it is at work.
func testChange(u *upgraded, to string) {
	content := "two-" + filepath.Base(to)
	u.beginBuild(content)
	order := u.workers()
	unblock := u.block(order[1])
	u.write(content)
	u.waitsFor(order[1] + ": is draining: pod default/db-")
	require.Equal(u.t, content, u.sh(order[0], "cat /etc/motd"))
	u.isSettled()

	u.nodes.Forget()
	before := u.standing()
	u.bringTo(to)
	require.Equal(u.t, before, u.standing())
	u.gate.open(content)
	u.eventually(func(t *assert.CollectT) {
		config := u.building.config(t)
		build := &mcfgv1.MachineOSBuild{}
		require.NoError(t, u.Get(u.t.Context(), client.ObjectKey{Name: config.Annotations[mcfgv1.AnnotationCurrentMachineOSBuild]}, build))
		require.True(t, status.IsTrue(build.Status.Conditions, status.BuildSucceeded))
		require.Equal(t, build.Status.DigestedImagePushSpec, config.Status.CurrentImagePullSpec)
		require.Contains(t, slices.Collect(maps.Keys(before.Objects)), "MachineOSBuild/"+build.Name, "the build that ran")
		require.True(t, slices.ContainsFunc(u.images(t), func(i mcfgv1alpha1.MachineOSImage) bool {
			return i.Spec.PullSpec == config.Status.CurrentImagePullSpec && status.IsTrue(i.Status.Conditions, status.Ready)
		}))
	})
	after := u.standing()
	maps.DeleteFunc(before.Tags, func(tag, _ string) bool { return strings.HasSuffix(tag, ":"+buildingPool) }) // it moves to the image that was built
	require.Equal(u.t, before.Boots, after.Boots)
	require.Equal(u.t, before.Nodes, after.Nodes)
	require.Subset(u.t, after.Objects, without(before.Objects, "Job/", "Pod/"))
	require.Subset(u.t, after.Images, before.Images)
	require.Subset(u.t, after.Tags, before.Tags, "nothing was pushed or signed again")
	require.Equal(u.t, before.Halted, after.Halted)
	require.Empty(u.t, u.order(), "no node was told to change")

	unblock()
	u.isUpdated(content, order...)
	boots := u.bootIDs()
	require.Equal(u.t, before.Boots[order[0]], boots[order[0]])
	require.NotEqual(u.t, before.Boots[order[1]], boots[order[1]])
	require.Equal(u.t, before.Boots[haltedNode], boots[haltedNode])
	require.Equal(u.t, before.Halted, u.standing().Halted)
	require.Empty(u.t, u.brokenRules())
}

// beginBuild has an image built in a pod that waits at the gate.
func (u *upgraded) beginBuild(name string) {
	u.t.Helper()
	content := func(c *mcfgv1.MachineOSConfig) {
		c.Spec.Containerfile = []mcfgv1.MachineOSContainerfile{{ContainerfileArch: mcfgv1.NoArch, Content: new("FROM os-base-image\nRUN until wget -q -O /usr/share/gate http://" + u.gate.host + "/" + name + "; do sleep 1; done\n")}}
		c.Spec.BuildPlacement = &mcfgv1.BuildPlacement{NodeSelector: map[string]string{corev1.LabelHostname: haltedNode}} // no node that is drained
	}
	if err := u.Get(u.t.Context(), client.ObjectKey{Name: buildingPool}, &mcfgv1.MachineOSConfig{}); err != nil {
		require.NoError(u.t, client.IgnoreNotFound(err))
		u.building.ask(content)
	} else {
		u.building.changeConfig(content)
	}
	ctx, cancel := context.WithTimeout(u.t.Context(), patience)
	defer cancel()
	for came := ""; came != name; {
		select {
		case came = <-u.gate.arrivals:
		case <-ctx.Done():
			require.FailNow(u.t, "no RUN line came to the gate")
		}
	}
}

// isSettled waits until nothing is under way but what the test holds.
func (u *upgraded) isSettled() {
	u.t.Helper()
	u.eventually(func(t *assert.CollectT) {
		for _, image := range u.images(t) {
			require.True(t, status.IsTrue(image.Status.Conditions, status.Ready) || isQuarantined(&image), image.Name)
		}
	})
}

// bringTo applies manifests and programs of a checkout, and waits until all of it is at work.
func (u *upgraded) bringTo(checkout string) {
	u.t.Helper()
	begun := time.Now()
	u.repository = checkout
	u.t.Setenv(versionVariable, map[string]string{u.before: "v0.0.1", u.now: "v0.1.0"}[checkout])
	u.cluster("deploy")
	u.isRunning()
	u.programs[checkout] = u.workloads()
	u.t.Logf("at %s after %s", checkout, time.Since(begun).Round(time.Second))
}

// isRunning waits until one controller holds the Lease, and every node has an agent of the newest
// kind.
func (u *upgraded) isRunning() {
	u.t.Helper()
	u.eventually(func(t *assert.CollectT) {
		agents, err := u.clients.AppsV1().DaemonSets(stack.Namespace).Get(u.t.Context(), "layerwright-agent", metav1.GetOptions{})
		require.NoError(t, err)
		require.Equal(t, agents.Generation, agents.Status.ObservedGeneration)
		require.Equal(t, []int32{3, 3}, []int32{agents.Status.UpdatedNumberScheduled, agents.Status.NumberAvailable})
		deployment, err := u.clients.AppsV1().Deployments(stack.Namespace).Get(u.t.Context(), stack.ControllerName, metav1.GetOptions{})
		require.NoError(t, err)
		require.Equal(t, deployment.Generation, deployment.Status.ObservedGeneration)
		pods, err := u.clients.CoreV1().Pods(stack.Namespace).List(u.t.Context(), metav1.ListOptions{LabelSelector: labelComponent + "controller"})
		require.NoError(t, err)
		require.Len(t, pods.Items, 1)
		require.Equal(t, containerOf(&deployment.Spec.Template).Image, pods.Items[0].Spec.Containers[0].Image)
		lease, err := u.clients.CoordinationV1().Leases(stack.Namespace).Get(u.t.Context(), names.ControllerLease, metav1.GetOptions{})
		require.NoError(t, err)
		require.NotNil(t, lease.Spec.HolderIdentity)
		require.True(t, strings.HasPrefix(*lease.Spec.HolderIdentity, pods.Items[0].Name), *lease.Spec.HolderIdentity)
	})
}

func containerOf(template *corev1.PodTemplateSpec) *corev1.Container {
	return &template.Spec.Containers[0]
}

// workloads are those of the controller and of the agents, with the images that they run.
func (u *upgraded) workloads() map[string]string {
	u.t.Helper()
	deployment, err := u.clients.AppsV1().Deployments(stack.Namespace).Get(u.t.Context(), stack.ControllerName, metav1.GetOptions{})
	require.NoError(u.t, err)
	agents, err := u.clients.AppsV1().DaemonSets(stack.Namespace).Get(u.t.Context(), "layerwright-agent", metav1.GetOptions{})
	require.NoError(u.t, err)
	return map[string]string{"deployment/" + stack.ControllerName: containerOf(&deployment.Spec.Template).Image, "daemonset/layerwright-agent": containerOf(&agents.Spec.Template).Image}
}

// testSkew rolls out with controller and agents of different versions, both ways.
func testSkew(u *upgraded) {
	for i, newer := range []string{"daemonset/layerwright-agent", "deployment/" + stack.ControllerName} {
		for workload := range u.programs[u.now] {
			version := u.before
			if workload == newer {
				version = u.now
			}
			_, container, _ := strings.Cut(workload, "/layerwright-")
			u.kubectl("-n", stack.Namespace, "set", "image", workload, container+"="+u.programs[version][workload])
		}
		u.isRunning()
		content := fmt.Sprintf("skew-%d", i)
		u.nodes.Forget()
		u.write(content)
		u.isUpdated(content, u.workers()...)
		require.Empty(u.t, u.brokenRules())
	}
}

// testUninstall removes Layerwright as docs/install.md says.
func testUninstall(u *upgraded) {
	u.bringTo(u.now)
	before := u.standing()
	running := map[string]string{}
	for node := range zones {
		running[node] = u.booted(node) + " " + u.sh(node, "cat /etc/motd")
	}
	for _, pool := range []string{u.pool, haltedPool, buildingPool} {
		u.kubectl("patch", "machineconfigpool", pool, "--type=merge", "--patch", `{"spec":{"paused":true}}`)
	}
	u.kubectl("delete", "machineosconfigs", "--all")
	u.kubectl("wait", "--for=delete", "machineosbuilds", "--all", "--timeout=10m")
	u.kubectl("delete", "--ignore-not-found", "-k", filepath.Join(u.stack.Dir(), "deploy"))
	for node := range zones {
		require.Equal(u.t, running[node], u.booted(node)+" "+u.sh(node, "cat /etc/motd"))
		require.False(u.t, u.nodes.Node(node).Spec.Unschedulable)
		require.NotContains(u.t, u.sh(node, "systemctl list-timers 2>&1 || true"), "layerwright-return")
		require.NotEmpty(u.t, u.sh(node, "cat /etc/containers/policy.json"))
		require.NotEmpty(u.t, u.nodes.Node(node).Annotations[mcfgv1.AnnotationCurrentImage])
		ref, err := name.NewDigest(u.nodes.Node(node).Annotations[mcfgv1.AnnotationCurrentImage])
		require.NoError(u.t, err)
		_, err = remote.Head(ref, u.registry.Options(u.t.Context(), "pull")...)
		require.NoError(u.t, err, "the registry has what nodes run")
	}
	require.Equal(u.t, before.Boots, u.bootIDs())

	page, err := os.ReadFile(filepath.Join(u.now, "docs", "upgrade.md"))
	require.NoError(u.t, err)
	_, remains, found := strings.Cut(string(page), "## What remains on Nodes")
	require.True(u.t, found)
	for line := range strings.Lines(remains) {
		if command, is := strings.CutPrefix(line, "$ "); is {
			u.run("bash", "-o", "pipefail", "-c", command)
		}
	}
	for node := range zones {
		u.eventually(func(t *assert.CollectT) {
			n := u.nodes.Node(node)
			require.NotContains(t, text(u.t, n.Annotations)+text(u.t, n.Labels), "openshift.io")
		})
	}
}

// kubectl runs kubectl on the cluster.
func (u *upgraded) kubectl(args ...string) {
	u.t.Helper()
	u.run("kubectl", args...)
}

// run runs a program that finds kubectl, and the cluster.
func (u *upgraded) run(program string, args ...string) {
	u.t.Helper()
	bin, err := u.stack.FindTools(u.t.Context(), toolchain.Kubernetes)
	require.NoError(u.t, err)
	cmd := exec.CommandContext(u.t.Context(), "env", append([]string{
		"PATH=" + bin + ":" + os.Getenv("PATH"), "KUBECONFIG=" + u.stack.Kubeconfig(), "KUBECACHEDIR=" + u.t.TempDir(), program,
	}, args...)...)
	out, err := cmd.CombinedOutput()
	require.NoError(u.t, err, "%s %s\n%s", program, strings.Join(args, " "), out)
}

// standing is what a change of versions may not change.
type standing struct {
	// Objects are the UIDs of kinds, of objects of these kinds, and of what builds now.
	Objects map[string]types.UID
	// Nodes are the annotations of nodes, and whether they are cordoned; Boots are their boot IDs.
	Nodes, Boots map[string]string
	// Images are the conditions of images, with the time since when they hold.
	Images map[string]string
	// Tags are the digests of all tags, signatures among them.
	Tags map[string]string
	// Halted is why the pool has halted, and its image is in quarantine.
	Halted []string
}

func (u *upgraded) standing() standing {
	u.t.Helper()
	s := standing{Objects: map[string]types.UID{}, Nodes: map[string]string{}, Boots: u.bootIDs(), Images: map[string]string{}, Tags: map[string]string{}}
	inBuilds := []client.ListOption{client.InNamespace(stack.Namespace), client.HasLabels{mcfgv1.LabelEphemeralBuildObject}}
	for _, kind := range []struct {
		group, version, kind string
		options              []client.ListOption
	}{
		{"apiextensions.k8s.io", "v1", "CustomResourceDefinition", nil},
		{mcfgv1.GroupName, "v1", "MachineConfig", nil},
		{mcfgv1.GroupName, "v1", "MachineConfigPool", nil},
		{mcfgv1.GroupName, "v1", "MachineConfigNode", nil},
		{mcfgv1.GroupName, "v1", "MachineOSConfig", nil},
		{mcfgv1.GroupName, "v1", "MachineOSBuild", nil},
		{mcfgv1.GroupName, "v1", "OSImageStream", nil},
		{mcfgv1.GroupName, "v1alpha1", "MachineOSImage", nil},
		{"batch", "v1", "Job", inBuilds},
		{"", "v1", "Pod", inBuilds},
		{"", "v1", "Secret", []client.ListOption{client.InNamespace(stack.Namespace)}},
	} {
		var list metav1.PartialObjectMetadataList
		list.SetGroupVersionKind(schema.GroupVersionKind{Group: kind.group, Version: kind.version, Kind: kind.kind + "List"})
		require.NoError(u.t, u.List(u.t.Context(), &list, kind.options...))
		for i := range list.Items {
			s.Objects[kind.kind+"/"+list.Items[i].Name] = list.Items[i].UID
		}
	}
	for node := range zones {
		n, err := u.clients.CoreV1().Nodes().Get(u.t.Context(), node, metav1.GetOptions{})
		require.NoError(u.t, err)
		ours := maps.Clone(n.Annotations)
		maps.DeleteFunc(ours, func(key, _ string) bool { return !strings.HasPrefix(key, mcfgv1.GroupName+"/") })
		s.Nodes[node] = text(u.t, ours) + text(u.t, n.Spec.Taints)
	}
	for _, image := range u.images(u.t) {
		s.Images[image.Name] = text(u.t, image.Status.Conditions)
		if image.Status.Quarantine != nil {
			s.Halted = append(s.Halted, image.Name+": "+text(u.t, image.Status.Quarantine))
		}
	}
	pool := u.halted.readPool(u.t)
	for _, c := range pool.Status.Conditions {
		if c.Type == mcfgv1.PoolRolloutDegraded {
			s.Halted = append(s.Halted, text(u.t, c))
		}
	}
	s.Halted = append(s.Halted, pool.Status.Rollout.Summary)
	for _, name := range []string{u.pool, haltedPool, buildingPool} {
		maps.Copy(s.Tags, u.tags(name))
	}
	return s
}

// tags are the digests of the tags of a pool's repository.
func (u *upgraded) tags(pool string) map[string]string {
	u.t.Helper()
	repository, err := name.NewRepository(u.registry.Host + "/builds/" + pool)
	require.NoError(u.t, err)
	options := u.registry.Options(u.t.Context(), "pull")
	list, err := remote.List(repository, options...)
	if pool == buildingPool && err != nil {
		return nil // nothing was pushed yet
	}
	require.NoError(u.t, err)
	tags := map[string]string{}
	for _, tag := range list {
		head, err := remote.Head(repository.Tag(tag), options...)
		require.NoError(u.t, err)
		tags[repository.Tag(tag).String()] = head.Digest.String()
	}
	return tags
}

// without leaves out what begins in one of some ways.
func without(objects map[string]types.UID, prefixes ...string) map[string]types.UID {
	rest := maps.Clone(objects)
	maps.DeleteFunc(rest, func(name string, _ types.UID) bool {
		return slices.ContainsFunc(prefixes, func(prefix string) bool { return strings.HasPrefix(name, prefix) })
	})
	return rest
}

func text(tb testing.TB, of any) string {
	tb.Helper()
	out, err := json.Marshal(of)
	require.NoError(tb, err)
	return string(out)
}

// gate is a server that RUN lines ask until it lets them through.
type gate struct {
	host string
	// arrivals gets the name of each that asks in vain, while someone waits for it.
	arrivals chan string
	opened   sync.Map
}

func newGate(f *fleet) *gate {
	f.t.Helper()
	status, err := f.stack.Status(f.t.Context())
	require.NoError(f.t, err)
	listener, err := status.Listen(f.t.Context())
	require.NoError(f.t, err)
	g := &gate{host: listener.Addr().String(), arrivals: make(chan string)}
	server := &http.Server{Handler: g, ReadHeaderTimeout: time.Minute}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	f.t.Cleanup(func() {
		assert.NoError(f.t, server.Close())
		assert.ErrorIs(f.t, <-ended, http.ErrServerClosed)
	})
	return g
}

func (g *gate) open(name string) { g.opened.Store("/"+name, true) }

func (g *gate) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if _, isOpen := g.opened.Load(r.URL.Path); isOpen {
		return
	}
	select {
	case g.arrivals <- strings.TrimPrefix(r.URL.Path, "/"):
	default:
	}
	http.NotFound(w, r)
}
