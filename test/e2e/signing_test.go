//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/vincent-petithory/dataurl"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	mcfgv1alpha1 "github.com/layerwright/layerwright/api/machineconfiguration/v1alpha1"
	"github.com/layerwright/layerwright/images/provenance"
	"github.com/layerwright/layerwright/internal/status"
	"github.com/layerwright/layerwright/test/buildah"
	"github.com/layerwright/layerwright/test/cluster/faultproxy"
	"github.com/layerwright/layerwright/test/cluster/stack"
	"github.com/layerwright/layerwright/test/cosign"
	"github.com/layerwright/layerwright/trust/sign"
	"github.com/layerwright/layerwright/trust/signaturepolicy"
)

// signingKey is the secret with the key, in deploy/components/signing.
const signingKey = "layerwright-signing-key"

// testImagesAreSigned follows the key of a cluster from the empty secret to its exchange, and what
// it has signed with cosign and, as nodes do it, with the library that pulls.
func testImagesAreSigned(t *testing.T) {
	b := newBuilds(t)
	b.emptyKey(t)
	direct := *b // as nodes know the registry
	direct.base, direct.host = tinyImage(t), statusOf(t).Registry
	p, contained := direct.unasked(t, "signed-image"), b.unasked(t, "signed-content")
	hold, held := faultproxy.HoldRequest()
	contained.breaking(contained.clientRule(byPod, writeTags, hold))
	contained.ask(containing("FROM os-base-image\nRUN echo built > /usr/share/built\n"))
	p.ask(func(c *mcfgv1.MachineOSConfig) {
		c.Spec.BaseImagePullSecret.Name, c.Spec.RenderedImagePushSecret.Name = stack.PullSecret, stack.PushSecret
		c.Spec.Retention = &mcfgv1.Retention{SuccessfulBuilds: new(int32(10))} // older images are looked at, too
	})
	first := p.ready("")
	hunt := newHunt(t, p)

	t.Run("with a key that was made in the empty secret", func(t *testing.T) {
		secret := b.key(t)
		assert.Len(t, secret.Data, 3)
		key, err := sign.LoadKey(secret.Data[sign.SecretPrivateKey], secret.Data[sign.SecretPassword])
		require.NoError(t, err)
		assert.Equal(t, string(secret.Data[sign.SecretPublicKey]), string(key.Public().PEM()))
		p.requireVerified(first)
	})
	t.Run("with content that a pod has built", func(t *testing.T) {
		<-held.Arrived
		hunt.cluster(t) // before the pod goes
		held.Release()
		contained.requireVerified(contained.ready(""))
	})
	t.Run("and no others", func(t *testing.T) {
		for what, evil := range map[string]string{"a layer more": p.pushTampered(t, first), "the base image": p.pushBase(t)} {
			_, err := b.cosign(t).Try(t.Context(), cosign.Documented(t, evil, "verify")...)
			require.ErrorContains(t, err, "no signatures found", what)
		}
	})

	p.deleteSignature(first)
	elsewhere := b.imported(t)
	elsewhere.writePolicy(elsewhere.entry(elsewhere.right.Public))
	b.restart(t, "--enforce-signatures", trustPolicy)
	enforced := p.ready(first)
	t.Run("again where someone deleted the signature", func(*testing.T) {
		p.eventually(func(t *assert.CollectT) { assert.Contains(t, p.allTags(), attachedTo(first, "sig")) })
		p.requireVerified(first)
	})
	t.Run("and nodes take no others", func(t *testing.T) {
		p.requireVerified(enforced)
		node := p.node(t)
		for _, good := range []string{enforced, first, p.host + "/" + imagesPath + "/" + p.name + ":" + p.name} {
			node.Run("pull", "--quiet", good)
		}
		for what, evil := range map[string]string{"a layer more": p.pushTampered(t, enforced), "the base image": p.pushBase(t)} {
			_, err := node.Try("pull", "--quiet", evil)
			require.ErrorContains(t, err, "Source image rejected: A signature was required, but no signature exists", what)
		}
		node.Run("pull", "--quiet", p.base)
	})
	t.Run("but what the trust policy trusts", func(t *testing.T) {
		node := p.node(t)
		elsewhere.pinned = elsewhere.push(t, p.image(t, p.base))
		pull := func() error {
			_, err := node.Try("pull", "--quiet", elsewhere.pinned)
			return err
		}
		require.ErrorContains(t, pull(), "A signature was required, but no signature exists")
		elsewhere.sign(elsewhere.wrong)
		require.ErrorContains(t, pull(), "cryptographic signature verification failed")
		elsewhere.sign(elsewhere.right)
		require.NoError(t, pull())
	})
	t.Run("while the key is rotated", func(t *testing.T) { p.rotateKeys(t, enforced) })

	for _, one := range []*layered{p, contained} {
		hunt.registry(t, one)
	}
	hunt.cluster(t)
	hunt.requireNothing(t)
}

// rotateKeys does what docs/signing.md says about it, step by step.
func (p *layered) rotateKeys(t *testing.T, before string) {
	t.Helper()
	old := p.key(t)
	password := []byte("hunter2-exchanged")
	private, public, err := sign.GenerateKey(password)
	require.NoError(t, err)

	p.setKey(t, func(data map[string][]byte) { data[sign.SecretTrusted] = public })
	p.write("overlap") // which also has the policy looked at, sooner than within a minute
	p.eventually(func(t *assert.CollectT) { assert.Len(t, p.trusted(t), 2) })
	overlap := p.readyAs("overlap")
	p.requireVerified(overlap)

	p.setKey(t, func(data map[string][]byte) {
		data[sign.SecretPrivateKey], data[sign.SecretPassword], data[sign.SecretPublicKey] = private, password, public
		data[sign.SecretTrusted] = old.Data[sign.SecretPublicKey]
	})
	p.write("exchanged")
	after := p.readyAs("exchanged")
	p.requireVerified(after)
	node := p.node(t)
	for _, image := range []string{before, overlap, after} {
		node.Run("pull", "--quiet", image)
	}
	_, err = p.cosign(t).Try(t.Context(), cosign.Documented(t, p.behind(t, before).String(), "verify")...)
	require.ErrorContains(t, err, "no matching signatures", "it is signed with the old key alone")

	p.restart(t) // which looks at all images, sooner than within ten minutes
	for _, image := range []string{before, overlap} {
		p.eventually(func(t *assert.CollectT) { assert.Equal(t, 2, p.signatures(t, image)) })
		p.requireVerified(image)
	}
	p.setKey(t, func(data map[string][]byte) { delete(data, sign.SecretTrusted) })
	p.restart(t, "--enforce-signatures")
	p.eventually(func(t *assert.CollectT) { assert.Len(t, p.trusted(t), 1) })
	p.readyAs("exchanged")
	node = p.node(t)
	for _, image := range []string{before, overlap, after} {
		node.Run("pull", "--quiet", image)
	}
}

// clientRule is a rule about requests of one client.
func (p *layered) clientRule(client string, m moment, fault faultproxy.Fault) faultproxy.Rule {
	rule := p.rule(m, 0, fault)
	rule.Client = client
	return rule
}

// key is the secret with the signing key.
func (b *builds) key(t *testing.T) *corev1.Secret {
	t.Helper()
	secret := &corev1.Secret{}
	require.NoError(t, b.Get(t.Context(), client.ObjectKey{Namespace: stack.Namespace, Name: signingKey}, secret))
	return secret
}

// setKey changes what the secret has.
func (b *builds) setKey(t *testing.T, edit func(data map[string][]byte)) {
	t.Helper()
	require.NoError(t, retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		secret := b.key(t)
		edit(secret.Data)
		return b.Update(t.Context(), secret)
	}))
}

// emptyKey takes the key away, so that another one is made.
func (b *builds) emptyKey(t *testing.T) {
	t.Helper()
	b.setKey(t, func(data map[string][]byte) { clear(data) })
}

// restart has a new controller run with arguments beside the usual ones, until the test ends.
func (b *builds) restart(t *testing.T, arguments ...string) {
	t.Helper()
	isChanged := false
	usual := func(args []string) []string {
		return slices.DeleteFunc(slices.Clone(args), func(argument string) bool { return argument == "--enforce-signatures" || argument == trustPolicy })
	}
	b.setArguments(t, func(args []string) []string {
		isChanged = len(args) == len(usual(args)) && len(arguments) > 0
		return append(usual(args), arguments...)
	})
	if isChanged {
		t.Cleanup(func() { b.setArguments(t, usual) })
	}
}

// setArguments changes what the controller is started with, and waits until it runs so. It is
// restarted where nothing changes too.
func (b *builds) setArguments(t *testing.T, change func([]string) []string) {
	t.Helper()
	b.setPod(t, func(pod *corev1.PodSpec) { pod.Containers[0].Args = change(pod.Containers[0].Args) })
}

// setPod changes the pod that the controller runs in, and waits as setArguments does.
func (b *builds) setPod(t *testing.T, change func(*corev1.PodSpec)) {
	t.Helper()
	deployments := b.clients.AppsV1().Deployments(stack.Namespace)
	ctx := context.WithoutCancel(t.Context()) // it is cleaning up, too
	var wanted int64
	require.NoError(t, retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		deployment, err := deployments.Get(ctx, stack.ControllerName, metav1.GetOptions{})
		if err != nil {
			return err
		}
		change(&deployment.Spec.Template.Spec)
		metav1.SetMetaDataAnnotation(&deployment.Spec.Template.ObjectMeta, "layerwright.test/restarted", string(deployment.UID)+deployment.ResourceVersion)
		deployment, err = deployments.Update(ctx, deployment, metav1.UpdateOptions{})
		if err == nil {
			wanted = deployment.Generation
		}
		return err
	}))
	b.runs(t, wanted)
}

// runs waits until the controller runs as a generation of its Deployment wants it.
func (b *builds) runs(t *testing.T, wanted int64) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		now, err := b.clients.AppsV1().Deployments(stack.Namespace).Get(ctx, stack.ControllerName, metav1.GetOptions{})
		require.NoError(c, err)
		assert.GreaterOrEqual(c, now.Status.ObservedGeneration, wanted)
		assert.Equal(c, []int32{1, 1, 1}, []int32{now.Status.Replicas, now.Status.UpdatedReplicas, now.Status.AvailableReplicas})
	}, buildPatience, buildTick)
}

// cosign is the program, which may pull, with the public key of the cluster in cosign.pub.
func (b *builds) cosign(t *testing.T) *cosign.Cosign {
	t.Helper()
	login, err := os.ReadFile(named(t, b.cluster).DockerConfig("pull") + "/config.json")
	require.NoError(t, err)
	program := cosign.New(t, cosign.Options{Login: login, CA: b.status.RegistryCA})
	program.Write("cosign.pub", b.publicKey(t))
	return program
}

// publicKey is what images are verified with, in PEM: that of the service, or else of the secret.
func (b *builds) publicKey(t *testing.T) []byte {
	t.Helper()
	if b.servicesKey != nil {
		return b.servicesKey
	}
	return b.key(t).Data[sign.SecretPublicKey]
}

// requireVerified makes sure that an image is signed and attested with the cluster's key: its
// object says so, and cosign finds so.
func (p *layered) requireVerified(pinned string) {
	p.t.Helper()
	keys, err := sign.ParsePublicKeys(p.publicKey(p.t))
	require.NoError(p.t, err)
	p.eventually(func(t *assert.CollectT) {
		image := p.objectOf(t, pinned)
		require.Equal(t, "True Signed", conditionText(image.Status.Conditions, mcfgv1alpha1.ImageSigned))
		require.NotNil(t, image.Status.Signature)
		assert.Equal(t, keys[0].ID(), image.Status.Signature.KeyID)
		assert.Equal(t, repositoryOf(pinned)+":"+attachedTo(pinned, "sig"), image.Status.Signature.Reference)
	})
	p.requireProvenance(pinned, p.requireSigned(pinned))
}

// requireSigned makes sure that cosign finds an image, which may be the one for an architecture of
// another, signed, with an SBOM and provenance, which it gives.
func (p *layered) requireSigned(pinned string) (said provenance.Predicate) {
	p.t.Helper()
	out := p.cosign(p.t).Run(cosign.Documented(p.t, p.behind(p.t, pinned).String(), "verify")...)
	var payloads []struct {
		Critical struct {
			Identity struct {
				Repository string `json:"docker-reference"`
			} `json:"identity"`
			Image struct {
				Digest string `json:"docker-manifest-digest"`
			} `json:"image"`
		} `json:"critical"`
	}
	require.NoError(p.t, json.Unmarshal([]byte(out), &payloads))
	require.Len(p.t, payloads, 1)
	assert.Equal(p.t, digestIn(pinned), payloads[0].Critical.Image.Digest)
	assert.Equal(p.t, repositoryOf(pinned), payloads[0].Critical.Identity.Repository)
	var sbom struct {
		Version string `json:"spdxVersion"`
	}
	p.stated(pinned, "spdxjson", &sbom)
	assert.Equal(p.t, "SPDX-2.3", sbom.Version)
	p.stated(pinned, "slsaprovenance1", &said)
	return said
}

// requireProvenance compares what is stated about the making of an image with the objects in the
// cluster.
func (p *layered) requireProvenance(pinned string, said provenance.Predicate) {
	p.t.Helper()
	image := p.objectOf(p.t, pinned)
	var build *mcfgv1.MachineOSBuild
	for _, b := range p.machineOSBuilds(p.t.Context(), p.t) {
		if string(b.Status.DigestedImagePushSpec) == pinned {
			build = &b
		}
	}
	require.NotNil(p.t, build)
	definition, run := said.BuildDefinition, said.RunDetails
	assert.Equal(p.t, provenance.BuildTypeImage, definition.BuildType)
	assert.Equal(p.t, p.name, definition.ExternalParameters.MachineConfigPool)
	assert.Equal(p.t, p.name, definition.ExternalParameters.MachineOSConfig)
	assert.Equal(p.t, build.Status.BuildKey, definition.InternalParameters.BuildKey)
	assert.Equal(p.t, image.Spec.RenderedMachineConfig, definition.InternalParameters.MachineConfig)
	assert.Equal(p.t, build.Name+"/"+string(build.UID), run.Metadata.InvocationID)
	assert.Equal(p.t, build.Status.BuildStart.Unix(), run.Metadata.StartedOn.Unix())
	var digests []string
	for _, one := range definition.ResolvedDependencies {
		digests = append(digests, "sha256:"+one.Digest["sha256"])
	}
	assert.Contains(p.t, digests, digestIn(p.base))
}

// requirePulled makes sure that the provenance of an image and of its content, as cosign verifies
// them, has the images that a pod has pulled for it and no others, by the names that the
// Containerfile has.
func (p *layered) requirePulled(pinned string, want map[string]string) {
	p.t.Helper()
	var said provenance.Predicate
	p.stated(pinned, "slsaprovenance1", &said)
	var content string
	for _, one := range said.BuildDefinition.ResolvedDependencies {
		if one.Name == "content image" {
			content = strings.TrimPrefix(one.URI, "oci://") + "@sha256:" + one.Digest["sha256"]
		}
	}
	require.NotEmpty(p.t, content)
	var below provenance.Predicate
	p.stated(content, "slsaprovenance1", &below)
	assert.Equal(p.t, provenance.BuildTypeContent, below.BuildDefinition.BuildType)
	for _, predicate := range []provenance.Predicate{said, below} {
		got := map[string]string{}
		for _, one := range predicate.BuildDefinition.ResolvedDependencies {
			if one.Annotations == nil {
				continue
			}
			image := strings.TrimPrefix(one.URI, "oci://") + "@sha256:" + one.Digest["sha256"]
			got[one.Annotations.Reference] = image
			assert.Equal(p.t, "amd64", one.Annotations.Architecture)
			digest, err := p.image(p.t, image).Digest()
			require.NoError(p.t, err)
			assert.Equal(p.t, digest.String(), one.Annotations.Manifest)
		}
		assert.Equal(p.t, want, got)
	}
}

// stated reads what cosign finds to be stated about an image.
func (p *layered) stated(pinned, kind string, predicate any) {
	p.t.Helper()
	out := p.cosign(p.t).Run(cosign.Documented(p.t, p.behind(p.t, pinned).String(), "verify-attestation", "--type", kind)...)
	var envelope struct {
		Payload []byte `json:"payload"`
	}
	require.NoError(p.t, json.NewDecoder(strings.NewReader(out)).Decode(&envelope))
	var statement struct {
		Subject []struct {
			Digest map[string]string `json:"digest"`
		} `json:"subject"`
		Predicate json.RawMessage `json:"predicate"`
	}
	require.NoError(p.t, json.Unmarshal(envelope.Payload, &statement))
	var subjects []string
	for _, subject := range statement.Subject {
		subjects = append(subjects, "sha256:"+subject.Digest["sha256"])
	}
	assert.Contains(p.t, subjects, digestIn(pinned))
	require.NoError(p.t, json.Unmarshal(statement.Predicate, predicate))
}

// objectOf is the MachineOSImage of an image.
func (p *layered) objectOf(t require.TestingT, pinned string) *mcfgv1alpha1.MachineOSImage {
	for _, image := range p.machineOSImages(p.t.Context(), t) {
		if string(image.Spec.PullSpec) == pinned {
			return &image
		}
	}
	require.Fail(t, "no MachineOSImage", pinned)
	return nil
}

func repositoryOf(pinned string) string {
	repository, _, _ := strings.Cut(pinned, "@")
	return repository
}

// attachedTo is the tag of what cosign attaches to an image.
func attachedTo(pinned, suffix string) string {
	return strings.Replace(digestIn(pinned), ":", "-", 1) + "." + suffix
}

// signatures is how many signatures an image has.
func (p *layered) signatures(t require.TestingT, pinned string) int {
	ref, err := name.ParseReference(p.behind(t, repositoryOf(pinned)+":"+attachedTo(pinned, "sig")).String())
	require.NoError(t, err)
	image, err := remote.Image(ref, p.registry.Options(p.t.Context(), "pull")...)
	require.NoError(t, err)
	layers, err := image.Layers()
	require.NoError(t, err)
	return len(layers)
}

func (p *layered) deleteSignature(pinned string) {
	p.t.Helper()
	options := p.registry.Options(p.t.Context(), "push")
	ref := p.behind(p.t, repositoryOf(pinned)+":"+attachedTo(pinned, "sig"))
	found, err := remote.Head(ref, options...)
	require.NoError(p.t, err)
	require.NoError(p.t, remote.Delete(ref.Context().Digest(found.Digest.String()), options...))
	require.NotContains(p.t, p.allTags(), attachedTo(pinned, "sig"))
}

// pushTampered pushes an image of the pool's with a layer more, into its repository.
func (p *layered) pushTampered(t *testing.T, pinned string) string {
	t.Helper()
	evil, err := mutate.AppendLayers(p.image(t, pinned), static.NewLayer([]byte("evil"), types.OCIUncompressedLayer))
	require.NoError(t, err)
	return p.pushEvil(t, evil)
}

// pushBase pushes an image that is good for other things into the repository of the pool.
func (p *layered) pushBase(t *testing.T) string {
	t.Helper()
	return p.pushEvil(t, p.image(t, p.base))
}

// pushEvil pushes what no one signs, and has it removed in the end.
func (p *layered) pushEvil(t *testing.T, image v1.Image) string {
	t.Helper()
	digest, err := image.Digest()
	require.NoError(t, err)
	options := p.registry.Options(context.WithoutCancel(t.Context()), "push")
	repository, err := name.NewRepository(p.registry.Host + "/" + imagesPath + "/" + p.name)
	require.NoError(t, err)
	require.NoError(t, remote.Write(repository.Tag("evil"), image, options...))
	t.Cleanup(func() { require.NoError(t, remote.Delete(repository.Digest(digest.String()), options...)) })
	return repository.Digest(digest.String()).String()
}

// readyAs waits until the pool has the image of its configuration, and this says something.
func (p *layered) readyAs(content string) (image string) {
	p.t.Helper()
	p.eventually(func(t *assert.CollectT) {
		config, rendered := p.config(t), p.rendered()
		require.Equal(t, "True Succeeded", conditionText(config.Status.Conditions, status.Ready))
		image = string(config.Status.CurrentImagePullSpec)
		require.Equal(t, rendered, p.objectOf(t, image).Spec.RenderedMachineConfig)
		require.Equal(t, content, p.inImage(t, image, "etc/motd"))
	})
	return image
}

// inImage is a file in the highest layer of an image.
func (p *layered) inImage(t require.TestingT, pinned, path string) string {
	layers, err := p.image(t, pinned).Layers()
	require.NoError(t, err)
	content, err := layers[len(layers)-1].Uncompressed()
	require.NoError(t, err)
	defer func() { _ = content.Close() }()
	return fileIn(t, content, path)
}

// policyFiles are what the pool's rendered MachineConfig has nodes trust, by path.
func (p *layered) policyFiles(t require.TestingT) map[string][]byte {
	rendered := &mcfgv1.MachineConfig{}
	require.NoError(t, p.Get(p.t.Context(), client.ObjectKey{Name: p.rendered()}, rendered))
	var config struct {
		Storage struct {
			Files []struct {
				Path     string `json:"path"`
				Contents struct {
					Source string `json:"source"`
				} `json:"contents"`
			} `json:"files"`
		} `json:"storage"`
	}
	require.NoError(t, json.Unmarshal(rendered.Spec.Config.Raw, &config))
	files := map[string][]byte{}
	for _, file := range config.Storage.Files {
		if file.Path == signaturepolicy.PolicyPath || file.Path == signaturepolicy.RegistryPath {
			content, err := dataurl.DecodeString(file.Contents.Source)
			require.NoError(t, err)
			files[file.Path] = content.Data
		}
	}
	require.Len(t, files, 2)
	return files
}

// trusted are the keys whose signatures the pool's nodes take, in base64.
func (p *layered) trusted(t require.TestingT) []string {
	var policy struct {
		Transports map[string]map[string][]struct {
			KeyData  string   `json:"keyData"`
			KeyDatas []string `json:"keyDatas"`
		} `json:"transports"`
	}
	require.NoError(t, json.Unmarshal(p.policyFiles(t)[signaturepolicy.PolicyPath], &policy))
	about := policy.Transports["docker"][p.host+"/"+imagesPath+"/"+p.name]
	require.Len(t, about, 1)
	if about[0].KeyData != "" {
		return []string{about[0].KeyData}
	}
	return about[0].KeyDatas
}

// node pulls images as a node of the pool does.
func (p *layered) node(t *testing.T) *buildah.Buildah {
	t.Helper()
	files := p.policyFiles(t)
	image := string(p.config(t).Status.CurrentImagePullSpec)
	for path, content := range files {
		require.Equal(t, string(content), p.inImage(t, image, strings.TrimPrefix(path, "/")), "the image has what the configuration has")
	}
	node := buildah.New(t, buildah.Options{Host: p.host, Login: p.credentials(t, "pull"), CA: p.status.RegistryCA})
	node.Obey(files)
	return node
}
