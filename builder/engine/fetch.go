//go:build cgo && containers_image_openpgp && exclude_graphdriver_btrfs

package engine

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"go.podman.io/image/v5/copy"
	"go.podman.io/image/v5/docker"
	"go.podman.io/image/v5/docker/reference"
	"go.podman.io/image/v5/manifest"
	"go.podman.io/image/v5/pkg/shortnames"
	"go.podman.io/storage"
	"golang.org/x/sync/errgroup"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/builder/backend"
	"github.com/layerwright/layerwright/builder/engine/classify"
	"github.com/layerwright/layerwright/builder/engine/report"
	"github.com/layerwright/layerwright/containerfiles"
)

// Bounds of what is pulled side by side.
const (
	parallelImages = 2
	parallelLayers = 4
)

// wanted is an image that has to be in the store.
type wanted struct {
	// name is how the Containerfile names it.
	name string
	// place is where the Containerfile names it, and alias what the store calls it then.
	place string
	alias reference.Named
	// candidates are where it may be, in the order in which they are tried. All but those of short
	// names have one.
	candidates []reference.Named
}

// fetch pulls the images that are not in the store.
func (r *run) fetch(ctx context.Context) error {
	system, err := r.newSystem()
	if err != nil {
		return err
	}
	defer system.close()
	if err := system.usePolicy(r.Paths.Policy, r.Paths.Temporary()); err != nil {
		return err
	}
	images, err := system.wanted(r.instructions.Images, places(r.instructions))
	if err != nil {
		return err
	}
	var named []reference.Named
	for _, image := range images {
		named = append(named, image.candidates...)
	}
	if err := system.logIn(r.Paths.Credentials, named); err != nil {
		return err
	}
	store, err := r.openStore()
	if err != nil {
		return err
	}
	defer closeStore(store)
	return r.pullAll(ctx, system, store, images)
}

func (r *run) pullAll(ctx context.Context, system *system, store storage.Store, images []wanted) error {
	transfer, err := r.newTransfer(system.policy)
	if err != nil {
		return err
	}
	defer transfer.close()
	group, within := errgroup.WithContext(ctx)
	group.SetLimit(parallelImages)
	found := make([]reference.Named, len(images))
	for i, image := range images {
		group.Go(func() (err error) {
			found[i], err = transfer.pull(within, system, store, image)
			return err
		})
	}
	err = group.Wait()
	r.report.Bytes, r.report.Layers = transfer.moved()
	if err != nil {
		return err
	}
	for i, image := range images {
		pulled, err := transfer.pulled(store, image.name, found[i])
		if err != nil {
			return err
		}
		r.report.Pulled = append(r.report.Pulled, pulled)
	}
	return r.leaveFetched(store, found)
}

// pulled says which image a name stood for. The store is asked for the index alone, by its digest:
// who has changed something there can't make it say another one.
func (t *transfer) pulled(store storage.Store, name string, found reference.Named) (backend.PulledImage, error) {
	out := backend.PulledImage{Name: name, Manifest: t.copied[found.String()]}
	canonical, isPinned := found.(reference.Canonical)
	if !isPinned { // a short name with a tag
		out.Image = reference.TrimNamed(found).Name() + "@" + out.Manifest
		return out, nil
	}
	if out.Image = found.String(); out.Image == name {
		out.Image = ""
	}
	listed, err := isListed(store, canonical, out.Manifest)
	if !listed {
		out.Manifest = "" // it was in the store, or was changed on the way there
	}
	return out, err
}

// isListed reports whether a manifest is the one that an image in the store is named by, or in the
// index that it is named by.
func isListed(store storage.Store, named reference.Canonical, copied string) (bool, error) {
	if copied == named.Digest().String() || copied == "" {
		return copied != "", nil
	}
	image, err := find(store, named)
	if err != nil || image == nil {
		return false, err
	}
	text, err := store.ImageBigData(image.ID, storage.ImageDigestManifestBigDataNamePrefix+"-"+named.Digest().String())
	if err != nil {
		return false, nil //nolint:nilerr // then nothing is known of the index
	}
	if is, err := manifest.MatchesDigest(text, named.Digest()); err != nil || !is {
		return false, err
	}
	list, err := manifest.ListFromBlob(text, manifest.GuessMIMEType(text))
	if err != nil {
		return false, nil //nolint:nilerr // it is no index
	}
	for _, instance := range list.Instances() {
		if instance.String() == copied {
			return true, nil
		}
	}
	return false, nil
}

// wanted says where the images are, and what the store is to call them.
func (s *system) wanted(images []backend.PinnedImage, places map[string]string) ([]wanted, error) {
	all := make([]wanted, 0, len(images))
	for _, image := range images {
		w := wanted{name: image.Name, place: places[image.Name]}
		var err error
		if image.Image == "" {
			w.candidates, w.alias, err = s.short(image.Name)
		} else {
			w.candidates, w.alias, err = pinned(image)
		}
		if err != nil {
			return nil, at(w.place, err)
		}
		all = append(all, w)
	}
	return all, nil
}

// places say of each image where the Containerfile first names it, such as `Containerfile line 3`.
// Those that no one finds have none: a message is the better for it, and no more.
func places(in *backend.Instructions) map[string]string {
	found := map[string]string{}
	parsed, err := containerfiles.Parse("", []byte(in.Containerfile))
	if err != nil {
		return found
	}
	images, _ := containerfiles.Images(parsed, containerfiles.PlatformArgs(mcfgv1.ContainerfileArch(in.Architecture)))
	for _, image := range images {
		found[image.Reference] = report.Origins(in.Lines).Place(image.Places[0].Line)
	}
	return found
}

// at puts a place in front of an error.
func at(place string, err error) error {
	if place == "" || err == nil {
		return err
	}
	return fmt.Errorf("%s: %w", place, err)
}

// pinned is for images whose digest is known.
func pinned(image backend.PinnedImage) ([]reference.Named, reference.Named, error) {
	source, err := reference.ParseNormalizedNamed(image.Image)
	if err == nil {
		if _, ok := source.(reference.Canonical); !ok {
			err = errors.New("it has no digest")
		}
	}
	if err != nil {
		return nil, nil, report.NewAdmin(mcfgv1.ReasonInvalid, fmt.Errorf("reading the name of image %q: %w", image.Image, err))
	}
	alias, err := reference.ParseNormalizedNamed(image.Name)
	if err != nil {
		return nil, nil, report.NewAdmin(mcfgv1.ReasonInvalid, fmt.Errorf("reading the name of image %q: %w", image.Name, err))
	}
	return []reference.Named{withoutTag(source)}, withoutTag(reference.TagNameOnly(alias)), nil
}

// withoutTag drops the tag of a reference that has a digest too: the digest says it all, and the
// libraries take only one of both.
func withoutTag(named reference.Named) reference.Named {
	canonical, ok := named.(reference.Canonical)
	if !ok {
		return named
	}
	plain, err := reference.WithDigest(reference.TrimNamed(named), canonical.Digest())
	if err != nil {
		return named
	}
	return plain
}

// short is for names without a registry: registries.conf decides which one is meant. In the store
// it is localhost's, where Buildah looks first.
func (s *system) short(name string) ([]reference.Named, reference.Named, error) {
	resolved, err := shortnames.Resolve(&s.SystemContext, name)
	if err != nil {
		const fix = "name the image with its registry"
		return nil, nil, report.NewAdmin(mcfgv1.ReasonImageNotFound, fmt.Errorf("resolving the short name %q: %w; %s", name, err, fix))
	}
	var candidates []reference.Named
	for _, candidate := range resolved.PullCandidates {
		candidates = append(candidates, withoutTag(candidate.Value))
	}
	alias, err := reference.ParseNormalizedNamed("localhost/" + name)
	if err != nil {
		return nil, nil, report.NewAdmin(mcfgv1.ReasonInvalid, fmt.Errorf("reading the name of image %q: %w", name, err))
	}
	return candidates, withoutTag(reference.TagNameOnly(alias)), nil
}

// pull brings an image into the store, unless it is there, and gives the candidate that it was.
func (t *transfer) pull(ctx context.Context, system *system, store storage.Store, image wanted) (reference.Named, error) {
	var failures []error
	for _, candidate := range image.candidates {
		err := t.pullFrom(ctx, system, store, candidate)
		if err == nil {
			return candidate, addName(store, candidate, image.alias)
		}
		failures = append(failures, at(image.place, err))
		if !report.IsAdmin(err) {
			break // a registry that fails today would decide what the name means
		}
	}
	return nil, errors.Join(failures...)
}

func (t *transfer) pullFrom(ctx context.Context, system *system, store storage.Store, image reference.Named) error {
	_, isPinned := image.(reference.Canonical)
	if found, err := find(store, image); err != nil || found != nil && isPinned {
		return err
	}
	about, err := system.about(ctx, image)
	if err != nil {
		return err
	}
	from, err := docker.NewReference(image)
	if err != nil {
		return report.NewAdmin(mcfgv1.ReasonInvalid, fmt.Errorf("reading the name of image %q: %w", image, err))
	}
	to, err := inStore(store, image)
	if err != nil {
		return err
	}
	what := "pulling " + image.String()
	copied, err := t.copyImage(ctx, imageCopy{
		what: what, from: from, to: to,
		options: copy.Options{SourceCtx: about, DestinationCtx: about},
		classifying: func(err error) error {
			return classify.Pull(what, err)
		},
	})
	if err != nil {
		return err
	}
	return t.remember(image, copied)
}

// remember keeps the digest of the manifest that was copied of an image.
func (t *transfer) remember(image reference.Named, copied []byte) error {
	digest, err := manifest.Digest(copied)
	if err != nil {
		return fmt.Errorf("reading the manifest of %q: %w", image, err)
	}
	t.mutex.Lock()
	defer t.mutex.Unlock()
	t.copied[image.String()] = digest.String()
	return nil
}

// addName gives an image in the store one more name.
func addName(store storage.Store, image, alias reference.Named) error {
	found, err := find(store, image)
	if err != nil {
		return err
	}
	if found == nil {
		return fmt.Errorf("naming %q in the store: it has gone", image)
	}
	if strings.EqualFold(image.String(), alias.String()) {
		return nil
	}
	if err := store.AddNames(found.ID, []string{alias.String()}); err != nil {
		return fmt.Errorf("naming %q in the store: %w", image, err)
	}
	return nil
}
