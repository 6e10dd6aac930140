package sbom

import (
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/layerwright/layerwright/osimage/packages"
)

// applied is a base image's set of packages with changes made to it.
func applied(base *packages.List, c changes) map[packages.Package]bool {
	set := setOf(base.Packages)
	for _, p := range slices.Concat(c.replaced, c.removed) {
		delete(set, p)
	}
	for _, a := range c.added {
		set[a.Package] = true
	}
	return set
}

// listFrom makes packages of numbers: few names, so that versions, architectures and duplicates
// meet.
func listFrom(numbers []byte) *packages.List {
	list := &packages.List{Types: []string{packages.Deb, packages.RPM}}
	for _, n := range numbers {
		p := packages.Package{Type: packages.Deb, Name: "p" + strconv.Itoa(int(n&3)), Version: strconv.Itoa(int(n >> 2 & 3)), Arch: "amd64"}
		if n&16 != 0 {
			p.Type = packages.RPM
		}
		if n&32 != 0 {
			p.Arch = "noarch"
		}
		if n&64 != 0 {
			p.License = "MIT"
		}
		list.Packages = append(list.Packages, p)
	}
	return list
}

func checkDiff(t *testing.T, base, image *packages.List) {
	t.Helper()
	assert.Empty(t, diff(base, base))
	c := diff(base, image)
	require.Equal(t, setOf(image.Packages), applied(base, c), "the changes made to the base image's list give the image's")
	for _, a := range c.added {
		for _, before := range a.before {
			assert.True(t, slices.ContainsFunc(c.replaced, func(p packages.Package) bool { return groupOf(p) == groupOf(a.Package) && p.Version == before }))
		}
	}
	shuffled := &packages.List{Types: image.Types, Packages: slices.Clone(image.Packages)}
	rand.Shuffle(len(shuffled.Packages), func(i, j int) { //nolint:gosec // any order will do
		shuffled.Packages[i], shuffled.Packages[j] = shuffled.Packages[j], shuffled.Packages[i]
	})
	require.Equal(t, c, diff(base, shuffled), "their order does not matter")
}

func FuzzDiff(f *testing.F) {
	f.Add([]byte{}, []byte{})
	f.Add([]byte{1, 2, 3}, []byte{1, 6, 255})
	f.Add([]byte{0, 64}, []byte{0, 16, 64, 32, 4, 4})
	random := rand.NewChaCha8([32]byte{})
	for range 100 {
		base, image := make([]byte, 20), make([]byte, 20)
		_, _ = random.Read(base)
		_, _ = random.Read(image)
		f.Add(base, image)
	}
	f.Fuzz(func(t *testing.T, base, image []byte) { checkDiff(t, listFrom(base), listFrom(image)) })
}

func TestDiff(t *testing.T) {
	t.Parallel()
	deb := func(name, version string) packages.Package {
		return packages.Package{Type: packages.Deb, Name: name, Version: version, Arch: "amd64"}
	}
	both := []string{packages.Deb, packages.RPM}
	base := &packages.List{Types: both, Packages: []packages.Package{deb("bash", "1"), deb("linux", "1"), deb("linux", "2"), deb("gone", "1")}}
	image := &packages.List{Types: both, Packages: []packages.Package{deb("new", "1"), deb("linux", "3"), deb("bash", "1")}}
	assert.Equal(t, changes{
		added:    []change{{Package: deb("linux", "3"), before: []string{"1", "2"}}, {Package: deb("new", "1")}},
		replaced: []packages.Package{deb("linux", "1"), deb("linux", "2")}, removed: []packages.Package{deb("gone", "1")},
	}, diff(base, image))

	c := diff(base, &packages.List{Types: []string{packages.RPM}})
	assert.Equal(t, changes{unknown: []string{packages.Deb}}, c, "without a database no one knows what was removed")
}

func TestPackageURL(t *testing.T) {
	t.Parallel()
	fedora := map[string]string{"ID": "fedora", "VERSION_ID": "43"}
	tests := map[string]struct {
		pkg     packages.Package
		release map[string]string
		want    string
	}{
		"an rpm": {
			packages.Package{Type: packages.RPM, Name: "gcc-c++", Version: "15.1.1-2.fc43", Arch: "x86_64", Source: "gcc-15.1.1-2.fc43.src.rpm"},
			fedora,
			"pkg:rpm/fedora/gcc-c%2B%2B@15.1.1-2.fc43?arch=x86_64&distro=fedora-43&upstream=gcc-15.1.1-2.fc43.src.rpm",
		},
		"an rpm with an epoch": {
			packages.Package{Type: packages.RPM, Name: "vim", Version: "2:9.1~rc1-1^git", Arch: "noarch"},
			nil, "pkg:rpm/vim@9.1~rc1-1%5Egit?arch=noarch&epoch=2",
		},
		"a rolling release": {packages.Package{Type: packages.RPM, Name: "a", Version: "1-1"}, map[string]string{"ID": "opensuse-tumbleweed"}, "pkg:rpm/opensuse-tumbleweed/a@1-1?distro=opensuse-tumbleweed"},
		"a deb with an epoch": {
			packages.Package{Type: packages.Deb, Name: "libssl3", Version: "1:3.0+dfsg-1", Arch: "amd64", Source: "openssl"},
			nil,
			"pkg:deb/libssl3@1:3.0%2Bdfsg-1?arch=amd64&upstream=openssl",
		},
		"a deb whose source has another version": {
			packages.Package{Type: packages.Deb, Name: "bash", Version: "5.2-2+b2", Arch: "amd64", Source: "bash", SourceVersion: "5.2-2"},
			nil,
			"pkg:deb/bash@5.2-2%2Bb2?arch=amd64&upstream=bash%405.2-2",
		},
		"a deb that is its own source": {packages.Package{Type: packages.Deb, Name: "bash", Version: "5", Source: "bash"}, nil, "pkg:deb/bash@5"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			assert.Equal(t, tt.want, packageURL(tt.pkg, tt.release))
		})
	}
	assert.Equal(t, "pkg:oci/worker@sha256:ab?arch=arm64&repository_url=registry.example.com:5000%2Fos%2Fworker", imageURL("registry.example.com:5000/os/worker", "sha256:ab", "arm64"))
	assert.Empty(t, imageURL("", "sha256:ab", ""))
}

func TestDeclaredLicense(t *testing.T) {
	t.Parallel()
	for stated, want := range map[string]string{
		"":                                     "NOASSERTION",
		"MIT":                                  "MIT",
		"  GPL-2.0-only \n":                    "GPL-2.0-only",
		"(MIT OR Apache-2.0) AND BSD-3-Clause": "(MIT OR Apache-2.0) AND BSD-3-Clause",
		"GPL-3.0-or-later WITH GCC-exception-3.1 AND (MIT)": "GPL-3.0-or-later WITH GCC-exception-3.1 AND (MIT)",
		"MIT AND LicenseRef-Fedora-Public-Domain":           "MIT AND LicenseRef-Fedora-Public-Domain",
	} {
		got, extracted := declaredLicense(stated)
		assert.Equal(t, want, got)
		assert.Equal(t, want == "MIT AND LicenseRef-Fedora-Public-Domain", len(extracted) == 1, stated)
	}
	seen := map[string]bool{}
	for _, stated := range []string{
		"GPLv2+", "ASL 2.0", "MIT and BSD", "MIT AND", "AND MIT", "(MIT", "MIT)", "()", "MIT WITH", "MIT WITH nothing", "(MIT) WITH LLVM-exception", "MIT OR OR MIT",
		"MIT MIT", "LicenseRef-", "LicenseRef-a_b", "with\nnewline\"", "\xff", "NONE", "NOASSERTION",
	} {
		got, extracted := declaredLicense(stated)
		assert.Regexp(t, "^LicenseRef-stated-[0-9a-f]{16}$", got, stated)
		assert.Equal(t, []string{got}, slices.Collect(maps.Keys(extracted)))
		assert.Equal(t, clean(stated), extracted[got], "nothing is lost")
		assert.False(t, seen[got])
		seen[got] = true
	}
}
