//go:build e2e

package e2e

import (
	"context"
	"encoding/base64"
	"io"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/sirupsen/logrus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/builder/backend"
	"github.com/layerwright/layerwright/hack/release/binimage"
	"github.com/layerwright/layerwright/internal/status"
	"github.com/layerwright/layerwright/test/cluster/registry"
	"github.com/layerwright/layerwright/test/cluster/stack"
	"github.com/layerwright/layerwright/test/fixtures"
)

// planted begins every secret of these tests. The hunter knows it, and says only what comes behind
// it.
const planted = "planted-secret-"

// Accounts of the registry that the hunted builds use.
var (
	huntedPush = registry.Account{Name: "pusher", Password: planted + "push", Push: true}
	huntedPull = registry.Account{Name: "puller", Password: planted + "pull"}
)

// vault is a registry of its own, whose passwords are planted.
type vault struct {
	*builds
	// outside is the registry as the test reaches it.
	outside string
	// hunter is the image of the program that looks for secrets, and packages an extensions image.
	hunter, packages string
}

func newVault(t *testing.T) *vault {
	t.Helper()
	common := newBuilds(t)
	logrus.SetOutput(io.Discard) // the registry logs what every client meets
	handler := registry.New(t.Context(), registry.Options{Dir: t.TempDir(), Accounts: []registry.Account{huntedPush, huntedPull}})
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	own := *common
	own.patience = 3 * buildPatience // they wait for other builds
	own.host = serveInside(t, statusOf(t), handler)
	v := &vault{builds: &own, outside: strings.TrimPrefix(server.URL, "http://")}
	references := tinyFixtures(t)
	own.base = v.put(t, "os/base", common.read(t, references.OS[fixtures.RHEL9]))
	v.packages = v.put(t, "os/extensions", common.read(t, references.Extensions[fixtures.RHEL9]))
	v.hunter = v.put(t, "tools/hunter", hunterImage(t))
	for secret, account := range map[string]registry.Account{"hunted-push": huntedPush, "hunted-pull": huntedPull} {
		config, err := account.DockerConfig(own.host)
		require.NoError(t, err)
		own.secret(t, secret, config)
	}
	return v
}

// hunterImage has the program that looks for secrets and nothing else.
func hunterImage(t *testing.T) v1.Image {
	t.Helper()
	program := filepath.Join(t.TempDir(), "hunter")
	compile := exec.CommandContext(t.Context(), "go", "build", "-o", program, "./test/e2e/hunter")
	compile.Dir, compile.Env = repository, append(os.Environ(), "CGO_ENABLED=0")
	out, err := compile.CombinedOutput()
	require.NoError(t, err, string(out))
	image, err := binimage.Build(binimage.Options{Binary: program})
	require.NoError(t, err)
	return image
}

func (v *vault) login() remote.Option {
	return remote.WithAuth(huntedPush.Login())
}

// put pushes an image, and gives its name by digest as builds know it.
func (v *vault) put(t *testing.T, path string, image v1.Image) (pinned string) {
	t.Helper()
	digest, err := image.Digest()
	require.NoError(t, err)
	ref, err := name.NewDigest(v.outside + "/" + path + "@" + digest.String())
	require.NoError(t, err)
	require.NoError(t, remote.Write(ref, image, v.login(), remote.WithContext(t.Context())))
	return v.host + "/" + path + "@" + digest.String()
}

// get is an image of the vault's.
func (v *vault) get(t *testing.T, pinned string) v1.Image {
	t.Helper()
	ref, err := name.NewDigest(strings.Replace(pinned, v.host, v.outside, 1))
	require.NoError(t, err)
	image, err := remote.Image(ref, v.login(), remote.WithContext(t.Context()))
	require.NoError(t, err)
	return image
}

// input makes an object that RUN lines can use.
func (v *vault) input(t *testing.T, object client.Object) {
	t.Helper()
	object.SetNamespace(stack.Namespace)
	require.NoError(t, v.Create(t.Context(), object))
	t.Cleanup(func() { require.NoError(t, v.Delete(context.WithoutCancel(t.Context()), object)) })
}

// hunting uses what is there to be used, and looks for what is not.
const hunting = `FROM HUNTER AS hunter
FROM os-base-image
RUN <<EOF
set -eu
grep -c planted /etc/pki/entitlement/key.pem /etc/yum.repos.d/our.repo /etc/pki/rpm-gpg/RPM-GPG-KEY-our > /usr/share/used
echo more >> /etc/pki/entitlement/key.pem
echo mine > /etc/pki/rpm-gpg/mine
rpm -q usbguard
EOF
COPY --from=hunter /usr/bin/hunter /usr/bin/hunter
RUN ["/usr/bin/hunter", "/usr/share/hunted"]
`

// testRunLinesFindNoSecret has a RUN line look for the passwords of the pull and the push secret,
// for tokens and for keys, wherever it gets, in both ways in which builds are kept from their node.
// It finds what is there for RUN lines, and nothing else; and nothing of that is in the image.
func testRunLinesFindNoSecret(t *testing.T) {
	v := newVault(t)
	v.input(t, &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: backend.InputYumRepos}, Data: map[string]string{"our.repo": "[our]\nenabled=0\n#" + planted + "repository\n"},
	})
	v.input(t, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: backend.InputRPMKeys}, StringData: map[string]string{"RPM-GPG-KEY-our": planted + "key\n"},
	})
	for pool, isolation := range map[string]backend.Isolation{
		"hunted-namespace": backend.IsolationUserNamespace, "hunted-capabilities": backend.IsolationCapabilities,
	} {
		t.Run(string(isolation), func(t *testing.T) {
			t.Parallel()
			v.input(t, &corev1.Secret{
				ObjectMeta: metav1.ObjectMeta{Name: backend.InputEntitlement + "-" + pool},
				StringData: map[string]string{"key.pem": "-----BEGIN RSA PRIVATE KEY-----\n" + planted + "entitlement\n"},
			})
			p := v.unasked(t, pool, func(mc *mcfgv1.MachineConfig) {
				mc.Spec.Extensions, mc.Spec.BaseOSExtensionsContainerImage = []string{"usbguard"}, v.packages
			})
			p.ask(containing(strings.ReplaceAll(hunting, "HUNTER", v.hunter)), func(c *mcfgv1.MachineOSConfig) {
				c.Spec.BaseImagePullSecret.Name, c.Spec.RenderedImagePushSecret.Name = "hunted-pull", "hunted-push"
				if isolation == backend.IsolationCapabilities { // which builds get where nothing is known of their nodes
					c.Spec.BuildPlacement = &mcfgv1.BuildPlacement{NodeSelector: map[string]string{huntedLabel: "here"}}
				}
			})
			job := p.job()
			assert.Regexp(t, "^"+string(isolation)+`\b`, job.Annotations[mcfgv1.AnnotationBuildIsolation])
			if isolation == backend.IsolationCapabilities {
				v.labelNode(t, `"here"`)
				t.Cleanup(func() { v.labelNode(t, "null") })
			}
			p.says(status.Ready, "True Succeeded")
			v.requireNothingFound(t, v.get(t, string(p.config(t).Status.CurrentImagePullSpec)), wayOut[isolation])
		})
	}
}

// huntedLabel marks the node that a build waits for.
const huntedLabel = "layerwright.test/hunted"

func (v *vault) labelNode(t *testing.T, value string) {
	t.Helper()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node1"}}
	patch := []byte(`{"metadata":{"labels":{"` + huntedLabel + `":` + value + `}}}`)
	require.NoError(t, v.Patch(context.WithoutCancel(t.Context()), node, client.RawPatch(types.MergePatchType, patch)))
}

// job waits for the Job of the pool's build.
func (p *layered) job() *batchv1.Job {
	p.t.Helper()
	var found *batchv1.Job
	p.eventually(func(t *assert.CollectT) {
		builds := p.machineOSBuilds(p.t.Context(), t)
		require.NotEmpty(t, builds)
		var err error
		found, err = clients(p.t).BatchV1().Jobs(stack.Namespace).Get(p.t.Context(), "build-"+builds[0].Name, metav1.GetOptions{})
		require.NoError(t, err)
	})
	return found
}

// allowed is what the hunter finds in any case: inputs, where they are for RUN lines, and the prey
// that it lets loose itself, by which it proves that it looks into environments and memory.
var allowed = []string{
	"found a private key /etc/pki/entitlement/key.pem", "found entitlement /etc/pki/entitlement/key.pem", "found key /etc/pki/rpm-gpg/RPM-GPG-KEY-our",
	"found repository /etc/yum.repos.d/our.repo", "found environ exe/environ", "found environ exe/mem",
}

// wayOut is what comes of leaving the root that Buildah gives a RUN line. In the pod's own user
// namespace that leads into the container of the step, where the same inputs are.
var wayOut = map[backend.Isolation][]string{
	backend.IsolationUserNamespace: {
		"got outside", "found a private key outside:/etc/layerwright/inputs/etc-pki-entitlement/key.pem",
		"found entitlement outside:/etc/layerwright/inputs/etc-pki-entitlement/key.pem", "found key outside:/etc/layerwright/inputs/etc-pki-rpm-gpg/RPM-GPG-KEY-our",
		"found repository outside:/etc/layerwright/inputs/etc-yum-repos-d/our.repo",
	},
	backend.IsolationCapabilities: {"stayed inside: there is nothing above"},
}

// How the kubelet and the kernel call what has a name of its own.
var (
	versions = regexp.MustCompile(`/\.\.[0-9_.]+/`)
	perRoot  = regexp.MustCompile(`/proc/\d+/(root|cwd)/`)
	counts   = regexp.MustCompile(`(?m)^looked .*\n`)
)

// requireNothingFound reads what the RUN lines left in an image.
func (v *vault) requireNothingFound(t *testing.T, image v1.Image, outside []string) {
	t.Helper()
	content := contentOf(t, image)
	assert.Equal(t, "/etc/pki/entitlement/key.pem:1\n/etc/yum.repos.d/our.repo:1\n/etc/pki/rpm-gpg/RPM-GPG-KEY-our:1\n", content["usr/share/used"])
	t.Logf("%s", content["usr/share/hunted"])
	told := versions.ReplaceAllString(perRoot.ReplaceAllString(counts.ReplaceAllString(content["usr/share/hunted"], ""), "/"), "/")
	assert.ElementsMatch(t, slices.Concat(allowed, outside), strings.Split(strings.TrimSpace(told), "\n"))

	base, err := v.get(t, v.base).Layers()
	require.NoError(t, err)
	layers, err := image.Layers()
	require.NoError(t, err)
	for _, layer := range layers[len(base):] {
		archive, err := layer.Uncompressed()
		require.NoError(t, err)
		for path, text := range filesOf(t, archive) {
			requireNoSecret(t, path, text)
			for _, place := range []string{"etc/pki", "etc/yum.repos.d"} {
				assert.False(t, strings.HasPrefix(path+"/", place+"/"), "%s: not even an empty folder is left", path)
			}
		}
		require.NoError(t, archive.Close())
	}
	for what, read := range map[string]func() ([]byte, error){"config": image.RawConfigFile, "manifest": image.RawManifest} {
		text, err := read()
		require.NoError(t, err)
		requireNoSecret(t, what, string(text))
	}
}

func requireNoSecret(t *testing.T, where, text string) {
	t.Helper()
	if strings.Contains(text, planted) {
		assert.Fail(t, "a secret is in the image", where)
	}
	for _, account := range []registry.Account{huntedPush, huntedPull} {
		if strings.Contains(text, base64.StdEncoding.EncodeToString([]byte(account.Name+":"+account.Password))) {
			assert.Fail(t, "a login is in the image", where)
		}
	}
}
