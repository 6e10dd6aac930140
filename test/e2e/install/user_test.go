//go:build e2e

package install

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/stretchr/testify/require"
	"k8s.io/client-go/kubernetes"

	"github.com/layerwright/layerwright/test/cluster/stack"
	"github.com/layerwright/layerwright/test/cluster/toolchain"
	"github.com/layerwright/layerwright/test/fixtures"
	"github.com/layerwright/layerwright/test/installpage"
)

const (
	// clusterName is a cluster without Layerwright.
	clusterName = "e2e-install"
	// patience is more than any command of the page waits.
	patience = 10 * time.Minute
)

// user is someone with the page, a shell and a cluster.
type user struct {
	t     testing.TB
	page  *installpage.Page
	stack *stack.Stack
	// repository is the checkout, dist the folder of the release, home where the user's own
	// files and programs are, and dir where the shell is.
	repository, dist, home, dir string
	registry                    *stack.Registry
	clients                     kubernetes.Interface
	// node takes the place of node1 on the page.
	node string
	// names are what the page calls something, and what that is here, in turn.
	names []string
	env   []string
	// ran are the commands that were run, as the page has them.
	ran map[installpage.Command]bool
}

// newUser brings up the cluster.
func newUser(t *testing.T) *user {
	t.Helper()
	require.Zero(t, os.Geteuid(), "these tests need root")
	u := &user{t: t, home: t.TempDir(), node: "node1", ran: map[installpage.Command]bool{}}
	var err error
	u.repository, err = toolchain.RepositoryRoot(".")
	require.NoError(t, err)
	cache, err := toolchain.CacheDir()
	require.NoError(t, err)
	u.stack, err = stack.New(u.repository, cache, clusterName)
	require.NoError(t, err)
	text, err := os.ReadFile(filepath.Join(u.repository, "docs", "install.md"))
	require.NoError(t, err)
	u.page = installpage.Read(string(text))
	u.cluster("down") // one of a run that was killed
	t.Cleanup(func() { u.cluster("down") })
	u.cluster("up", "--bare", "--nodes", "3")
	u.clients, err = u.stack.Clients()
	require.NoError(t, err)
	u.registry, err = u.stack.Registry(t.Context())
	require.NoError(t, err)
	u.settle()
	return u
}

// settle makes what a user has before reading the page: a registry with an OS image, a login there,
// programs, a key.
func (u *user) settle() {
	u.t.Helper()
	ctx := u.t.Context()
	references, err := u.stack.PushFixtures(ctx, fixtures.Tiny, []fixtures.Stream{fixtures.RHEL9}, u.t.Logf)
	require.NoError(u.t, err)
	options := u.registry.Options(ctx, "push")
	base, err := remote.Image(references.OS[fixtures.RHEL9], options...)
	require.NoError(u.t, err)
	tag, err := name.NewTag(u.registry.Host + "/os/base:latest")
	require.NoError(u.t, err)
	require.NoError(u.t, remote.Write(tag, base, options...))

	u.dir, u.dist = u.home, filepath.Join(u.home, "dist")
	bin := filepath.Join(u.home, "bin")
	require.NoError(u.t, os.Mkdir(bin, 0o700))
	path := bin
	for _, set := range []toolchain.Set{toolchain.Kubernetes, toolchain.Helm, toolchain.Cosign} {
		programs, err := toolchain.FindHere(ctx, set)
		require.NoError(u.t, err)
		path += ":" + programs
	}
	u.env = append(os.Environ(),
		"PATH="+path+":"+os.Getenv("PATH"), "KUBECONFIG="+u.stack.Kubeconfig(), "KUBECACHEDIR="+filepath.Join(u.home, "kube"),
		"HELM_CACHE_HOME="+u.home, "HELM_CONFIG_HOME="+u.home, "HELM_DATA_HOME="+u.home,
		"DOCKER_CONFIG="+u.stack.DockerConfig("push"), "COSIGN_PASSWORD=password", "SIGSTORE_ROOT_FILE="+os.DevNull,
		// What a release is made of, beside what the page says.
		"DIST="+u.dist, "PLATFORMS=linux-amd64", "REVISION=HEAD",
	)
	authority := filepath.Join(u.home, "ca.crt")
	content, err := os.ReadFile(u.stack.Authority())
	require.NoError(u.t, err)
	require.NoError(u.t, os.WriteFile(authority, content, 0o600))
	u.names = []string{
		"defaultStream: base", "defaultStream: " + string(fixtures.RHEL9), "name: base", "name: " + string(fixtures.RHEL9),
		"registry.example.com", u.registry.Host, "port: 5000", "port: " + u.registry.Host[strings.LastIndex(u.registry.Host, ":")+1:],
		"../ca.crt", authority, "ca.crt", authority, "../cosign.pub", filepath.Join(u.home, "cosign.pub"),
		"cosign.pub", filepath.Join(u.home, "cosign.pub"), "cosign.key", filepath.Join(u.home, "cosign.key"), "dist/published", filepath.Join(u.dist, "published"),
		"../layerwright-v0.1.0", filepath.Join(u.home, "layerwright-v0.1.0"), "sudo ", "", "dist/layerwright", filepath.Join(u.dist, "layerwright"), "/usr/local/bin", bin,
	}
	for role, account := range map[string]string{"reader": "pull", "builder": "push"} {
		login, err := u.registry.Login(ctx, account)
		require.NoError(u.t, err)
		u.names = append(u.names, "--docker-username="+role+" --docker-password=secret", "--docker-username="+login.Username+" --docker-password="+login.Password)
	}
	u.sh("cosign generate-key-pair")
}

// here is a text of the page with the names of this place.
func (u *user) here(text string) string {
	return strings.NewReplacer(append([]string{"node1", u.node}, u.names...)...).Replace(text)
}

// does runs the commands of sections of the page, in their order there.
func (u *user) does(sections ...string) {
	u.t.Helper()
	for _, section := range sections {
		commands := u.page.In(section)
		require.NotEmpty(u.t, commands, "section %q of the page", section)
		u.runs(commands...)
	}
}

// runs runs commands of the page.
func (u *user) runs(commands ...installpage.Command) {
	u.t.Helper()
	for _, command := range commands {
		u.ran[command] = true
		text := u.here(command.Text)
		if strings.HasPrefix(text, "make ") {
			text = "(cd " + u.repository + " && " + text + ")"
		}
		begin := time.Now()
		out := u.sh(text)
		u.t.Logf("%.1f s: $ %s\n%s", time.Since(begin).Seconds(), command.Text, out)
	}
}

// sh runs a command in the user's shell, and returns what it printed.
func (u *user) sh(text string) string {
	u.t.Helper()
	out, err := u.try(text)
	for begin := time.Now(); strings.Contains(out, "failed to configure policy") && time.Since(begin) < patience; { // as the page says
		out, err = u.try(text)
	}
	if err != nil {
		state, _ := u.try("kubectl get pods --all-namespaces -o wide; kubectl -n layerwright describe pods; kubectl describe machineosconfigs,machineosbuilds,machineconfigpools; kubectl -n layerwright logs deployment/layerwright-controller --tail=40")
		require.NoError(u.t, err, "%s:\n%s\n%s", text, out, state)
	}
	return out
}

// try is sh for a command that may fail.
func (u *user) try(text string) (string, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(u.t.Context()), patience)
	defer cancel()
	pwd := filepath.Join(u.home, "pwd")
	cmd := exec.CommandContext(ctx, "bash", "-e", "-c", text+"\npwd >"+pwd)
	cmd.Dir, cmd.Env = u.dir, u.env
	cmd.WaitDelay = time.Second
	out, err := cmd.CombinedOutput()
	if err != nil {
		return string(out), err
	}
	now, err := os.ReadFile(pwd)
	require.NoError(u.t, err)
	u.enter(strings.TrimSpace(string(now)))
	return string(out), nil
}

// enter puts the files of the page beside the manifests, once the shell is there.
func (u *user) enter(dir string) {
	u.t.Helper()
	if dir == u.dir {
		return
	}
	u.dir = dir
	if _, err := os.Stat(filepath.Join(dir, "install.yaml")); err != nil {
		return
	}
	for file, text := range u.page.Files {
		require.NoError(u.t, os.WriteFile(filepath.Join(dir, file), []byte(u.here(text)), 0o600))
	}
}

// onHost runs a command in the host of the node.
func (u *user) onHost(t require.TestingT, command string) string {
	cmd, err := u.stack.HostCommand(u.t.Context(), u.node, command)
	require.NoError(t, err)
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s: %s: %s", u.node, command, out)
	return strings.TrimSpace(string(out))
}

// cluster runs bin/cluster.
func (u *user) cluster(args ...string) {
	u.t.Helper()
	cmd := exec.CommandContext(context.WithoutCancel(u.t.Context()), filepath.Join(u.repository, "bin", "cluster"), append(args, "--name", clusterName)...)
	cmd.Dir = u.repository
	out, err := cmd.CombinedOutput()
	require.NoError(u.t, err, "cluster %v:\n%s", args, out)
}
