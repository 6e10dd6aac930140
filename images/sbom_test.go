package images_test

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
	"github.com/layerwright/layerwright/internal/registry/registrytest"
	"github.com/layerwright/layerwright/test/worldtest"
	"github.com/layerwright/layerwright/trust/sign"
)

const (
	dpkgPath = "var/lib/dpkg/status"
	bashOnly = "Package: bash\nStatus: install ok installed\nArchitecture: amd64\nVersion: 5.2\n\n"
	withVim  = bashOnly + "Package: vim\nStatus: install ok installed\nArchitecture: amd64\nVersion: 9\n\n"
)

// withPackages is a world whose OS image has a package database.
func withPackages(t *testing.T, installed string) *worldtest.World {
	t.Helper()
	w := worldtest.New(t)
	image := worldtest.Must(mutate.AppendLayers(worldtest.OSImage(t, "packages", "amd64"), registrytest.Layer(t, map[string]string{dpkgPath: installed})))
	w.Base = w.Registry.Push(t, "stream/os:packages", image)
	w.Add(w.Rendered("worker", "1", "/etc/motd", "one"), worldtest.NewPool("worker", "rendered-worker-1"), w.Config("worker"))
	return w
}

// sbom is the signed SBOM of an image, and the package URLs of what it lists.
func sbom(w *worldtest.World, image string, by worldtest.KeyPair) (*spdx.Document, []string) {
	w.T.Helper()
	document := &spdx.Document{}
	w.ReadStated(image, sign.PredicateSPDX, by, document)
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
		w, keys := withPackages(t, bashOnly), worldtest.NewKeyPair()
		w.Add(keys.Secret())
		b := w.Builder(w.WithSBOMs)
		w.Settle(b)
		image := w.OnlyImage()
		document, listed := sbom(w, string(image.Spec.PullSpec), keys)
		assert.Empty(t, listed)
		assert.Equal(t, string(image.Spec.PullSpec), document.DocumentName)
		assert.Contains(t, document.Packages[0].PackageComment, "leave its package databases, if it has any, as they are")
		assert.Equal(t, strings.TrimPrefix(w.Base, w.Registry.Host+"/stream/os@"), document.Packages[1].PackageVersion)

		w.Rerender("worker", "2", "/etc/motd", "two")
		w.Registry.Forget()
		w.Settle(b)
		require.Len(t, w.Images(), 2)
		asked := w.Registry.Forget()
		for _, layer := range worldtest.Must(worldtest.Must(ggcr.Image(w.Registry.Parse(t, w.Base))).Manifest()).Layers {
			assert.NotContains(t, asked, http.MethodGet+" /v2/stream/os/blobs/"+layer.Digest.String(), "nothing of the base image is read")
		}
	})
	for name, containerfile := range map[string]string{"content below the configuration": worldtest.CheapFile, "content on top of the configuration": worldtest.ConfigsFirst} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, keys := withPackages(t, bashOnly), worldtest.NewKeyPair()
			w.Add(keys.Secret())
			w.Containerfile(containerfile)
			w.Installs = map[string]string{dpkgPath: withVim}
			s := worldtest.NewStandIn(w)
			w.Settle(w.Builder(w.WithSBOMs, func(o *worldtest.Settings) { o.Backends = worldtest.AsJobs(s) }))
			image := w.OnlyImage()
			_, listed := sbom(w, string(image.Spec.PullSpec), keys)
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
			w, keys := withPackages(t, bashOnly), worldtest.NewKeyPair()
			w.Add(keys.Secret())
			w.Containerfile(worldtest.CheapFile)
			w.Installs = tt.install
			s := worldtest.NewStandIn(w)
			w.Settle(w.Builder(w.WithSBOMs, func(o *worldtest.Settings) { o.Backends = worldtest.AsJobs(s) }))
			image := w.OnlyImage()
			assert.True(t, images.IsSigned(image))
			assert.Equal(t, []string{sign.PredicateProvenance}, predicates(image))
			assert.Contains(t, worldtest.Text(image.Status.Conditions, mcfgv1alpha1.ImageAttested), tt.says)
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
