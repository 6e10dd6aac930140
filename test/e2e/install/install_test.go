//go:build e2e

package install

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/test/cluster/stack"
	"github.com/layerwright/layerwright/test/installpage"
)

// TestPage makes a release, and installs it in the page's three ways, one after the other, on one
// cluster: up to a node that runs an image which the cluster has built and signed, and back.
func TestPage(t *testing.T) {
	u := newUser(t)
	if !t.Run("a release is made and published", func(t *testing.T) { u.in(t).publishes() }) {
		return
	}
	for _, way := range []struct {
		name string
		test func(*user)
	}{
		{"with kubectl", withKubectl},
		{"with Helm", withHelm},
		{"without internet", fromBundle},
	} {
		if !t.Run(way.name, func(t *testing.T) { way.test(u.in(t)) }) {
			return
		}
	}
	for _, command := range u.page.Commands {
		if !strings.Contains(command.Section, "OpenShift") {
			assert.True(t, u.ran[command], "section %q of the page has a command that was not run: %s", command.Section, command.Text)
		}
	}
}

// in is the user in a subtest.
func (u *user) in(t *testing.T) *user {
	t.Helper()
	u.t = t
	return u
}

func (u *user) publishes() {
	u.does("Install, upgrade, uninstall")
}

func withKubectl(u *user) {
	u.does("Before")
	require.Contains(u.t, u.sh("layerwright check --pods"), "no pods were started")
	u.reachesSignedImage("With kubectl")
	u.checksPush()
	u.reachesNode()
	u.upgrades("kubectl apply")
	u.uninstalls()
	u.hasWhatRemains()
}

func withHelm(u *user) {
	u.node = "node2"
	out, err := u.try("helm install layerwright layerwright-0.1.0.tgz --namespace layerwright --set replicas=2")
	require.Error(u.t, err)
	require.Contains(u.t, out, "'replicas' not allowed")
	require.Empty(u.t, u.sh("helm list --all-namespaces --all --short"))
	u.reachesSignedImage("With Helm")
	u.reachesNode()
	u.upgrades("helm upgrade")
	u.pauses()
	u.runs(u.with("Uninstall", "helm uninstall")...)
	require.Contains(u.t, u.sh("kubectl -n layerwright get machineconfigpools,secrets -o name"), "machineconfigpool.machineconfiguration.openshift.io/worker\n")
	require.NotEmpty(u.t, u.sh("kubectl -n layerwright get secret layerwright-signing-key -o jsonpath='{.data}'"))
	u.runs(u.with("Uninstall", "kubectl delete --ignore-not-found")...)
	u.hasWhatRemains()
}

func fromBundle(u *user) {
	u.node = "node3"
	u.enter(u.dist)
	u.does("Without internet")
	u.reachesSignedImage("With kubectl")
	u.reachesNode()
	u.uninstalls()
	u.hasWhatRemains()
}

// with are the commands of a section that begin with a text.
func (u *user) with(section, text string) (commands []installpage.Command) {
	u.t.Helper()
	for _, command := range u.page.In(section) {
		if strings.HasPrefix(command.Text, text) {
			commands = append(commands, command)
		}
	}
	require.NotEmpty(u.t, commands, "section %q has no %s", section, text)
	return commands
}

// upgrades applies the release once more.
func (u *user) upgrades(command string) {
	u.t.Helper()
	u.runs(slices.Concat(u.with("Upgrade", command), u.with("Upgrade", "kubectl -n layerwright"), u.with("Upgrade", "layerwright "))...)
}

// pauses ends what the controller has to see to.
func (u *user) pauses() {
	u.t.Helper()
	const section = "Uninstall"
	u.runs(slices.Concat(u.with(section, "kubectl get"), u.with(section, "(umask"), u.with(section, "kubectl patch"), u.with(section, "kubectl delete machineosconfigs"), u.with(section, "kubectl wait"))...)
}

func (u *user) uninstalls() {
	u.t.Helper()
	u.pauses()
	u.runs(u.with("Uninstall", "kubectl delete --ignore-not-found")...)
}

// reachesSignedImage installs Layerwright in one way.
func (u *user) reachesSignedImage(way string) {
	u.t.Helper()
	begin := time.Now()
	u.does("Install", way, "See that it runs", "First image")
	require.Contains(u.t, u.sh(`kubectl get machineosimages -o jsonpath='{.items[*].status.conditions[?(@.type=="Signed")].status}'`), "True")
	u.t.Logf("from nothing to the first signed image: %.1f s", time.Since(begin).Seconds())
}

// checksPush has pods try a secret that may not push.
func (u *user) checksPush() {
	u.t.Helper()
	pushSecretOf := func(role string) {
		u.sh(u.here("kubectl -n layerwright create secret docker-registry registry-push --docker-server=registry.example.com --docker-username=" + role +
			" --docker-password=secret --dry-run=client -o yaml | kubectl apply --server-side --force-conflicts -f -"))
	}
	pushSecretOf("reader")
	out, err := u.try("layerwright check --pods")
	exit := (*exec.ExitError)(nil)
	require.ErrorAs(u.t, err, &exit)
	require.Equal(u.t, 3, exit.ExitCode(), out)
	require.Regexp(u.t, `(?m)^mend +registry +a pod on node "node1" can't push to registry\S+/os/worker: .*403`, out)
	require.Regexp(u.t, `(?m)^ok +user-namespaces +all 3 nodes`, out)
	require.Regexp(u.t, `(?m)^advice +network-policies +NetworkPolicies are not enforced`, out, "the playground enforces none")
	require.Empty(u.t, u.sh("kubectl -n layerwright get pods -l app.kubernetes.io/instance=layerwright-check -o name"))
	pushSecretOf("builder")
}

// reachesNode brings the image to the node.
func (u *user) reachesNode() {
	u.t.Helper()
	u.does("First rollout")
	// The image with the cluster's policy for signatures may follow one without.
	require.EventuallyWithT(u.t, func(t *assert.CollectT) {
		image, err := u.try("kubectl get machineosconfig worker -o jsonpath='{.status.currentImagePullSpec}'")
		require.NoError(t, err)
		require.Equal(t, image, u.annotations(t)[mcfgv1.AnnotationCurrentImage])
		require.Equal(t, mcfgv1.ImageDigestFormat(image).Digest(), u.booted(t))
		signed, err := u.try(`kubectl get machineosimages -o jsonpath='{.items[?(@.spec.pullSpec=="` + image + `")].status.conditions[?(@.type=="Signed")].status}'`)
		require.NoError(t, err)
		require.Equal(t, "True", signed)
	}, patience, time.Second)
}

func (u *user) annotations(t require.TestingT) map[string]string {
	node, err := u.clients.CoreV1().Nodes().Get(u.t.Context(), u.node, metav1.GetOptions{})
	require.NoError(t, err)
	return node.Annotations
}

// booted is the digest of the image that the node's host runs.
func (u *user) booted(t require.TestingT) string {
	var status struct {
		Status struct {
			Booted struct{ Image struct{ ImageDigest string } }
		}
	}
	require.NoError(t, json.Unmarshal([]byte(u.onHost(t, "/usr/bin/bootc status --format=json")), &status))
	return status.Status.Booted.Image.ImageDigest
}

// hasWhatRemains looks at what the page says that remains, and nothing else, and removes it as the
// page says.
func (u *user) hasWhatRemains() {
	u.t.Helper()
	_, err := u.clients.CoreV1().Namespaces().Get(u.t.Context(), stack.Namespace, metav1.GetOptions{})
	require.True(u.t, apierrors.IsNotFound(err), "%v", err)
	left := u.sh("kubectl get crd,clusterrole,clusterrolebinding,validatingadmissionpolicy,validatingadmissionpolicybinding -o name | grep -E 'layerwright|machineconfiguration' | grep -v layerwright:coredns || true")
	require.Empty(u.t, left)

	annotations := u.annotations(u.t)
	image := annotations[mcfgv1.AnnotationCurrentImage]
	require.Equal(u.t, mcfgv1.ImageDigestFormat(image).Digest(), u.booted(u.t), "the node runs what it ran")
	ref, err := name.ParseReference(image)
	require.NoError(u.t, err)
	_, err = remote.Head(ref, u.registry.Options(u.t.Context(), "pull")...)
	require.NoError(u.t, err, "the image of the node stays in the registry")
	require.Contains(u.t, u.onHost(u.t, "cat /etc/containers/policy.json"), "sigstoreSigned")
	u.onHost(u.t, "test -d /var/lib/layerwright")

	page, err := os.ReadFile(filepath.Join(u.repository, "docs", "install.md"))
	require.NoError(u.t, err)
	for _, remove := range []string{"rm -r /var/lib/layerwright"} {
		require.Contains(u.t, string(page), "`"+remove+"`")
		u.onHost(u.t, remove)
	}
	page, err = os.ReadFile(filepath.Join(u.repository, "docs", "upgrade.md"))
	require.NoError(u.t, err)
	remaining := installpage.Read(string(page)).In("What remains on Nodes")
	require.NotEmpty(u.t, remaining)
	for _, command := range remaining {
		u.sh(command.Text)
	}
	require.NotContains(u.t, u.sh("kubectl get node "+u.node+" -o json"), "openshift.io/")
	u.sh("kubectl label node " + u.node + " node-role.kubernetes.io/worker-")
}
