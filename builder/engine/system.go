//go:build cgo && containers_image_openpgp && exclude_graphdriver_btrfs

package engine

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"go.podman.io/image/v5/docker/reference"
	"go.podman.io/image/v5/pkg/sysregistriesv2"
	"go.podman.io/image/v5/signature"
	"go.podman.io/image/v5/types"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/builder/backend"
	"github.com/layerwright/layerwright/builder/engine/folders"
	"github.com/layerwright/layerwright/builder/engine/report"
	"github.com/layerwright/layerwright/containerfiles"
	"github.com/layerwright/layerwright/internal/registry/dockerconfig"
	"github.com/layerwright/layerwright/internal/registry/wire"
	"github.com/layerwright/layerwright/internal/version"
)

// acceptAnything is the policy where the pool has none: images are named by digest, and signatures
// are the policy's business.
const acceptAnything = `{"default":[{"type":"insecureAcceptAnything"}]}`

// system is what the libraries take from a machine: which registries mean what, whom to trust, and
// how to log in.
type system struct {
	types.SystemContext
	policy *signature.Policy
	// plainHTTP are the registries that may be asked without TLS.
	plainHTTP []string
	// pointers decide where registries may point to.
	pointers wire.Pointers
	held     []*unnamed
}

// newSystem reads the settings of the pool that the step has.
func (r *run) newSystem() (*system, error) {
	pointers := wire.Pointers{PrivateStorage: r.instructions.PrivateStorage}
	s := &system{plainHTTP: r.instructions.PlainHTTP, pointers: pointers, SystemContext: types.SystemContext{
		OSChoice:                          "linux",
		ArchitectureChoice:                containerfiles.GoArch(mcfgv1.ContainerfileArch(r.instructions.Architecture)),
		BlobInfoCacheDir:                  r.blobInfo(),
		BigFilesTemporaryDir:              r.Paths.Temporary(),
		SystemRegistriesConfPath:          r.Paths.Registries,
		SystemRegistriesConfDirPath:       folders.Nowhere,
		UserShortNameAliasConfPath:        filepath.Join(r.Paths.Temporary(), "short-names.conf"),
		DockerPerHostCertDirPath:          folders.Nowhere,
		DockerRegistryUserAgent:           "layerwright-builder/" + version.Current().Version,
		DockerDisableDestSchema1MIMETypes: true,
	}}
	if s.ArchitectureChoice == "" {
		return nil, report.NewAdmin(mcfgv1.ReasonInvalid, fmt.Errorf("there is no architecture %q", r.instructions.Architecture))
	}
	if !exists(r.Paths.Registries) {
		empty, err := s.hold("registries.conf", nil)
		if err != nil {
			return nil, err
		}
		s.SystemRegistriesConfPath = empty
	}
	if _, err := sysregistriesv2.TryUpdatingCache(&s.SystemContext); err != nil {
		return nil, report.NewAdmin(mcfgv1.ReasonInvalid, fmt.Errorf("reading registries.conf of the pool: %w", err))
	}
	var err error
	if s.BaseTLSConfig, err = trust(r.Paths.Trust); err != nil {
		return nil, err
	}
	if err := s.findSignatures(r.Paths.Temporary(), false); err != nil {
		return nil, err
	}
	s.policy, err = signature.NewPolicyFromBytes([]byte(acceptAnything))
	return s, err
}

// blobInfo is where the libraries remember which registry has which layer. What Build and Export
// learn is thrown away.
func (r *run) blobInfo() string {
	if r.step == backend.Fetch || r.step == backend.Push {
		return r.Paths.Blobs()
	}
	return r.Paths.Temporary()
}

// close frees what the system holds in memory.
func (s *system) close() {
	for _, u := range s.held {
		u.close()
	}
}

// hold keeps content in memory until close, and gives its path.
func (s *system) hold(name string, content []byte) (path string, err error) {
	u, err := newUnnamed(name, content)
	if err != nil {
		return "", err
	}
	s.held = append(s.held, u)
	return u.path(), nil
}

// findSignatures says where signatures are looked for: nowhere, or beside the images, as sigstore's
// attachments. By default it is a folder of the machine's, which a build may not even look into.
func (s *system) findSignatures(temporary string, attached bool) error {
	s.RegistriesDirPath = filepath.Join(temporary, "registries.d")
	if err := os.MkdirAll(s.RegistriesDirPath, 0o700); err != nil {
		return fmt.Errorf("making a folder for settings of signatures: %w", err)
	}
	settings := fmt.Sprintf("default-docker:\n  lookaside: file://%s\n  use-sigstore-attachments: %t\n", folders.Nowhere, attached)
	if err := os.WriteFile(filepath.Join(s.RegistriesDirPath, "signatures.yaml"), []byte(settings), 0o600); err != nil {
		return fmt.Errorf("writing settings of signatures: %w", err)
	}
	return nil
}

// usePolicy takes the pool's policy instead of the one that accepts anything. There is no place but
// beside the images that a build pod finds signatures in.
func (s *system) usePolicy(file, temporary string) error {
	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading policy.json of the pool: %w", err)
	}
	if s.policy, err = signature.NewPolicyFromBytes(text); err != nil {
		return report.NewAdmin(mcfgv1.ReasonInvalid, fmt.Errorf("reading policy.json of the pool: %w", err))
	}
	return s.findSignatures(temporary, true)
}

// logIn makes the credentials in a folder those for these images, and for the mirrors that
// registries.conf has for them.
func (s *system) logIn(dir string, images []reference.Named) error {
	store, err := dockerconfig.ReadFolder(dir)
	if err != nil {
		return err
	}
	var repositories []reference.Named
	for _, image := range images {
		sources, err := s.sources(image)
		if err != nil {
			return err
		}
		repositories = append(repositories, sources...)
	}
	text, err := authFile(store, repositories)
	if err != nil {
		return err
	}
	s.AuthFilePath, err = s.hold("credentials", text)
	return err
}

// sources are the repositories that an image may be pulled from: its own, and those of mirrors.
func (s *system) sources(image reference.Named) ([]reference.Named, error) {
	all := []reference.Named{reference.TrimNamed(image)}
	registry, err := sysregistriesv2.FindRegistry(&s.SystemContext, image.Name())
	if err != nil || registry == nil {
		return all, err
	}
	mirrors, err := registry.PullSourcesFromReference(image)
	if err != nil {
		return nil, report.NewAdmin(mcfgv1.ReasonInvalid, fmt.Errorf("reading the mirrors of %q: %w", image.Name(), err))
	}
	for _, mirror := range mirrors {
		all = append(all, reference.TrimNamed(mirror.Reference))
	}
	return all, nil
}

// about is the context for one image. A registry may be asked without TLS where the controller may
// do so, unless registries.conf says something about it.
func (s *system) about(ctx context.Context, image reference.Named) (*types.SystemContext, error) {
	about := s.SystemContext
	registry, err := sysregistriesv2.FindRegistry(&s.SystemContext, image.Name())
	if err != nil {
		return nil, fmt.Errorf("reading registries.conf of the pool: %w", err)
	}
	if registry == nil && wire.MayBePlain(reference.Domain(image), s.plainHTTP) {
		about.DockerInsecureSkipTLSVerify = types.OptionalBoolTrue
	}
	sources, err := s.sources(image)
	if err != nil {
		return nil, err
	}
	about.DockerProxy = guarded(ctx, &s.pointers, sources)
	return &about, nil
}

// guarded is the choice of a proxy, which the library asks for before each request. It also refuses
// what the controller refuses to ask: hosts inside of networks that a registry points to. The
// network's policy may not be enforced.
func guarded(ctx context.Context, pointers *wire.Pointers, sources []reference.Named) func(*url.URL) (*url.URL, error) {
	hosts := make([]string, 0, len(sources))
	for _, source := range sources {
		hosts = append(hosts, reference.Domain(source))
	}
	return func(asked *url.URL) (*url.URL, error) {
		if !slices.Contains(hosts, asked.Host) {
			for _, host := range hosts { // which of them points there is not known
				if err := pointers.Check(ctx, host, asked.Host); err != nil {
					return nil, err
				}
			}
		}
		return http.ProxyFromEnvironment(&http.Request{URL: asked})
	}
}

// trust is the machine's certificate authorities and those in a folder.
func trust(dir string) (*tls.Config, error) {
	pool, err := x509.SystemCertPool()
	if err != nil {
		pool = x509.NewCertPool()
	}
	files, err := certificates(dir)
	if err != nil {
		return nil, err
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("reading a certificate authority: %w", err)
		}
		if !pool.AppendCertsFromPEM(text) {
			return nil, report.NewAdmin(mcfgv1.ReasonInvalid, fmt.Errorf("reading the trust bundle: %q has no certificate", filepath.Base(file)))
		}
	}
	return &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}, nil
}

// certificates are the files of the trust bundle.
func certificates(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading the trust bundle: %w", err)
	}
	var files []string
	for _, entry := range entries {
		if strings.HasSuffix(entry.Name(), ".pem") {
			files = append(files, filepath.Join(dir, entry.Name()))
		}
	}
	return files, nil
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
