package sbom_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/layerwright/layerwright/images/sbom"
	"github.com/layerwright/layerwright/internal/fault"
	"github.com/layerwright/layerwright/internal/registry/compose"
	"github.com/layerwright/layerwright/osimage/packages"
)

var update = flag.Bool("update", false, "write the documents that are compared with")

// TestDocuments compares whole documents. The database of rpm was made by SQLite; its journal
// updates kernel-core and adds runc.
func TestDocuments(t *testing.T) {
	t.Parallel()
	rpmBase := imageOf(t, files{sqliteAt: testdata(t, "rpmdb.sqlite"), releaseAt: centos, "etc/os-release": "->../usr/lib/os-release"})
	debBase := imageOf(t, files{releaseAt: debian, "usr/share/dpkg-db/status": paragraphs("bash 5.2", "openssl 1:3.0.11-1", "telnet 0.17")})
	debBase = onTopOf(t, debBase, files{"var/lib/dpkg": "->../../usr/share/dpkg-db"})
	for name, images := range map[string][2]v1.Image{
		"rpm": {rpmBase, labelled(t, onTopOf(t, rpmBase, files{journalAt: testdata(t, "rpmdb.sqlite-wal"), "usr/bin/runc": "x"}, files{"etc/motd": "hello"}))},
		"dpkg": {debBase, onTopOf(t, debBase, files{
			"usr/share/dpkg-db/status": paragraphs("bash 5.2", "openssl 1:3.0.15-1") +
				"Package: libvim\nStatus: install ok installed\nArchitecture: all\nVersion: 2:9.0\nSource: vim (2:9.0-1)\n\n",
		})},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			text := made(t, images[0], images[1])
			parsed(t, text)
			golden := filepath.Join("testdata", name+".spdx.json")
			if *update {
				require.NoError(t, os.WriteFile(golden, text, 0o600))
			}
			want, err := os.ReadFile(golden)
			require.NoError(t, err)
			assert.Equal(t, string(want), string(text), "go test ./builder/sbom -update writes it anew")
			assert.Equal(t, string(text), string(made(t, images[0], images[1])), "the same image gives the same bytes")
		})
	}
}

func TestListedPackages(t *testing.T) {
	t.Parallel()
	base := files{dpkgAt: paragraphs("bash 5.2", "linux 6.1"), releaseAt: debian}
	tests := map[string]struct {
		base  []files // base where nil
		image []files
		want  []string
		notes []string
		says  string
	}{
		"nothing but configuration": {
			image: []files{{"etc/motd": "x", "etc/issue": "y"}}, says: "leave its package databases, if it has any, as they are. 2 of its files",
		},
		"an added package, one of another version, and one beside": {
			image: []files{{dpkgAt: paragraphs("bash 5.3", "linux 6.1", "linux 6.2", "vim 9")}},
			want: []string{
				"pkg:deb/debian/bash@5.3?arch=amd64&distro=debian-12 The base image has version 5.2.",
				"pkg:deb/debian/linux@6.2?arch=amd64&distro=debian-12", "pkg:deb/debian/vim@9?arch=amd64&distro=debian-12",
			},
			says: "Its package databases are /var/lib/dpkg/status. 1 of its files",
		},
		"a removed package": {
			image: []files{{dpkgAt: paragraphs("bash 5.2")}},
			notes: []string{"Removed, the base image has it: pkg:deb/debian/linux@6.1?arch=amd64&distro=debian-12"},
		},
		"the same packages in other bytes": {image: []files{{dpkgAt: paragraphs("linux 6.1", "bash 5.2", "bash 5.2")}}},
		"a database that was deleted": {
			image: []files{{"var/lib/dpkg/.wh.status": ""}},
			notes: []string{"The base image has a database of deb packages, and the image has none: which of the base image's packages it still has is not known."},
			says:  "It has no package database of a kind that is known.",
		},
		"a database below a deleted directory": {
			image: []files{{"var/lib/.wh.dpkg": ""}},
			notes: []string{"The base image has a database of deb packages, and the image has none: which of the base image's packages it still has is not known."},
		},
		"a database that was deleted and written again": {
			image: []files{{"var/lib/dpkg/.wh..wh..opq": "", dpkgAt: paragraphs("bash 5.2", "linux 6.1", "vim 9")}},
			want:  []string{"pkg:deb/debian/vim@9?arch=amd64&distro=debian-12"},
		},
		"a database of rpm that was moved": {
			base: []files{{"var/lib/rpm/rpmdb.sqlite": testdata(t, "rpmdb.sqlite")}},
			image: []files{{
				"var/lib/.wh.rpm": "", sqliteAt: testdata(t, "rpmdb.sqlite"), journalAt: testdata(t, "rpmdb.sqlite-wal"),
			}},
			want: []string{
				"pkg:rpm/kernel-core@5.14.0-503.11.1.el9_5?arch=x86_64&upstream=kernel-5.14.0-503.11.1.el9_5.src.rpm The base image has version 5.14.0-427.13.1.el9_4.",
				"pkg:rpm/runc@1.1.12-2.el9?arch=x86_64&epoch=4&upstream=runc-1.1.12-2.el9.src.rpm",
			},
			says: "Its package databases are /usr/lib/sysimage/rpm/rpmdb.sqlite.",
		},
		"a database where the base image has none": {
			base: []files{{"etc/passwd": ""}}, image: []files{{dpkgAt: paragraphs("bash 5.2")}}, want: []string{"pkg:deb/bash@5.2?arch=amd64"},
		},
		"no database at all": {base: []files{{"etc/passwd": ""}}, image: []files{{"usr/bin/tool": "x"}}, says: "1 of its files"},
		"packages in two layers above the base image": {
			image: []files{{dpkgAt: paragraphs("bash 5.2", "linux 6.1", "vim 9")}, {dpkgAt: paragraphs("bash 5.2", "linux 6.1", "vim 9", "zsh 5")}},
			want:  []string{"pkg:deb/debian/vim@9?arch=amd64&distro=debian-12", "pkg:deb/debian/zsh@5?arch=amd64&distro=debian-12"},
		},
		"another system": {
			image: []files{{dpkgAt: paragraphs("bash 5.2", "linux 6.1", "vim 9"), releaseAt: "ID=Ubuntu\n"}},
			want:  []string{"pkg:deb/ubuntu/vim@9?arch=amd64&distro=ubuntu"},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if tt.base == nil {
				tt.base = []files{base}
			}
			below := imageOf(t, tt.base...)
			document := parsed(t, made(t, below, onTopOf(t, below, tt.image...)))
			assert.Equal(t, tt.want, listed(document))
			assert.Equal(t, tt.notes, notes(document))
			assert.Contains(t, commentOf(document, "Image-"), tt.says)
			assert.Contains(t, document.DocumentComment, "Not listed here")
		})
	}
}

// TestReadLayers counts how often layers are asked for.
func TestReadLayers(t *testing.T) {
	t.Parallel()
	s, dir := serve(t), t.TempDir()
	base := imageOf(t, files{"usr/big": "x"}, files{dpkgAt: paragraphs("bash 5.2")}, files{releaseAt: debian})
	below := s.push(t.Context(), t, "os/base", base)
	_, err := maker(dir).Make(t.Context(), subjectOf(t, below, below))
	require.NoError(t, err)
	require.Equal(t, []int{1, 1, 1}, s.reads(t, base), "the index, as every build needs it")

	configured := onTopOf(t, base, files{"etc/motd": "x"})
	_, err = maker(dir).Make(t.Context(), subjectOf(t, below, s.push(t.Context(), t, "os/worker", configured)))
	require.NoError(t, err)
	require.Equal(t, []int{1, 1, 1, 1}, s.reads(t, configured), "where only configuration is on top, its layer alone is read")

	for i, more := range []string{"vim 9", "zsh 5"} {
		image := onTopOf(t, base, files{dpkgAt: paragraphs("bash 5.2", more)}, files{"etc/motd": "x"})
		document, err := maker(dir).Make(t.Context(), subjectOf(t, below, s.push(t.Context(), t, "os/worker", image)))
		require.NoError(t, err)
		require.Contains(t, string(document), strings.Fields(more)[0])
		require.Equal(t, []int{1, 2, 2}, s.reads(t, base), "once for the packages of the base image, and for its name; image %d", i)
		require.Equal(t, 2, s.reads(t, image)[3], "the index, and the database")
	}
}

func TestSeveralPlatforms(t *testing.T) {
	t.Parallel()
	about := sbom.Subject{Image: "registry.example.com/os/worker@sha256:" + strings.Repeat("a", 64), Created: created}
	for _, arch := range []string{"amd64", "arm64"} {
		base := imageOf(t, files{dpkgAt: paragraphs("bash 5.2"), "arch": arch})
		image := labelled(t, onTopOf(t, base, files{dpkgAt: paragraphs("bash 5.2", "vim-"+arch+" 9")}))
		about.Platforms = append(about.Platforms, sbom.Platform{
			Platform: v1.Platform{OS: "linux", Architecture: arch}, Digest: digestOf(t, image), Base: base, Image: image,
		})
	}
	text, err := maker(t.TempDir()).Make(t.Context(), about)
	require.NoError(t, err)
	document := parsed(t, text)
	assert.Equal(t, []string{"pkg:deb/vim-amd64@9?arch=amd64", "pkg:deb/vim-arm64@9?arch=amd64"}, listed(document))
	var relations []string
	ids := map[string]string{"DOCUMENT": "document"}
	for _, p := range document.Packages {
		ids[string(p.PackageSPDXIdentifier)] = p.PackageName + " " + p.PackageVersion
	}
	for _, r := range document.Relationships {
		relations = append(relations, ids[string(r.RefA.ElementRefID)]+" "+r.Relationship+" "+ids[string(r.RefB.ElementRefID)])
	}
	list := "registry.example.com/os/worker sha256:" + strings.Repeat("a", 64)
	want := []string{"document DESCRIBES " + list}
	for _, p := range about.Platforms {
		image := "registry.example.com/os/worker " + p.Digest.String()
		want = append(want, list+" CONTAINS "+image,
			image+" DESCENDANT_OF registry.example.com/os/base "+digestOf(t, p.Base).String(), image+" CONTAINS vim-"+p.Platform.Architecture+" 9")
		assert.Contains(t, string(text), `"checksumValue":"`+p.Digest.Hex+`"`)
	}
	assert.Equal(t, want, relations)
	assert.Equal(t, "https://layerwright.io/spdx/sha256-"+strings.Repeat("a", 64), document.DocumentNamespace)
}

// TestTheBaseImageIsBelow is about which images belong together.
func TestTheBaseImageIsBelow(t *testing.T) {
	t.Parallel()
	base := imageOf(t, files{"etc/a": "a"}, files{"etc/b": "b"})
	other := imageOf(t, files{"etc/a": "a"}, files{"etc/c": "c"}, files{"etc/b": "b"})
	_, err := maker(t.TempDir()).Make(t.Context(), subjectOf(t, base, other))
	require.True(t, fault.IsTerminal(err), "%v", err)
	var wrong *sbom.NotOnBaseError
	require.ErrorAs(t, err, &wrong)
	require.ErrorContains(t, err, digestOf(t, other).String())
	require.ErrorContains(t, err, digestOf(t, base).String())

	shorter := imageOf(t, files{"etc/a": "a"})
	_, err = maker(t.TempDir()).Make(t.Context(), subjectOf(t, base, shorter))
	require.ErrorAs(t, err, &wrong)

	configured, err := mutate.Append(shorter, mutate.Addendum{Layer: layerOf(t, files{"etc/b": "old"}), History: v1.History{CreatedBy: compose.LayerCreatedBy}})
	require.NoError(t, err)
	config := must(configured.ConfigFile()).DeepCopy()
	config.History[len(config.History)-1].Comment = config.RootFS.DiffIDs[1].String()
	configured = must(mutate.ConfigFile(configured, config))
	document := parsed(t, made(t, configured, base))
	assert.Empty(t, listed(document))
	assert.Contains(t, commentOf(document, "Image-"), "1 of its files", "a configuration layer of the base image has given way")
}

func TestDatabasesThatCannotBeRead(t *testing.T) {
	t.Parallel()
	base := imageOf(t, files{dpkgAt: paragraphs("bash 5.2")})
	var huge strings.Builder
	for i := range 20_000 {
		huge.WriteString(paragraphs(fmt.Sprintf("package-%05d 1", i)))
	}
	tests := map[string]struct {
		image   files
		message string
		check   func(error) bool
	}{
		"a broken one": {files{sqliteAt: "SQLite it is not"}, `package database "/usr/lib/sysimage/rpm/rpmdb.sqlite" is broken`, is[*packages.BrokenError]},
		"one that is too large": {
			files{dpkgAt: strings.Repeat("\n", 256<<20+1)}, `package database "/var/lib/dpkg/status" has 268435457 bytes, the limit is 268435456`, is[*packages.TooLargeError],
		},
		"more packages than a document has room for": {files{dpkgAt: huge.String()}, "more than 8000000 bytes", is[*sbom.TooLargeError]},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			_, err := maker(dir).Make(t.Context(), subjectOf(t, base, onTopOf(t, base, tt.image)))
			require.True(t, fault.IsTerminal(err), "%v", err)
			require.ErrorContains(t, err, tt.message)
			require.True(t, tt.check(err), "%v", err)
			require.ErrorContains(t, err, "registry.example.com/os/worker@sha256:")
			left, err := filepath.Glob(filepath.Join(dir, packages.SpoolPrefix+"*"))
			require.NoError(t, err)
			require.Empty(t, left)
		})
	}
	_, err := maker(t.TempDir()).Make(t.Context(), sbom.Subject{Image: "registry.example.com/os/worker@sha256:" + strings.Repeat("a", 64)})
	require.ErrorContains(t, err, "no platform")
}

func is[E error](err error) bool {
	var wanted E
	return errors.As(err, &wanted)
}

// TestRegistriesThatFail has the blob of a database answered with an error, and once cut off.
func TestRegistriesThatFail(t *testing.T) {
	t.Parallel()
	s, dir := serve(t), t.TempDir()
	base := imageOf(t, files{dpkgAt: paragraphs("bash 5.2")})
	image := onTopOf(t, base, files{dpkgAt: paragraphs("bash 5.2", "vim 9")})
	about := subjectOf(t, s.push(t.Context(), t, "os/base", base), s.push(t.Context(), t, "os/worker", image))
	require.NoError(t, indexed(t, dir, about), "what was indexed by the build is in the cache")
	database := must(must(image.Layers())[1].Digest()).String()
	for name, answer := range map[string]func(w http.ResponseWriter){
		"an error of the server": func(w http.ResponseWriter) { w.WriteHeader(http.StatusServiceUnavailable) },
		"an answer that breaks off": func(w http.ResponseWriter) {
			w.Header().Set("Content-Length", "4096")
			_, _ = w.Write([]byte("half"))
		},
	} {
		s.set(func(w http.ResponseWriter, r *http.Request) bool {
			if strings.HasSuffix(r.URL.Path, database) {
				answer(w)
				return true
			}
			return false
		})
		_, err := maker(dir).Make(t.Context(), about)
		require.Error(t, err, name)
		require.True(t, fault.IsTransient(err), "%s: %v", name, err)
		require.False(t, is[*packages.BrokenError](err), "%s: the database is not to blame: %v", name, err)
	}
	s.set(nil)
	text, err := maker(dir).Make(t.Context(), about)
	require.NoError(t, err)
	assert.Equal(t, []string{"pkg:deb/vim@9?arch=amd64"}, listed(parsed(t, text)))
}

// indexed has the images of a subject in the cache.
func indexed(t *testing.T, dir string, about sbom.Subject) error {
	t.Helper()
	for _, p := range about.Platforms {
		for _, image := range []v1.Image{p.Base, p.Image} {
			if _, err := loader(dir).Index(t.Context(), image); err != nil {
				return err
			}
		}
	}
	return nil
}

func TestWaitingCanBeCancelled(t *testing.T) {
	t.Parallel()
	s, dir := serve(t), t.TempDir()
	base := imageOf(t, files{dpkgAt: paragraphs("bash 5.2")})
	image := onTopOf(t, base, files{dpkgAt: paragraphs("vim 9")})
	asked, gone := make(chan struct{}, 8), make(chan struct{})
	t.Cleanup(func() { close(gone) })
	errEnough := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	about := subjectOf(t, s.push(ctx, t, "os/base", base), s.push(ctx, t, "os/worker", image))
	require.NoError(t, indexed(t, dir, about))
	s.set(func(_ http.ResponseWriter, r *http.Request) bool {
		if !strings.Contains(r.URL.Path, "/blobs/") {
			return false
		}
		asked <- struct{}{}
		select {
		case <-gone:
		case <-r.Context().Done():
		}
		return true
	})
	m, failed := maker(dir), make(chan error, 2)
	go func() {
		_, err := m.Make(ctx, about)
		failed <- err
	}()
	<-asked
	second, leave := context.WithCancelCause(t.Context())
	leave(errEnough)
	_, err := m.Make(second, about)
	require.ErrorIs(t, err, errEnough, "who waits for a turn")
	cancel(errEnough)
	select {
	case err := <-failed:
		require.ErrorIs(t, err, errEnough)
	case <-time.After(30 * time.Second):
		require.Fail(t, "it goes on without anybody who waits for it")
	}
	require.Eventually(t, func() bool {
		left, err := filepath.Glob(filepath.Join(dir, packages.SpoolPrefix+"*"))
		return err == nil && len(left) == 0
	}, 30*time.Second, 10*time.Millisecond, "it cleans up behind itself")
}

// TestHostileText is about packages whose fields are made to break something.
func TestHostileText(t *testing.T) {
	t.Parallel()
	base := imageOf(t, files{dpkgAt: paragraphs("bash 5.2"), releaseAt: "ID=\"a/b?\xff\"\nVERSION_ID=1&2#3\n"})
	long := strings.Repeat("n", 5000)
	image := onTopOf(t, base, files{dpkgAt: paragraphs("bash 5.2", `qu"ote\ 1`, "back\x00\x1b[2J 1", "bad\xff\xfe 1", "bad\xfe\xff 1", "</script> 1", "\u2028line 1", long+" 1", "a@b?c#d%41/.. 1")})
	text := made(t, base, image)
	document := parsed(t, text)
	got := listed(document)
	assert.Len(t, got, 8)
	joined := strings.Join(got, "\n")
	assert.Contains(t, joined, "pkg:deb/a%2Fb%3F%EF%BF%BD/bad%FF%FE@1?", "package URLs keep all bytes")
	assert.Contains(t, joined, "pkg:deb/a%2Fb%3F%EF%BF%BD/bad%FE%FF@1?")
	assert.Contains(t, joined, "/a%40b%3Fc%23d%2541%2F..@1?arch=amd64&distro=a%2Fb%3F%EF%BF%BD-1%262%233")
	assert.NotContains(t, string(text), "\x1b")
	for _, p := range document.Packages {
		assert.NotContains(t, p.PackageName, "\x00")
		assert.Less(t, len(p.PackageName), 2000)
		assert.Less(t, len(p.PackageSPDXIdentifier), 100)
	}
	assert.Equal(t, string(text), string(made(t, base, image)))

	dir := t.TempDir()
	first, err := maker(dir).Make(t.Context(), subjectOf(t, base, image))
	require.NoError(t, err)
	again, err := maker(dir).Make(t.Context(), subjectOf(t, base, image))
	require.NoError(t, err)
	assert.Equal(t, string(first), string(again), "what comes from the cache has all bytes too")
	assert.Equal(t, string(text), string(first))
}
