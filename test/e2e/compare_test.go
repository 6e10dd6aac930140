//go:build e2e

package e2e

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/compression"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/internal/status"
	"github.com/layerwright/layerwright/test/buildah"
	"github.com/layerwright/layerwright/test/cluster/stack"
)

// Paths of what Layerwright adds to every image, and what an administrator would not.
const (
	recordDir  = "etc/machine-config-daemon"
	recordFile = recordDir + "/currentconfig"
	presetFile = "etc/systemd/system-preset/10-machineconfigs.preset"
)

// testImagesEqualThoseBuiltSlowly has the controller make an image of each configuration, and
// Buildah another one, by what an administrator would do in a container. Buildah then pulls and
// mounts both, and they have to be the same file by file.
func testImagesEqualThoseBuiltSlowly(t *testing.T) {
	bench := newComparing(t)
	for name, c := range comparisons() {
		bench.ask(t, "files-"+name, bench.bases["oci-gzip"], c)
	}
	formats := []string{"oci-gzip", "oci-zstd", "docker-gzip"}
	for _, format := range formats {
		bench.ask(t, "format-"+format, bench.bases[format], everything())
	}
	for name, c := range comparisons() {
		t.Run(name, func(t *testing.T) { bench.compare(t, bench.image(t, "files-"+name), bench.bases["oci-gzip"], c) })
	}
	for _, format := range formats {
		t.Run("over "+format, func(t *testing.T) {
			bench.compare(t, bench.image(t, "format-"+format), bench.bases[format], everything())
			bench.requireFormat(t, bench.image(t, "format-"+format), bench.bases[format])
		})
		t.Run("over an image that Layerwright made in "+format, func(t *testing.T) {
			// None of the older configuration may be left, so the slow build starts from the OS
			// image.
			c := comparisons()["replaced"]
			bench.ask(t, "again-"+format, bench.image(t, "format-"+format), c)
			bench.compare(t, bench.image(t, "again-"+format), bench.bases[format], c)
		})
	}
}

// comparing is a cluster with base images, and a Buildah.
type comparing struct {
	client   client.Client
	host     string
	registry *stack.Registry
	buildah  *buildah.Buildah
	bases    map[string]string // by format
}

func newComparing(t *testing.T) *comparing {
	t.Helper()
	controllerPod(t) // it is running
	scheme := runtime.NewScheme()
	require.NoError(t, mcfgv1.AddToScheme(scheme))
	require.NoError(t, corev1.AddToScheme(scheme))
	c := &comparing{}
	var err error
	c.client, err = client.New(config(t), client.Options{Scheme: scheme})
	require.NoError(t, err)
	c.registry, err = shared(t).Registry(t.Context())
	require.NoError(t, err)
	c.host = c.registry.Host
	state, err := shared(t).Status(t.Context())
	require.NoError(t, err)
	login := &corev1.Secret{}
	require.NoError(t, c.client.Get(t.Context(), client.ObjectKey{Namespace: stack.Namespace, Name: stack.PullSecret}, login))
	c.buildah = buildah.New(t, buildah.Options{Host: c.host, Login: login.Data[corev1.DockerConfigJsonKey], CA: state.RegistryCA})
	c.pushBases(t)
	return c
}

// ask makes a pool with a MachineConfig, and a MachineOSConfig for it.
func (c *comparing) ask(t *testing.T, name, base string, about comparison) {
	t.Helper()
	text := "ignition: {version: 3.5.0}\n"
	if about.storage != "" {
		text += "storage:" + indented(about.storage)
	}
	if about.units != "" {
		text += "systemd:\n  units:" + indented(about.units)
	}
	raw, err := yaml.YAMLToJSON([]byte(text))
	require.NoError(t, err)
	for _, object := range []client.Object{
		&mcfgv1.MachineConfig{
			ObjectMeta: metav1.ObjectMeta{Name: "50-" + name, Labels: map[string]string{mcfgv1.LabelRole: name}},
			Spec:       mcfgv1.MachineConfigSpec{OSImageURL: base, Config: runtime.RawExtension{Raw: raw}},
		},
		&mcfgv1.MachineConfigPool{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: mcfgv1.MachineConfigPoolSpec{
			MachineConfigSelector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
				{Key: mcfgv1.LabelRole, Operator: metav1.LabelSelectorOpIn, Values: []string{mcfgv1.PoolWorker, name}},
			}},
			NodeSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"node-role.kubernetes.io/" + name: ""}},
		}},
		&mcfgv1.MachineOSConfig{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: mcfgv1.MachineOSConfigSpec{
			MachineConfigPool:       mcfgv1.MachineConfigPoolReference{Name: name},
			ImageBuilder:            mcfgv1.MachineOSImageBuilder{ImageBuilderType: mcfgv1.JobBuilder},
			BaseImagePullSecret:     &mcfgv1.ImageSecretObjectReference{Name: stack.PullSecret},
			RenderedImagePushSecret: mcfgv1.ImageSecretObjectReference{Name: stack.PushSecret},
			RenderedImagePushSpec:   mcfgv1.ImageTagFormat(c.host + "/compare/" + name + ":latest"),
		}},
	} {
		require.NoError(t, c.client.Create(t.Context(), object))
		t.Cleanup(func() { c.remove(t, object) })
	}
}

// remove deletes an object and waits until it is gone: a pool has to outlive its MachineOSConfig.
func (c *comparing) remove(t *testing.T, object client.Object) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	require.NoError(t, c.client.Delete(ctx, object))
	require.EventuallyWithT(t, func(collect *assert.CollectT) {
		assert.True(collect, apierrors.IsNotFound(c.client.Get(ctx, client.ObjectKeyFromObject(object), object)), object.GetFinalizers())
	}, 2*time.Minute, 20*time.Millisecond)
}

// indented is a part of a document at its place.
func indented(text string) string {
	return strings.ReplaceAll(strings.TrimSuffix(text, "\n"), "\n", "\n  ") + "\n"
}

// image waits for the image of a pool, by digest.
func (c *comparing) image(t *testing.T, name string) string {
	t.Helper()
	found := &mcfgv1.MachineOSConfig{}
	require.EventuallyWithT(t, func(collect *assert.CollectT) {
		require.NoError(collect, c.client.Get(t.Context(), client.ObjectKey{Name: name}, found))
		assert.True(collect, status.IsTrue(found.Status.Conditions, status.Ready), "%+v", found.Status.Conditions)
	}, 2*time.Minute, 50*time.Millisecond)
	return string(found.Status.CurrentImagePullSpec)
}

// compare mounts the image and one that is built by hand, and compares them.
func (c *comparing) compare(t *testing.T, image, base string, by comparison) {
	t.Helper()
	_, root := c.buildah.Container(image)
	got := lookAtImage(t, root)
	for _, path := range by.absent {
		assert.NotContains(t, got, path, "it is the node's")
	}
	assert.Equal(t, "directory 755 0:0", got[recordDir])
	assert.Regexp(t, "^file 600 0:0 ", got[recordFile])
	delete(got, recordDir)
	delete(got, recordFile)

	want := lookAtImage(t, c.byHand(t, base, by))
	for path, is := range want {
		want[path] = strings.Replace(is, "-> /lib/systemd/", "-> /usr/lib/systemd/", 1) // Debian's systemctl says the one for the other
	}
	require.Greater(t, len(want), 100, "that is an operating system") //nolint:mnd // roughly
	if diff := cmp.Diff(want, got); diff != "" {
		assert.Fail(t, "the image differs from the one that was built by hand (-by hand +image)", diff)
	}
}

// byHand builds an image the slow way and gives the root of its container.
func (c *comparing) byHand(t *testing.T, base string, by comparison) (root string) {
	t.Helper()
	container, root := c.buildah.Container(base)
	c.buildah.Run("run", container, "--", "/bin/sh", "-ec", by.by)
	for _, call := range by.systemctl {
		out, err := exec.CommandContext(t.Context(), "systemctl", append([]string{"--root=" + root}, strings.Fields(call)...)...).CombinedOutput()
		require.NoError(t, err, "systemctl %s: %s", call, out)
	}
	if by.presets != "" {
		c.buildah.Run("run", container, "--", "/bin/sh", "-ec", `mkdir -p "$(dirname "$1")"; printf %s "$2" >"$1"`, "sh", "/"+presetFile, by.presets)
	}
	return root
}

// requireFormat checks that the image has the base's kind of manifest and of layers.
func (c *comparing) requireFormat(t *testing.T, image, base string) {
	t.Helper()
	read := func(reference string) (types.MediaType, []types.MediaType) {
		ref, err := name.ParseReference(reference)
		require.NoError(t, err)
		found, err := remote.Image(ref, c.registry.Options(t.Context(), "pull")...)
		require.NoError(t, err)
		manifest, err := found.Manifest()
		require.NoError(t, err)
		var layers []types.MediaType
		for _, layer := range manifest.Layers {
			layers = append(layers, layer.MediaType)
		}
		return manifest.MediaType, layers
	}
	wantType, wantLayers := read(base)
	gotType, gotLayers := read(image)
	assert.Equal(t, wantType, gotType)
	assert.Equal(t, append(wantLayers, wantLayers[0]), gotLayers)
}

// pushBases pushes the tiny OS image, with a layer of what it lacks on top, in all formats.
func (c *comparing) pushBases(t *testing.T) {
	t.Helper()
	ref, err := name.ParseReference(tinyImage(t))
	require.NoError(t, err)
	options := c.registry.Options(t.Context(), "push")
	tiny, err := remote.Image(ref, options...)
	require.NoError(t, err)
	c.bases = map[string]string{}
	for format, is := range map[string]struct {
		manifest, config, layer types.MediaType
		packing                 compression.Compression
	}{
		"oci-gzip":    {types.OCIManifestSchema1, types.OCIConfigJSON, types.OCILayer, compression.GZip},
		"oci-zstd":    {types.OCIManifestSchema1, types.OCIConfigJSON, types.OCILayerZStd, compression.ZStd},
		"docker-gzip": {types.DockerManifestSchema2, types.DockerConfigJSON, types.DockerLayer, compression.GZip},
	} {
		made := mutate.ConfigMediaType(mutate.MediaType(empty.Image, is.manifest), is.config)
		for _, content := range append(uncompressed(t, tiny), peculiarities(t)) {
			layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(content)), nil },
				tarball.WithMediaType(is.layer), tarball.WithCompression(is.packing))
			require.NoError(t, err)
			made, err = mutate.Append(made, mutate.Addendum{Layer: layer, MediaType: is.layer})
			require.NoError(t, err)
		}
		config, err := tiny.ConfigFile()
		require.NoError(t, err)
		now, err := made.ConfigFile()
		require.NoError(t, err)
		now = now.DeepCopy()
		now.OS, now.Architecture, now.Config = config.OS, config.Architecture, config.Config
		made, err = mutate.ConfigFile(made, now)
		require.NoError(t, err)
		tag, err := name.NewTag(c.host + "/compare/base:" + format)
		require.NoError(t, err)
		require.NoError(t, remote.Write(tag, made, options...))
		digest, err := made.Digest()
		require.NoError(t, err)
		c.bases[format] = tag.Digest(digest.String()).String()
	}
	require.Len(t, slices.Compact(slices.Sorted(maps.Values(c.bases))), len(c.bases), "they are different images")
}

func uncompressed(t *testing.T, image v1.Image) (contents [][]byte) {
	t.Helper()
	layers, err := image.Layers()
	require.NoError(t, err)
	for _, layer := range layers {
		r, err := layer.Uncompressed()
		require.NoError(t, err)
		content, err := io.ReadAll(r)
		require.NoError(t, err)
		require.NoError(t, r.Close())
		contents = append(contents, content)
	}
	return contents
}

// peculiarities are a layer of what the tiny image lacks, and real ones have: extended attributes,
// capabilities, odd modes, a masked unit.
func peculiarities(t *testing.T) []byte {
	t.Helper()
	const netRaw = "\x01\x00\x00\x02\x00\x20\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"
	unit := "[Service]\nExecStart=/usr/bin/true\n[Install]\nWantedBy=multi-user.target\n"
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, e := range []struct {
		tar.Header
		content string
	}{
		{Header: tar.Header{Typeflag: tar.TypeDir, Name: "etc/hidden/", Mode: 0o755}},
		{Header: tar.Header{Name: "etc/hidden/file", Mode: 0o644}, content: "hidden by a directory\n"},
		{Header: tar.Header{Typeflag: tar.TypeDir, Name: "etc/marked/", Mode: 0o2775, Gid: 13, PAXRecords: map[string]string{"SCHILY.xattr.user.marked": "1"}}},
		{Header: tar.Header{Name: "etc/attributed.conf", Mode: 0o664, Gid: 992, PAXRecords: map[string]string{"SCHILY.xattr.user.attributed": "2"}}, content: "some\n"},
		{Header: tar.Header{Name: "etc/capable", Mode: 0o755, PAXRecords: map[string]string{"SCHILY.xattr.security.capability": netRaw}}, content: "capable"},
		{Header: tar.Header{Name: "usr/lib/systemd/system/was-masked.service", Mode: 0o644}, content: unit},
		{Header: tar.Header{Typeflag: tar.TypeSymlink, Name: "etc/systemd/system/was-masked.service", Linkname: "/dev/null"}},
	} {
		e.Size, e.Format = int64(len(e.content)), tar.FormatPAX
		require.NoError(t, w.WriteHeader(&e.Header))
		_, err := io.WriteString(w, e.content)
		require.NoError(t, err)
	}
	require.NoError(t, w.Close())
	return out.Bytes()
}

// lookAtImage says of every path of a mounted image all that a node would notice: kind, mode,
// owner, content, target, attributes, and which files are one file with several names. Times are
// left out, because they are different by purpose: a configuration layer has none of its own, so
// that the same configuration is the same bytes.
func lookAtImage(t *testing.T, root string) map[string]string {
	t.Helper()
	tree, first := map[string]string{}, map[uint64]string{}
	require.NoError(t, filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		relative, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		stat := info.Sys().(*syscall.Stat_t) //nolint:forcetypeassert // this is Linux
		owner := fmt.Sprintf("%o %d:%d", stat.Mode&0o7777, stat.Uid, stat.Gid)
		switch {
		case info.IsDir():
			tree[relative] = "directory " + owner
		case info.Mode()&fs.ModeSymlink != 0:
			target, err := os.Readlink(path)
			if err != nil {
				return err
			}
			tree[relative] = "link " + owner + " -> " + target // the mode of a link means nothing, and is always the same
		case info.Mode().IsRegular():
			content, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			if relative == presetFile {
				content = withoutComments(content)
			}
			tree[relative] = fmt.Sprintf("file %s %d bytes %x", owner, len(content), sha256.Sum256(content))
			if stat.Nlink > 1 {
				if _, known := first[stat.Ino]; !known {
					first[stat.Ino] = relative
				}
				tree[relative] += fmt.Sprintf(" one of %d names of %s", stat.Nlink, first[stat.Ino])
			}
		default:
			tree[relative] = info.Mode().String() + " " + owner
		}
		attributes, err := attributesOf(path)
		tree[relative] += attributes
		return err
	}))
	return tree
}

func withoutComments(content []byte) []byte {
	return bytes.Join(slices.DeleteFunc(bytes.SplitAfter(content, []byte("\n")), func(line []byte) bool { return bytes.HasPrefix(line, []byte("#")) }), nil)
}
