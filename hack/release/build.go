package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/layerwright/layerwright/hack/release/attached"
	"github.com/layerwright/layerwright/hack/release/binimage"
	"github.com/layerwright/layerwright/hack/release/images"
	"github.com/layerwright/layerwright/hack/release/manifests"
	"github.com/layerwright/layerwright/hack/release/sbom"
	"github.com/layerwright/layerwright/hack/release/sums"
	"github.com/layerwright/layerwright/trust/sign"
)

// releasedFolder has, in dist/ and in bundles, what goes into a registry and onto clusters: images
// and manifests, with their checksums.
const releasedFolder = "release"

// certificates is where Debian has the certificate authorities that it trusts.
const certificates = "/etc/ssl/certs/ca-certificates.crt"

type buildOptions struct {
	version, revision, programs, signKey, platforms string
}

func (o *buildOptions) addFlags(flags *flag.FlagSet) {
	flags.StringVar(&o.version, "version", "", "`version` of the release, such as v0.1.0")
	flags.StringVar(&o.revision, "revision", "", "`commit` that the programs were compiled from")
	flags.StringVar(&o.programs, "programs", "", "`folder` with the programs, by platform")
	flags.StringVar(&o.platforms, "platforms", "", "`platforms` to make images and programs for, such as linux-amd64, with commas between them (default: all; a release for users has all)")
	flags.StringVar(&o.signKey, "sign-key", "", "`file` with a private key of cosign, whose password is in COSIGN_PASSWORD (default: nothing is signed)")
}

var versions = regexp.MustCompile(`^v\d+\.\d+\.\d+(-[0-9A-Za-z.-]+)?$`)

// release is one that is being made.
type release struct {
	images.Release
	// root is the repository, programs the folder with the programs, and dist the one that the
	// release is made in.
	root, programs, dist string
	// platforms are those of images, and clients those of the program of administrators.
	platforms, clients []string
	key                *sign.Key
	// packages are Debian's, by the name of the package, with the versions that are installed.
	packages map[string]string
}

// build makes a release. The folder is replaced at the end, as a whole.
func build(ctx context.Context, dist string, o buildOptions, stderr io.Writer) error {
	temporary := dist + ".new"
	if err := os.RemoveAll(temporary); err != nil { //nolint:gosec // the folder is the caller's
		return err
	}
	r, err := newRelease(ctx, temporary, o)
	if err != nil {
		return err
	}
	if err := r.write(ctx, stderr); err != nil {
		return err
	}
	if err := os.RemoveAll(dist); err != nil { //nolint:gosec // as above
		return err
	}
	return os.Rename(temporary, dist) //nolint:gosec // as above
}

// write makes all that a release has.
func (r *release) write(ctx context.Context, stderr io.Writer) error {
	steps := []struct {
		doing string
		do    func(context.Context) error
	}{
		{"images and manifests", r.writeReleased},
		{"archives", r.writeArchives},
		{"bundle", r.writeBundle},
		{"checksums", func(ctx context.Context) error { return r.sum(ctx, r.dist) }},
	}
	for _, step := range steps {
		_, _ = fmt.Fprintln(stderr, "making", step.doing)
		if err := step.do(ctx); err != nil {
			return fmt.Errorf("making %s: %w", step.doing, err)
		}
	}
	return nil
}

func newRelease(ctx context.Context, dist string, o buildOptions) (*release, error) {
	if !versions.MatchString(o.version) {
		return nil, fmt.Errorf("version %q: name one such as v0.1.0: make release VERSION=v0.1.0", o.version)
	}
	if strings.HasSuffix(o.revision, "-dirty") {
		return nil, errors.New("files differ from what is committed: commit them first, a release is made of a commit")
	}
	created, err := commitTime(ctx, o.revision)
	if err != nil {
		return nil, err
	}
	r := &release{
		Release:  images.Release{Version: o.version, Revision: o.revision, Created: created},
		programs: o.programs, dist: dist, root: ".", platforms: imagePlatforms, clients: clientPlatforms,
	}
	if o.platforms != "" {
		r.platforms = strings.Split(o.platforms, ",")
		r.clients = r.platforms
	}
	packages := []string{"ca-certificates"}
	for _, platform := range r.platforms {
		library, known := cLibraries[platform]
		if !known {
			return nil, fmt.Errorf("platform %q: there are images for %s", platform, strings.Join(imagePlatforms, " and "))
		}
		packages = append(packages, library)
	}
	if r.packages, err = installed(ctx, packages...); err != nil {
		return nil, err
	}
	if o.signKey == "" {
		return r, nil
	}
	private, err := os.ReadFile(o.signKey)
	if err != nil {
		return nil, fmt.Errorf("reading the signing key: %w", err)
	}
	if r.key, err = sign.LoadKey(private, []byte(os.Getenv("COSIGN_PASSWORD"))); err != nil {
		return nil, fmt.Errorf("reading the signing key %q, with the password in COSIGN_PASSWORD: %w", o.signKey, err)
	}
	return r, nil
}

// commitTime is that of SOURCE_DATE_EPOCH, or of the commit.
func commitTime(ctx context.Context, revision string) (time.Time, error) {
	seconds := os.Getenv("SOURCE_DATE_EPOCH")
	if seconds == "" {
		out, err := output(ctx, "git", "show", "--no-patch", "--format=%ct", revision)
		if err != nil {
			return time.Time{}, fmt.Errorf("finding out when commit %q was made: %w", revision, err)
		}
		seconds = out
	}
	n, err := strconv.ParseInt(seconds, 10, 64)
	if err != nil {
		return time.Time{}, fmt.Errorf("reading SOURCE_DATE_EPOCH: %w", err)
	}
	return time.Unix(n, 0).UTC(), nil
}

// installed are the versions of packages of this machine.
func installed(ctx context.Context, names ...string) (map[string]string, error) {
	versions := map[string]string{}
	for _, name := range names {
		version, err := output(ctx, "dpkg-query", "--show", "--showformat=${Version}", name)
		if err != nil {
			return nil, fmt.Errorf("finding the version of Debian's package %q: %w", name, err)
		}
		versions[name] = version
	}
	return versions, nil
}

func output(ctx context.Context, argv ...string) (string, error) {
	out, err := exec.CommandContext(ctx, argv[0], argv[1:]...).Output() //nolint:gosec // programs of this machine, by constant names
	var failed *exec.ExitError
	if errors.As(err, &failed) {
		err = fmt.Errorf("%w: %s", err, strings.TrimSpace(string(failed.Stderr)))
	}
	return strings.TrimSpace(string(out)), err
}

// imagePlatforms are those of images.
var imagePlatforms = []string{"linux-amd64", "linux-arm64"}

// writeReleased writes the images and the manifests that name them.
func (r *release) writeReleased(ctx context.Context) error {
	dir := filepath.Join(r.dist, releasedFolder)
	pinned := map[string]string{}
	for name, describe := range map[string]func(images.Programs) binimage.Options{
		images.Controller: images.Programs.Controller,
		images.Agent:      images.Programs.Agent,
		images.Builder:    images.Programs.Builder,
	} {
		digest, err := r.writeImage(ctx, dir, name, describe)
		if err != nil {
			return fmt.Errorf("image %s: %w", name, err)
		}
		pinned[name] = name + "@" + digest
	}
	if err := manifests.Write(filepath.Join(dir, "manifests"), manifests.Options{Version: r.Version, Images: pinned}); err != nil {
		return err
	}
	if err := r.copyManifests(filepath.Join(dir, "manifests")); err != nil {
		return err
	}
	return r.sum(ctx, dir)
}

// copyManifests puts the files of a folder, not its folders, beside the archives, for people who
// want manifests alone.
func (r *release) copyManifests(from string) error {
	entries, err := os.ReadDir(from)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if entry.IsDir() {
			continue
		}
		content, err := os.ReadFile(filepath.Join(from, entry.Name())) //nolint:gosec // the folder is the caller's
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(r.dist, entry.Name()), content, text); err != nil { //nolint:gosec // in the folder of the release
			return err
		}
	}
	return nil
}

func (r *release) writeImage(ctx context.Context, dir, name string, describe func(images.Programs) binimage.Options) (string, error) {
	var options []binimage.Options
	var programs []sbom.Program
	var binaries []string
	for _, platform := range r.platforms {
		folder := filepath.Join(r.programs, platform)
		o := describe(images.Programs{Folder: folder, KMS: folder, CABundle: certificates})
		options = append(options, o)
		programs = append(programs, sbom.Program{Path: o.Binary, Platform: platform})
		for other := range o.Others {
			programs = append(programs, sbom.Program{Path: other, Platform: platform})
		}
	}
	for _, p := range programs {
		binaries = append(binaries, p.Path)
	}
	licenses, err := r.licenses(ctx, binaries...)
	if err != nil {
		return "", err
	}
	for i := range options {
		options[i].Files = licenses
	}
	index, err := r.Index(options...)
	if err != nil {
		return "", err
	}
	digest, err := index.Digest()
	if err != nil {
		return "", err
	}
	statements, err := r.statements(name, digest.String(), programs)
	if err != nil {
		return "", err
	}
	image := attached.Image{Name: name, Tag: r.Version, Index: index, Statements: statements}
	return digest.String(), attached.Write(ctx, filepath.Join(dir, "images", filepath.Base(name)), image, r.key)
}

// licenses are ours and those of what programs link, by where images have them.
func (r *release) licenses(ctx context.Context, binaries ...string) (map[string][]byte, error) {
	own, err := os.ReadFile(filepath.Join(r.root, "LICENSE"))
	if err != nil {
		return nil, err
	}
	others, err := thirdPartyLicenses(ctx, binaries...)
	return map[string][]byte{"/licenses/LICENSE": own, "/licenses/THIRD-PARTY-LICENSES": others}, err
}

// sum writes the checksums of a folder, and their signature.
func (r *release) sum(ctx context.Context, dir string) error {
	list, err := sums.Of(dir)
	if err != nil {
		return err
	}
	files := map[string][]byte{sums.File: list}
	if r.key != nil {
		signature, err := r.key.SignBlob(ctx, list)
		if err != nil {
			return err
		}
		files[sums.Signature], files[sums.Key] = signature, r.key.Public().PEM()
	}
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o644); err != nil { //nolint:gosec // anyone may read a release
			return err
		}
	}
	return nil
}

// host is the platform of this machine, in the way that folders of programs are called.
const host = runtime.GOOS + "-" + runtime.GOARCH
