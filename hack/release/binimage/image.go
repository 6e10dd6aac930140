package binimage

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// NonRoot is the user and group that images run as by default: the number that distroless images
// made a convention.
const NonRoot = 65532

// Options describe an image. Only Binary is required.
type Options struct {
	// Binary is the static program on this machine.
	Binary string
	// Path is where the image has it; by default /usr/bin and the name of Binary.
	Path string
	// Others are further static programs on this machine, beside Binary in the image under their
	// own names. Each has further names: links to it.
	Others map[string][]string
	// Cmd are the arguments that the program gets when a container gives none.
	Cmd []string
	// User is the numeric user and group; by default NonRoot.
	User int
	// Root makes it root, whatever User says: for a program that makes namespaces of its own.
	Root bool
	// CABundle is a file of PEM certificates on this machine that the program is to trust. By
	// default there is none: whose certificates a machine trusts is no property of the program.
	CABundle string
	// Folders are empty ones that the image has, with their paths from "/", for everyone to write
	// to.
	Folders []string
	// Files are further ones by their paths from "/", for everyone to read.
	Files map[string][]byte
	// Title, Version, Revision and Source fill the org.opencontainers.image annotations and labels
	// of those names. Title is by default the name of Binary, the others are left out when they are
	// empty.
	Title, Version, Revision, Source string
	// Labels are further labels, added to the annotations too.
	Labels map[string]string
	// Created is when the image says that it was made; by default the epoch. Files in it are of the
	// epoch in any case.
	Created time.Time
}

// Build makes the image in memory; Binary and CABundle are read before it returns.
func Build(o Options) (v1.Image, error) {
	program, err := os.ReadFile(o.Binary)
	if err != nil {
		return nil, fmt.Errorf("reading the program: %w", err)
	}
	platform, err := platformOf(program)
	if err != nil {
		return nil, fmt.Errorf("making an image of %q: %w", o.Binary, err)
	}
	if o, err = o.withDefaults(); err != nil {
		return nil, err
	}
	entries, err := o.entries(program)
	if err != nil {
		return nil, err
	}
	layer, err := newLayer(entries)
	if err != nil {
		return nil, err
	}
	return o.assemble(layer, platform)
}

func (o Options) withDefaults() (Options, error) {
	base := filepath.Base(o.Binary)
	if o.Path == "" {
		o.Path = "/usr/bin/" + base
	}
	if !path.IsAbs(o.Path) || path.Clean(o.Path) != o.Path || o.Path == "/" {
		return o, fmt.Errorf("path %q: must be absolute and clean", o.Path)
	}
	switch o.Path {
	case passwdFile, groupFile, caFile:
		return o, fmt.Errorf("path %q: the image has another file there", o.Path)
	}
	if o.User < 0 {
		return o, fmt.Errorf("user %d: must not be negative", o.User)
	}
	switch {
	case o.Root:
		o.User = 0
	case o.User == 0:
		o.User = NonRoot
	}
	if o.Title == "" {
		o.Title = base
	}
	if o.Created.IsZero() {
		o.Created = time.Unix(0, 0)
	}
	return o, nil
}

// Where the image has its other files.
const (
	passwdFile = "/etc/passwd"
	groupFile  = "/etc/group"
	caFile     = "/etc/ssl/certs/ca-certificates.crt"
)

func (o Options) entries(program []byte) ([]entry, error) {
	account := "nonroot"
	if o.Root {
		account = "root"
	}
	entries := []entry{
		{path: o.Path, mode: 0o755, content: program},
		{path: passwdFile, mode: 0o644, content: fmt.Appendf(nil, "%s:x:%d:%d::/:/sbin/nologin\n", account, o.User, o.User)},
		{path: groupFile, mode: 0o644, content: fmt.Appendf(nil, "%s:x:%d:\n", account, o.User)},
	}
	for _, folder := range o.Folders {
		entries = append(entries, entry{path: folder, mode: 0o1777, isFolder: true})
	}
	for name, content := range o.Files {
		entries = append(entries, entry{path: name, mode: 0o644, content: content})
	}
	others, err := o.others()
	if err != nil {
		return nil, err
	}
	entries = append(entries, others...)
	if o.CABundle != "" {
		bundle, err := os.ReadFile(o.CABundle)
		if err != nil {
			return nil, fmt.Errorf("reading the CA bundle: %w", err)
		}
		if !bytes.Contains(bundle, []byte("-----BEGIN CERTIFICATE-----")) {
			return nil, fmt.Errorf("reading the CA bundle: no PEM certificate in %q", o.CABundle)
		}
		entries = append(entries, entry{path: caFile, mode: 0o644, content: bundle})
	}
	return entries, nil
}

// others are the further programs, and the links to them.
func (o Options) others() ([]entry, error) {
	var entries []entry
	for binary, links := range o.Others {
		program, err := os.ReadFile(binary) //nolint:gosec // whoever makes an image names its programs
		if err != nil {
			return nil, fmt.Errorf("reading a further program: %w", err)
		}
		if _, err := platformOf(program); err != nil {
			return nil, fmt.Errorf("making an image with %q: %w", binary, err)
		}
		dir, base := path.Dir(o.Path), filepath.Base(binary)
		entries = append(entries, entry{path: path.Join(dir, base), mode: 0o755, content: program})
		for _, link := range links {
			entries = append(entries, entry{path: path.Join(dir, link), mode: 0o777, link: base})
		}
	}
	return entries, nil
}

func newLayer(entries []entry) (v1.Layer, error) {
	content, err := archive(entries)
	if err != nil {
		return nil, fmt.Errorf("writing the layer: %w", err)
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(content)), nil
	}, tarball.WithMediaType(types.OCILayer), tarball.WithCompressedCaching)
	if err != nil {
		return nil, fmt.Errorf("compressing the layer: %w", err)
	}
	return layer, nil
}

func (o Options) assemble(layer v1.Layer, platform v1.Platform) (v1.Image, error) {
	labels := o.labels()
	user := fmt.Sprintf("%d:%d", o.User, o.User)
	created := v1.Time{Time: o.Created.UTC()}
	history := v1.History{Created: created, CreatedBy: "binimage " + o.Path}

	base := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	filled, err := mutate.Append(base, mutate.Addendum{Layer: layer, History: history})
	if err != nil {
		return nil, fmt.Errorf("adding the layer: %w", err)
	}
	config, err := filled.ConfigFile()
	if err != nil {
		return nil, fmt.Errorf("reading the config: %w", err)
	}
	config = config.DeepCopy()
	config.OS, config.Architecture, config.Variant = platform.OS, platform.Architecture, platform.Variant
	config.Created = created
	config.Config = v1.Config{
		User:       user,
		Entrypoint: []string{o.Path},
		Cmd:        o.Cmd,
		Env:        []string{"PATH=" + path.Dir(o.Path)},
		WorkingDir: "/",
		Labels:     labels,
	}
	configured, err := mutate.ConfigFile(filled, config)
	if err != nil {
		return nil, fmt.Errorf("setting the config: %w", err)
	}
	image, ok := mutate.Annotations(configured, labels).(v1.Image)
	if !ok {
		return nil, errors.New("annotating the image: not an image any more")
	}
	return image, nil
}

// labels say the same in config and manifest: some tools read only the one, some only the other.
func (o Options) labels() map[string]string {
	labels := map[string]string{}
	for key, value := range map[string]string{
		"title": o.Title, "version": o.Version, "revision": o.Revision, "source": o.Source,
	} {
		if value = strings.TrimSpace(value); value != "" {
			labels["org.opencontainers.image."+key] = value
		}
	}
	maps.Copy(labels, o.Labels)
	return labels
}
