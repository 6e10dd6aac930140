package sbom_test

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
	reader "github.com/spdx/tools-golang/json"
	"github.com/spdx/tools-golang/spdx"
	"github.com/spdx/tools-golang/spdx/v2/common"
	"github.com/spdx/tools-golang/spdxlib"
	"github.com/stretchr/testify/require"
	"k8s.io/utils/clock"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/images/sbom"
	"github.com/layerwright/layerwright/osimage/baseimage"
)

const (
	sqliteAt  = "usr/lib/sysimage/rpm/rpmdb.sqlite"
	journalAt = "usr/lib/sysimage/rpm/rpmdb.sqlite-wal"
	dpkgAt    = "var/lib/dpkg/status"
	releaseAt = "usr/lib/os-release"
	debian    = "PRETTY_NAME=\"Debian GNU/Linux 12 (bookworm)\"\nID=debian\nVERSION_ID=\"12\"\n"
	centos    = "NAME=\"CentOS Stream\"\nID=\"centos\"\nVERSION_ID=\"9\"\n"
)

// created is when the images of tests were made.
var created = time.Date(2026, 8, 1, 12, 0, 0, 0, time.UTC)

// files is what a layer has: contents by name, where those that begin with -> are targets of
// symbolic links.
type files map[string]string

func layerOf(tb testing.TB, content files) v1.Layer { //nolint:ireturn // that is how go-containerregistry has layers
	tb.Helper()
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	for _, name := range sortedKeys(content) {
		hdr := tar.Header{Name: name, Mode: 0o644, Size: int64(len(content[name]))}
		if target, isLink := strings.CutPrefix(content[name], "->"); isLink {
			hdr.Typeflag, hdr.Linkname, hdr.Size = tar.TypeSymlink, target, 0
		}
		require.NoError(tb, w.WriteHeader(&hdr))
		if hdr.Size > 0 {
			_, err := io.WriteString(w, content[name])
			require.NoError(tb, err)
		}
	}
	require.NoError(tb, w.Close())
	return static.NewLayer(archive.Bytes(), types.OCIUncompressedLayer)
}

func sortedKeys(m files) []string {
	var keys []string
	for key := range m {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}

func imageOf(tb testing.TB, layers ...files) v1.Image { //nolint:ireturn // that is how go-containerregistry has images
	tb.Helper()
	return onTopOf(tb, mutate.MediaType(empty.Image, types.OCIManifestSchema1), layers...)
}

func onTopOf(tb testing.TB, base v1.Image, layers ...files) v1.Image { //nolint:ireturn // as above
	tb.Helper()
	image := base
	for _, content := range layers {
		var err error
		image, err = mutate.AppendLayers(image, layerOf(tb, content))
		require.NoError(tb, err)
	}
	return image
}

// labelled is an image that says which base image it was built on.
func labelled(tb testing.TB, image v1.Image) v1.Image { //nolint:ireturn // as above
	tb.Helper()
	config, err := image.ConfigFile()
	require.NoError(tb, err)
	config = config.DeepCopy()
	config.Config.Labels = map[string]string{mcfgv1.ImageLabelBaseImage: "registry.example.com/os/base@sha256:" + strings.Repeat("b", 64)}
	image, err = mutate.ConfigFile(image, config)
	require.NoError(tb, err)
	return image
}

func digestOf(tb testing.TB, image v1.Image) v1.Hash {
	tb.Helper()
	digest, err := image.Digest()
	require.NoError(tb, err)
	return digest
}

// subjectOf is an image of one platform.
func subjectOf(tb testing.TB, base, image v1.Image) sbom.Subject {
	tb.Helper()
	digest := digestOf(tb, image)
	return sbom.Subject{
		Image: "registry.example.com/os/worker@" + digest.String(), Created: created,
		Platforms: []sbom.Platform{{Platform: v1.Platform{OS: "linux", Architecture: "amd64"}, Digest: digest, Base: base, Image: image}},
	}
}

func loader(dir string) *baseimage.Loader { return baseimage.New(baseimage.Options{CacheDir: dir}) }

// maker reads images with a cache in a folder.
func maker(dir string) *sbom.Maker { return sbom.New(loader(dir), "v1.2.3", clock.RealClock{}) }

func made(tb testing.TB, base, image v1.Image) []byte {
	tb.Helper()
	text, err := maker(tb.TempDir()).Make(tb.Context(), subjectOf(tb, base, image))
	require.NoError(tb, err)
	return text
}

// parsed is a document as the tools of SPDX read it, and valid.
func parsed(tb testing.TB, text []byte) *spdx.Document {
	tb.Helper()
	document, err := reader.Read(bytes.NewReader(text))
	require.NoError(tb, err)
	require.NoError(tb, spdxlib.ValidateDocument(document))
	var fields struct {
		SpdxVersion, DataLicense, DocumentNamespace string
		Packages                                    []struct {
			SPDXID, LicenseDeclared string
		}
		HasExtractedLicensingInfos []struct{ LicenseID string }
	}
	require.NoError(tb, json.Unmarshal(text, &fields))
	require.Equal(tb, "SPDX-2.3", fields.SpdxVersion)
	require.Equal(tb, "CC0-1.0", fields.DataLicense)
	seen, licenses := map[string]bool{}, string(must(json.Marshal(fields.HasExtractedLicensingInfos)))
	for _, p := range fields.Packages {
		require.Regexp(tb, `^SPDXRef-[A-Za-z0-9.-]+$`, p.SPDXID)
		require.False(tb, seen[p.SPDXID], p.SPDXID)
		seen[p.SPDXID] = true
		for _, word := range strings.Fields(p.LicenseDeclared) {
			if strings.HasPrefix(word, "LicenseRef-") {
				require.Contains(tb, licenses, word)
			}
		}
	}
	return document
}

func must[T any](value T, err error) T { //nolint:ireturn // whatever it is
	if err != nil {
		panic(err)
	}
	return value
}

// listed are the packages that images are said to contain, by package URL, with what is said about
// each.
func listed(document *spdx.Document) []string {
	var all []string
	for _, r := range document.Relationships {
		if r.Relationship != common.TypeRelationshipContains {
			continue
		}
		for _, p := range document.Packages {
			if p.PackageSPDXIdentifier == r.RefB.ElementRefID && p.PrimaryPackagePurpose == "" {
				all = append(all, strings.TrimSpace(p.PackageExternalReferences[0].Locator+" "+p.PackageComment))
			}
		}
	}
	return all
}

// notes are the annotations of the images.
func notes(document *spdx.Document) []string {
	var all []string
	for _, p := range document.Packages {
		for _, a := range p.Annotations {
			all = append(all, a.AnnotationComment)
		}
	}
	return all
}

func commentOf(document *spdx.Document, prefix string) string {
	for _, p := range document.Packages {
		if strings.HasPrefix(string(p.PackageSPDXIdentifier), prefix) {
			return p.PackageComment
		}
	}
	return ""
}

// paragraphs is a database of dpkg, of packages given as "name version".
func paragraphs(all ...string) string {
	var text strings.Builder
	for _, p := range all {
		name, version, _ := strings.Cut(p, " ")
		text.WriteString("Package: " + name + "\nStatus: install ok installed\nArchitecture: amd64\nVersion: " + version + "\n\n")
	}
	return text.String()
}

func testdata(tb testing.TB, name string) string {
	tb.Helper()
	content, err := os.ReadFile(path.Join("../../osimage/packages/testdata", name))
	require.NoError(tb, err)
	return string(content)
}

// server is a registry that counts what is read of it, and can be made to misbehave.
type server struct {
	host string

	mu     sync.Mutex
	gets   map[string]int
	meddle func(w http.ResponseWriter, r *http.Request) bool
}

func serve(t *testing.T) *server {
	t.Helper()
	s := &server{gets: map[string]int{}}
	inner := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	listener := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		meddle := s.meddle
		if r.Method == http.MethodGet {
			s.gets[path.Base(r.URL.Path)]++
		}
		s.mu.Unlock()
		if r.Method != http.MethodGet || meddle == nil || !meddle(w, r) {
			inner.ServeHTTP(w, r)
		}
	}))
	t.Cleanup(listener.Close)
	s.host = strings.TrimPrefix(listener.URL, "http://")
	return s
}

func (s *server) set(meddle func(w http.ResponseWriter, r *http.Request) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.meddle = meddle
}

// reads is how often each layer of an image was asked for.
func (s *server) reads(tb testing.TB, image v1.Image) []int {
	tb.Helper()
	manifest, err := image.Manifest()
	require.NoError(tb, err)
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []int
	for _, layer := range manifest.Layers {
		all = append(all, s.gets[layer.Digest.String()])
	}
	return all
}

// push stores an image and gives it as the registry has it.
func (s *server) push(ctx context.Context, tb testing.TB, repository string, image v1.Image) v1.Image { //nolint:ireturn // as above
	tb.Helper()
	ref, err := name.ParseReference(s.host + "/" + repository)
	require.NoError(tb, err)
	require.NoError(tb, remote.Write(ref, image))
	pulled, err := remote.Image(ref, remote.WithContext(ctx), remote.WithRetryBackoff(remote.Backoff{Duration: time.Millisecond, Steps: 1}))
	require.NoError(tb, err)
	return pulled
}
