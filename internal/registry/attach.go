package registry

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/internal/fault"
	"github.com/layerwright/layerwright/internal/names"
	"github.com/layerwright/layerwright/internal/registry/compose"
	"github.com/layerwright/layerwright/internal/registry/failure"
	"github.com/layerwright/layerwright/internal/registry/wire"
)

// Limits of what is read of attachments. Whoever may push can attach anything, in any number.
const (
	// maxAttachments is how many of one kind are looked at, the newest.
	maxAttachments = 64
	// maxAttachment is the largest one, in bytes, of kinds that do not say otherwise.
	maxAttachment = 4 << 20
	// maxAttached is how many bytes are read of one kind at once: what is older than that is passed
	// over.
	maxAttached = 32 << 20
)

// AttachmentKind is what is attached to an image in the way of cosign: as the layers of an image of
// its own, whose tag is made of the digest of the image that they are about.
type AttachmentKind struct {
	// Suffix is the end of the tag: "sha256-<digest>.<suffix>".
	Suffix string
	// MediaType is that of the layers. Those of other types are not looked at.
	MediaType types.MediaType
	// ArtifactType is that of the referrer which is pushed beside, where the registry has the
	// referrers API of OCI 1.1; empty pushes none.
	ArtifactType string
	// MaxSize is the largest one that is read or attached, in bytes; 4 MiB where 0.
	MaxSize int64
	// Only restricts what is read to attachments whose annotations say the same. One that does not
	// have such an annotation is read too.
	Only map[string]string
	// Whole says that nodes read all layers, whatever they are, and refuse the image where one
	// can't be read. So those of other types are read too, and given where they are broken.
	Whole bool
}

func (k *AttachmentKind) maxSize() int64 { return cmp.Or(k.MaxSize, maxAttachment) }

// isLike reports whether a layer can be an attachment of the kind.
func (k *AttachmentKind) isLike(layer *v1.Descriptor) bool {
	if layer.MediaType != k.MediaType || layer.Size < 0 || layer.Size > k.maxSize() || len(layer.URLs) > 0 {
		return false
	}
	for key, wanted := range k.Only {
		if is, says := layer.Annotations[key]; says && is != wanted {
			return false
		}
	}
	return true
}

// TooLargeError means that something is larger than what is read of attachments of its kind.
type TooLargeError struct {
	// Size is what it has, and Limit what it may have, in bytes.
	Size, Limit int64
}

// Error names both.
func (e *TooLargeError) Error() string {
	return fmt.Sprintf("it has %d bytes; the limit is %d", e.Size, e.Limit)
}

// Check returns a TooLargeError if the attachment is too large.
func (k *AttachmentKind) Check(add Attachment) error {
	if size := int64(len(add.Content)); size > k.maxSize() {
		return &TooLargeError{Size: size, Limit: k.maxSize()}
	}
	return nil
}

// Attachment is one layer.
type Attachment struct {
	Annotations map[string]string
	Content     []byte
	// Broken is why it can't be read, whoever tries; nil where it can. It has no content then.
	Broken *BrokenError
}

// BrokenError means that a registry can't give what is attached to an image.
type BrokenError struct {
	// Digest is what it should have been.
	Digest v1.Hash
	// Why says what is wrong with it.
	Why string
}

// Error names it.
func (e *BrokenError) Error() string {
	return fmt.Sprintf("the registry can't give %s, which is attached to it: %s", e.Digest, e.Why)
}

func (a *Attachment) digest() v1.Hash {
	if a.Broken != nil {
		return a.Broken.Digest
	}
	return v1.Hash{Algorithm: "sha256", Hex: fmt.Sprintf("%x", sha256.Sum256(a.Content))}
}

// isIn reports whether it is the layer of a manifest.
func (a *Attachment) isIn(layer *v1.Descriptor) bool {
	return a.digest() == layer.Digest && maps.Equal(a.Annotations, layer.Annotations)
}

// AttachmentTag is the name of the tag that has the attachments of an image, which has to have a
// digest.
func (c *Client) AttachmentTag(image string, kind AttachmentKind) (string, error) {
	ref, err := c.pinned(image)
	if err != nil {
		return "", err
	}
	return attachmentTag(ref, kind, 1).String(), nil
}

// AttachmentTags are all tags that may have attachments of an image, in the order in which they are
// given.
func (c *Client) AttachmentTags(image string, kind AttachmentKind) ([]string, error) {
	ref, err := c.pinned(image)
	if err != nil {
		return nil, err
	}
	var tags []string
	for number := 1; number <= names.MaxTags; number++ {
		tags = append(tags, attachmentTag(ref, kind, number).TagStr())
	}
	return tags, nil
}

// attachmentTag is one of the tags with attachments. Those after the first are ours: where a tag
// can't be moved, what is attached later has the next one.
func attachmentTag(ref name.Digest, kind AttachmentKind, number int) name.Tag {
	return ref.Context().Tag(names.NextTag(strings.Replace(ref.DigestStr(), ":", "-", 1)+"."+kind.Suffix, number))
}

// Attachments reads what is attached to an image, the newest first. What can't be an attachment of
// the kind is passed over. One that the registry has lost, or gives otherwise than its digest says,
// is broken; that the registry does not answer is an error. Of several places for the image, the
// first that has some counts.
func (c *Client) Attachments(ctx context.Context, image string, kind AttachmentKind) ([]Attachment, error) {
	ref, err := c.pinned(image)
	if err != nil {
		return nil, err
	}
	const doing = "reading what is attached to"
	places, refused := c.places(ref)
	var errs []error
	for _, place := range places {
		found, err := c.attachmentsAt(ctx, place, c.reading(doing, place, place.Context()), kind)
		if len(found) > 0 || ctx.Err() != nil {
			return found, err
		}
		if err != nil {
			errs = append(errs, err)
		}
	}
	// A mirror that may never be read has none either, where another place could say so.
	isDecided := len(errs) < len(places) && !slices.ContainsFunc(errs, func(err error) bool { return !failure.IsDenied(err) })
	if isDecided {
		return nil, nil
	}
	return nil, failure.OfPlaces(doing, ref.String(), errs, refused)
}

// attachmentsAt reads those in one place.
func (c *Client) attachmentsAt(ctx context.Context, place name.Reference, call failure.Call, kind AttachmentKind) ([]Attachment, error) {
	ref, isPinned := place.(name.Digest)
	if !isPinned {
		return nil, invalid("image", place.String(), errors.New("it has no digest"))
	}
	puller, err := c.puller(ctx, ref.Context())
	if err != nil {
		return nil, call.Fail(err)
	}
	var out []Attachment
	for number := 1; number <= names.MaxTags; number++ {
		found, layers, err := tagged(ctx, call, puller, attachmentTag(ref, kind, number), kind)
		if err != nil {
			return nil, err
		}
		out = append(found, out...)
		// Where a tag has one attachment it may be immutable, and the next one is under the next
		// tag.
		if layers != 1 || kind.Whole || len(kind.Only) > 0 && len(out) > 0 {
			break
		}
	}
	return out, nil
}

// tagged reads the attachments that have a tag, the newest first, and counts all layers there.
func tagged(ctx context.Context, call failure.Call, puller *remote.Puller, tag name.Tag, kind AttachmentKind) ([]Attachment, int, error) {
	found, err := puller.Get(ctx, tag)
	if err = call.Fail(err); failure.IsNotFound(err) {
		return nil, 0, nil
	}
	if err != nil {
		return nil, 0, err
	}
	manifest, err := v1.ParseManifest(bytes.NewReader(found.Manifest))
	if err != nil || found.MediaType != types.OCIManifestSchema1 {
		return nil, 0, nil //nolint:nilerr // someone else's: it attaches nothing, since nodes read no other type
	}
	all := len(manifest.Layers)
	layers := slices.DeleteFunc(manifest.Layers, func(d v1.Descriptor) bool { return !kind.Whole && !kind.isLike(&d) })
	slices.Reverse(layers)
	var out []Attachment
	room := int64(maxAttached)
	for _, layer := range layers[:min(len(layers), maxAttachments)] {
		one := Attachment{Annotations: layer.Annotations}
		why := kind.unreadable(&layer)
		if why == "" {
			if room -= layer.Size; room < 0 {
				break
			}
			if one.Content, why, err = attached(ctx, call, puller, tag.Context().Digest(layer.Digest.String()), layer.Size); err != nil {
				return nil, 0, err
			}
		}
		if why != "" {
			one.Broken = &BrokenError{Digest: layer.Digest, Why: why}
		}
		if one.Broken != nil || kind.isLike(&layer) {
			out = append(out, one)
		}
	}
	return out, all, nil
}

// unreadable tells why no one reads a layer, nodes neither; empty where it is worth trying.
func (k *AttachmentKind) unreadable(layer *v1.Descriptor) string {
	switch {
	case layer.Size < 0 || layer.Size > k.maxSize():
		return (&TooLargeError{Size: layer.Size, Limit: k.maxSize()}).Error()
	case len(layer.URLs) > 0:
		return "it is not in the registry, but elsewhere"
	}
	return ""
}

// attached reads one layer, and no more than one byte beyond the size that its manifest says. Where
// that is not what the digest says, or nothing, the text says why.
func attached(ctx context.Context, call failure.Call, puller *remote.Puller, blob name.Digest, size int64) (_ []byte, broken string, _ error) {
	content, err := readLayer(ctx, puller, blob, size)
	switch failed := call.Fail(err); {
	case failure.IsNotFound(failed):
		return nil, "it is lost", nil
	case err != nil && strings.HasPrefix(err.Error(), "error verifying "): // go-containerregistry's, whose type is internal
		return nil, "it is damaged: its content is not what its digest says", nil
	case err != nil:
		return nil, "", failed
	case int64(len(content)) != size:
		return nil, "its size is not what the manifest says", nil
	}
	return content, "", nil
}

func readLayer(ctx context.Context, puller *remote.Puller, blob name.Digest, size int64) (_ []byte, err error) {
	layer, err := puller.Layer(ctx, blob)
	if err != nil {
		return nil, err
	}
	content, err := layer.Compressed()
	if err != nil {
		return nil, err
	}
	defer func() {
		if closed := content.Close(); err == nil {
			err = closed
		}
	}()
	return io.ReadAll(io.LimitReader(content, size+1))
}

// Attach adds an attachment to those that an image has, and gives the name of their tag. The image
// has to be there. It takes the place of others, such as broken ones, which no one could write
// again. Where the registry's tags are immutable, it has a tag of its own, unless nodes read the
// kind. Two that add to the same image at once may lose one of the two, since registries have no
// conditions.
func (c *Client) Attach(ctx context.Context, image string, kind AttachmentKind, add Attachment, insteadOf ...Attachment) (string, error) {
	ref, err := c.pinned(image)
	if err != nil {
		return "", err
	}
	if err := kind.Check(add); err != nil {
		return "", fault.NewTerminal(mcfgv1.ReasonInvalid, fmt.Errorf("attaching to %s: %w", ref, err))
	}
	about, err := remote.Head(ref, c.options(ctx, ref.Context())...)
	if err != nil {
		return "", c.reading("reading image", ref, ref.Context()).Fail(err)
	}
	for number := 1; ; number++ {
		tag := attachmentTag(ref, kind, number)
		before, err := c.attachments(ctx, tag)
		if err != nil {
			return "", err
		}
		if before, err = without(before, insteadOf); err != nil {
			return "", fmt.Errorf("attaching to %s: %w", ref, err)
		}
		// The referrer goes first: whoever sees the tag takes all of it for done.
		if number == 1 {
			if err := c.refer(ctx, ref, *about, kind, add); err != nil {
				return "", err
			}
		}
		after, err := withAttachment(before, kind, add)
		if err != nil {
			return "", fmt.Errorf("attaching to %s: %w", ref, err)
		}
		err = c.writing("writing what is attached", tag, tag.Context()).Fail(remote.Write(tag, after, c.options(ctx, tag.Context())...))
		switch isFixed := failure.IsImmutable(err); {
		case isFixed && kind.Whole:
			return "", fmt.Errorf("nodes look for signatures under the tag %q alone, which has one by another key: %w", tag.TagStr(), err)
		case !isFixed || number == names.MaxTags:
			return tag.String(), err
		}
	}
}

// attachments is the image with the attachments that there are, an empty one where there are none
// or something else has the tag.
func (c *Client) attachments(ctx context.Context, tag name.Tag) (v1.Image, error) {
	none := noAttachments()
	call := c.reading("reading attachments", tag, tag.Context())
	found, err := remote.Get(tag, c.options(ctx, tag.Context())...)
	if err = call.Fail(err); failure.IsNotFound(err) {
		return none, nil
	}
	if err != nil {
		return nil, err
	}
	if found.MediaType != types.OCIManifestSchema1 {
		return none, nil
	}
	manifest, err := v1.ParseManifest(bytes.NewReader(found.Manifest))
	if err != nil || manifest.Config.Size < 0 || manifest.Config.Size > compose.MaxConfig {
		return none, nil //nolint:nilerr // someone else's, or it would be read whatever its size
	}
	image, err := found.Image()
	if err != nil {
		return none, nil //nolint:nilerr // someone else's: it attaches nothing
	}
	config, err := image.RawConfigFile()
	if failure.IsNotFound(call.Fail(err)) || err == nil && wire.HasManyValues(config) {
		return none, nil
	}
	if err == nil {
		_, err = image.ConfigFile()
	}
	return image, call.Fail(err)
}

func noAttachments() v1.Image {
	return mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
}

// without is an image with attachments but for some of them.
func without(image v1.Image, these []Attachment) (v1.Image, error) {
	manifest, err := image.Manifest()
	if err != nil {
		return nil, err
	}
	var kept []mutate.Addendum
	for i := range manifest.Layers {
		d := &manifest.Layers[i]
		if slices.ContainsFunc(these, func(a Attachment) bool { return a.isIn(d) }) {
			continue
		}
		layer, err := image.LayerByDigest(d.Digest)
		if err != nil {
			return nil, err
		}
		kept = append(kept, mutate.Addendum{Layer: layer, MediaType: d.MediaType, Annotations: d.Annotations, URLs: d.URLs})
	}
	if len(kept) == len(manifest.Layers) {
		return image, nil
	}
	return mutate.Append(noAttachments(), kept...)
}

func withAttachment(image v1.Image, kind AttachmentKind, add Attachment) (v1.Image, error) {
	return mutate.Append(image, mutate.Addendum{
		Layer: static.NewLayer(add.Content, kind.MediaType), MediaType: kind.MediaType, Annotations: add.Annotations,
	})
}

// refer pushes the attachment as a referrer of the image, where the registry lists referrers.
func (c *Client) refer(ctx context.Context, ref name.Digest, about v1.Descriptor, kind AttachmentKind, add Attachment) error {
	if kind.ArtifactType == "" {
		return nil
	}
	listed, has, err := c.referrers(ctx, ref, kind)
	if err != nil || !has {
		return err
	}
	_, err = c.pushReferrer(ctx, &referred{ref: ref, about: about, listed: listed}, kind, add)
	return err
}

// referred is an image with those of its referrers that the registry lists.
type referred struct {
	ref    name.Digest
	about  v1.Descriptor
	listed []v1.Hash
}

// pushReferrer pushes the referrer of an attachment, unless it is among those that are listed, and
// reports whether it did.
func (c *Client) pushReferrer(ctx context.Context, to *referred, kind AttachmentKind, add Attachment) (bool, error) {
	ref := to.ref
	none := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.MediaType(kind.ArtifactType))
	image, err := withAttachment(none, kind, add)
	if err != nil {
		return false, fmt.Errorf("referring to %s: %w", ref, err)
	}
	referrer, isImage := mutate.Subject(image, v1.Descriptor{MediaType: to.about.MediaType, Size: to.about.Size, Digest: to.about.Digest}).(v1.Image)
	if !isImage {
		return false, fmt.Errorf("referring to %s: it is no image any more", ref)
	}
	digest, err := referrer.Digest()
	if err != nil {
		return false, fmt.Errorf("referring to %s: %w", ref, err)
	}
	if slices.Contains(to.listed, digest) {
		return false, nil
	}
	err = c.writing("referring to image", ref, ref.Context()).Fail(
		remote.Write(ref.Context().Digest(digest.String()), referrer, c.options(ctx, ref.Context())...))
	return err == nil, err
}

// Refer makes sure that attachments which an image has are among its referrers, where the registry
// lists them, and tells how many had to be pushed again: someone may have deleted them and left the
// tag, or the registry has learned to list referrers. All is how many attachments of the kind the
// image has, those of others included. Each has one referrer, so that as a rule it costs one
// request: the list, in which they are counted. What is listed is never pushed again.
func (c *Client) Refer(ctx context.Context, image string, kind AttachmentKind, all int, attached ...Attachment) (int, error) {
	ref, err := c.pinned(image)
	if err != nil || kind.ArtifactType == "" || len(attached) == 0 {
		return 0, err
	}
	listed, has, err := c.referrers(ctx, ref, kind)
	if err != nil || !has || len(listed) >= all {
		return 0, err
	}
	about, err := remote.Head(ref, c.options(ctx, ref.Context())...)
	if err != nil {
		return 0, c.reading("reading image", ref, ref.Context()).Fail(err)
	}
	pushed := 0
	for _, one := range attached {
		is, err := c.pushReferrer(ctx, &referred{ref: ref, about: *about, listed: listed}, kind, one)
		if err != nil {
			return pushed, err
		}
		if is {
			pushed++
		}
	}
	return pushed, nil
}

// referrers are those of a kind that the registry lists, and whether it lists any: whether it has
// the referrers API of OCI 1.1.
func (c *Client) referrers(ctx context.Context, ref name.Digest, kind AttachmentKind) ([]v1.Hash, bool, error) {
	call := c.reading("looking for referrers of", ref, ref.Context())
	index, err := remote.Referrers(ref, append(c.options(ctx, ref.Context()), remote.WithReferrersTagFallback(false), remote.WithFilter("artifactType", kind.ArtifactType))...)
	if err != nil {
		var answer *transport.Error
		var pause *wire.PauseError
		if errors.As(err, &answer) && failure.IsTransient(answer.StatusCode) || isConnection(err) || errors.As(err, &pause) {
			return nil, false, call.Fail(err)
		}
		return nil, false, nil
	}
	list, err := index.IndexManifest()
	if err != nil {
		return nil, false, call.Fail(err)
	}
	var listed []v1.Hash
	for i := range list.Manifests {
		if list.Manifests[i].ArtifactType == kind.ArtifactType {
			listed = append(listed, list.Manifests[i].Digest)
		}
	}
	return listed, true, nil
}

// maxListed is how many manifests an index may list of which each is to be signed or verified.
// Those of images for twenty platforms, with what builders add about each, have 40.
const maxListed = 100

// Manifests are what an image consists of, each by digest: those that an index lists, and the image
// itself as the last. An index that lists more than 100 is Terminal.
func (c *Client) Manifests(ctx context.Context, image string) ([]string, error) {
	ref, err := c.pinned(image)
	if err != nil {
		return nil, err
	}
	source, err := c.open(ctx, ref)
	if err != nil {
		return nil, err
	}
	var out []string
	if source.index != nil {
		listed := source.index.manifest.Manifests
		if n := len(listed); n > maxListed {
			return nil, source.call.Refuse(failure.Unsupported, fmt.Sprintf(
				"its index lists %d manifests; the limit is %d where each must be signed: build for fewer platforms", n, maxListed))
		}
		seen := map[v1.Hash]bool{}
		for i := range listed {
			if digest := listed[i].Digest; !seen[digest] {
				seen[digest] = true
				out = append(out, ref.Context().Digest(digest.String()).String())
			}
		}
	}
	return append(out, ref.String()), nil
}
