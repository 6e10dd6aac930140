package builder

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/v1/mutate"
	ggcr "github.com/google/go-containerregistry/pkg/v1/remote"
	spdx "github.com/spdx/tools-golang/spdx/v2/v2_3"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	mcfgv1alpha1 "github.com/layerwright/layerwright/api/machineconfiguration/v1alpha1"
	"github.com/layerwright/layerwright/images"
	"github.com/layerwright/layerwright/images/sbom"
	"github.com/layerwright/layerwright/internal/registry/registrytest"
	"github.com/layerwright/layerwright/osimage/baseimage"
	"github.com/layerwright/layerwright/trust/sign"
)

const (
	dpkgPath = "var/lib/dpkg/status"
	bashOnly = "Package: bash\nStatus: install ok installed\nArchitecture: amd64\nVersion: 5.2\n\n"
	withVim  = bashOnly + "Package: vim\nStatus: install ok installed\nArchitecture: amd64\nVersion: 9\n\n"
)

// withPackages is a world whose OS image has a package database.
func withPackages(t *testing.T, installed string) *world {
	t.Helper()
	w := newWorld(t)
	image := must(mutate.AppendLayers(osImage(t, "packages", "amd64"), registrytest.Layer(t, map[string]string{dpkgPath: installed})))
	w.base = w.registry.Push(t, "stream/os:packages", image)
	w.add(w.rendered("worker", "1", "/etc/motd", "one"), newPool("worker", "rendered-worker-1"), w.config("worker"))
	return w
}

// withSBOMs makes a Builder attest with the key of the Secret "signing", SBOMs too.
func (w *world) withSBOMs(o *settings) {
	signer := sign.NewSigner(w.secretKeys())
	o.Signer, o.Attester = signer, signer
	o.SBOMs = sbom.New(baseimage.New(baseimage.Options{CacheDir: w.cacheDir}), "v1", w.clock)
}

// sbom is the signed SBOM of an image, and the package URLs of what it lists.
func (w *world) sbom(image string, by keyPair) (*spdx.Document, []string) {
	w.t.Helper()
	document := &spdx.Document{}
	w.readStated(image, sign.PredicateSPDX, by, document)
	var listed []string
	for _, p := range document.Packages {
		if url := p.PackageExternalReferences[0].Locator; !strings.HasPrefix(url, "pkg:oci/") {
			listed = append(listed, url)
		}
	}
	return document, listed
}

func TestSBOMs(t *testing.T) {
	t.Parallel()
	t.Run("configuration alone adds no package to the base image's", func(t *testing.T) {
		t.Parallel()
		w, keys := withPackages(t, bashOnly), newKeyPair()
		w.add(keys.secret())
		b := w.builder(w.withSBOMs)
		w.settle(b)
		image := w.onlyImage()
		document, listed := w.sbom(string(image.Spec.PullSpec), keys)
		assert.Empty(t, listed)
		assert.Equal(t, string(image.Spec.PullSpec), document.DocumentName)
		assert.Contains(t, document.Packages[0].PackageComment, "leave its package databases, if it has any, as they are")
		assert.Equal(t, strings.TrimPrefix(w.base, w.registry.host+"/stream/os@"), document.Packages[1].PackageVersion)

		w.rerender("worker", "2", "/etc/motd", "two")
		w.registry.requests()
		w.settle(b)
		require.Len(t, w.images(), 2)
		asked := w.registry.requests()
		for _, layer := range must(must(ggcr.Image(w.registry.parse(t, w.base))).Manifest()).Layers {
			assert.NotContains(t, asked, http.MethodGet+" /v2/stream/os/blobs/"+layer.Digest.String(), "nothing of the base image is read")
		}
	})
	for name, containerfile := range map[string]string{"content below the configuration": cheapFile, "content on top of the configuration": configsFirst} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, keys := withPackages(t, bashOnly), newKeyPair()
			w.add(keys.secret())
			w.containerfile(containerfile)
			w.installs = map[string]string{dpkgPath: withVim}
			s := newStandIn(w)
			w.settle(w.builder(w.withSBOMs, func(o *settings) { o.Backends = asJobs(s) }))
			image := w.onlyImage()
			_, listed := w.sbom(string(image.Spec.PullSpec), keys)
			assert.Equal(t, []string{"pkg:deb/vim@9?arch=amd64"}, listed)
			assert.Equal(t, []string{sign.PredicateProvenance, sign.PredicateSPDX}, predicates(image))
		})
	}
	var many strings.Builder
	for i := range 20_000 {
		_, _ = fmt.Fprintf(&many, "Package: many-%d\nVersion: 1\n\n", i)
	}
	for name, tt := range map[string]struct {
		install map[string]string
		says    string
	}{
		"a broken database":         {map[string]string{"usr/lib/sysimage/rpm/rpmdb.sqlite": "not SQLite"}, `package database "/usr/lib/sysimage/rpm/rpmdb.sqlite" is broken`},
		"too many packages to list": {map[string]string{dpkgPath: many.String()}, "so many packages beyond its base image"},
	} {
		t.Run(name+" keeps an image from having one, and not from being signed", func(t *testing.T) {
			t.Parallel()
			w, keys := withPackages(t, bashOnly), newKeyPair()
			w.add(keys.secret())
			w.containerfile(cheapFile)
			w.installs = tt.install
			s := newStandIn(w)
			w.settle(w.builder(w.withSBOMs, func(o *settings) { o.Backends = asJobs(s) }))
			image := w.onlyImage()
			assert.True(t, images.IsSigned(image))
			assert.Equal(t, []string{sign.PredicateProvenance}, predicates(image))
			assert.Contains(t, text(image.Status.Conditions, mcfgv1alpha1.ImageAttested), tt.says)
		})
	}
}

func predicates(image *mcfgv1alpha1.MachineOSImage) []string {
	var types []string
	for _, a := range image.Status.Attestations {
		types = append(types, a.PredicateType)
	}
	return types
}
