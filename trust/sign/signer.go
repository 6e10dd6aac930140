package sign

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/distribution/reference"
	"github.com/sigstore/cosign/v2/pkg/types"
	"github.com/sigstore/sigstore/pkg/signature/payload"

	"github.com/layerwright/layerwright/internal/registry"
)

// Signatures are what cosign attaches to images.
var Signatures = registry.AttachmentKind{
	Suffix:       "sig",
	MediaType:    types.SimpleSigningMediaType,
	ArtifactType: "application/vnd.dev.cosign.artifact.sig.v1+json",
	Whole:        true,
}

// againField is what makes a payload another one, where the registry can't give the first any more.
const againField = "layerwright.io/again"

// Registry is where images and their signatures are; *registry.Client is one.
type Registry interface {
	// Manifests are what an image consists of, each by digest, and itself as the last.
	Manifests(ctx context.Context, image string) ([]string, error)
	// Attachments are those that an image has, the newest first, with those that are broken.
	Attachments(ctx context.Context, image string, kind registry.AttachmentKind) ([]registry.Attachment, error)
	// AttachmentTag is the tag that they have.
	AttachmentTag(image string, kind registry.AttachmentKind) (string, error)
	// Attach adds one, in the place of others.
	Attach(ctx context.Context, image string, kind registry.AttachmentKind, add registry.Attachment, insteadOf ...registry.Attachment) (string, error)
	// Refer makes sure that those which the image has are among its referrers, and tells how many
	// were not. All is how many it has, of others too.
	Refer(ctx context.Context, image string, kind registry.AttachmentKind, all int, attached ...registry.Attachment) (int, error)
}

// Keys has the key to sign with.
type Keys interface {
	// Key is the key as it is now. Where there is none that can be used, the error is Waiting and
	// says what is missing.
	Key(ctx context.Context) (*Key, error)
	// Trusted are the keys whose signatures are trusted: that of Key, and those that it takes the
	// place of, or that will take its.
	Trusted(ctx context.Context) (Trusted, error)
}

// Signature is what an image was signed with.
type Signature struct {
	// Reference is the tag that has the image's signatures.
	Reference string
	// KeyID identifies the public key that verifies it, or the identity.
	KeyID string
	// Added is how many signatures were attached: one for the image and for each that an index
	// lists, 0 where all of them were there.
	Added int
}

// Signer signs images.
type Signer struct{ keys Keys }

// NewSigner makes a Signer. It asks for the key each time that it signs.
func NewSigner(keys Keys) *Signer { return &Signer{keys: keys} }

// KeyID identifies the key that Sign would sign with.
func (s *Signer) KeyID(ctx context.Context) (string, error) {
	key, err := s.keys.Key(ctx)
	if err != nil {
		return "", err
	}
	return key.ID(), nil
}

// Sign signs an image, which has to be named by its digest: this digest, whatever tags stand for
// now. Of an index all that it lists is signed first, since nodes verify the one that they pull;
// the image itself comes last. What is signed with the key already is not signed again, but for its
// referrer where that is gone, and signatures with other keys stay. Those that the registry can't
// give are removed: for one of them nodes refuse the image.
func (s *Signer) Sign(ctx context.Context, images Registry, pinned string) (Signature, error) {
	key, err := s.keys.Key(ctx)
	if err != nil {
		return Signature{}, err
	}
	manifests, err := images.Manifests(ctx, pinned)
	if err != nil {
		return Signature{}, err
	}
	out := Signature{KeyID: key.ID()}
	for _, image := range manifests {
		added, err := signOne(ctx, images, key, image)
		if err != nil {
			return Signature{}, fmt.Errorf("signing %q: %w", image, err)
		}
		if added {
			out.Added++
		}
	}
	out.Reference, err = images.AttachmentTag(pinned, Signatures)
	return out, err
}

func signOne(ctx context.Context, images Registry, key *Key, image string) (bool, error) {
	there, err := images.Attachments(ctx, image, Signatures)
	if err != nil {
		return false, err
	}
	subject, err := newSubject(image)
	if err != nil {
		return false, err
	}
	damaged := broken(there)
	i, _ := signedBy(ctx, there, subject, []authority{key.authority()})
	if i >= 0 && len(damaged) == 0 {
		_, err := images.Refer(ctx, image, Signatures, len(there), there[i])
		return false, err
	}
	var signature registry.Attachment
	if i >= 0 {
		signature, damaged = there[i], append(damaged, there[i])
	} else if signature, err = key.signature(ctx, subject, damaged); err != nil {
		return false, err
	}
	_, err = images.Attach(ctx, image, Signatures, signature, damaged...)
	return err == nil, err
}

// broken are the attachments that the registry can't give.
func broken(there []registry.Attachment) []registry.Attachment {
	return slices.DeleteFunc(slices.Clone(there), func(a registry.Attachment) bool { return a.Broken == nil })
}

// signature makes a signature. Its payload is none of the damaged: a registry that has lost one, or
// changed it, may believe that it still has it.
func (k *Key) signature(ctx context.Context, about subject, damaged []registry.Attachment) (registry.Attachment, error) {
	said := about.payload()
	content, err := json.Marshal(said)
	sum := sha256.Sum256(content)
	if slices.ContainsFunc(damaged, func(a registry.Attachment) bool { return a.Broken.Digest.Hex == hex.EncodeToString(sum[:]) }) {
		said.Optional = map[string]any{againField: rand.Text()}
		content, err = json.Marshal(said)
	}
	if err != nil {
		return registry.Attachment{}, fmt.Errorf("writing the payload: %w", err)
	}
	signed, err := k.sign(ctx, content)
	return registry.Attachment{Content: content, Annotations: signed}, err
}

// subject is what a signature has to be about.
type subject struct{ repository, digest string }

func newSubject(image string) (subject, error) {
	name, digest, found := strings.Cut(image, "@")
	if !found {
		return subject{}, fmt.Errorf("%q has no digest", image)
	}
	repository, err := normalized(name)
	return subject{repository: repository, digest: digest}, err
}

// normalized is the name of a repository as containers/image compares them.
func normalized(name string) (string, error) {
	parsed, err := reference.ParseNormalizedNamed(name)
	if err != nil {
		return "", fmt.Errorf("reading the name %q: %w", name, err)
	}
	return parsed.Name(), nil
}

// payload is what is signed: containers-signature(5), "The cryptographic object".
func (s subject) payload() payload.SimpleContainerImage {
	return payload.SimpleContainerImage{Critical: payload.Critical{
		Identity: payload.Identity{DockerReference: s.repository}, Image: payload.Image{DockerManifestDigest: s.digest}, Type: payload.CosignSignatureType,
	}}
}

// checkPayload returns why a verified payload is not about the subject, nil if it is.
func (s subject) checkPayload(content []byte) error {
	var p payload.SimpleContainerImage
	if err := json.Unmarshal(content, &p); err != nil || p.Critical.Type != payload.CosignSignatureType {
		return errors.New("it is no payload of a signature of an image")
	}
	if p.Critical.Image.DockerManifestDigest != s.digest {
		return fmt.Errorf("it is about the image %s", p.Critical.Image.DockerManifestDigest)
	}
	repository, err := normalized(p.Critical.Identity.DockerReference)
	if err != nil || repository != s.repository {
		return fmt.Errorf("it is about the repository %q", p.Critical.Identity.DockerReference)
	}
	return nil
}

// signatureLayer is a signature: the payload, and what signs it as an annotation.
type signatureLayer = registry.Attachment

// authority is whose signatures are trusted.
type authority interface {
	// ID identifies it, in at most 64 characters.
	ID() string
	// verifySignature returns why a layer is not signed by it, nil if it is.
	verifySignature(ctx context.Context, layer signatureLayer) error
	// verifyStatement returns what it has stated in a layer, or why that is not valid.
	verifyStatement(ctx context.Context, layer registry.Attachment) (*statement, error)
}

// signedBy is the first signature of the subject by one of them, and whose it is; a negative number
// where there is none.
func signedBy(ctx context.Context, there []signatureLayer, about subject, by []authority) (int, authority) {
	for i, layer := range there {
		for _, one := range by {
			if one.verifySignature(ctx, layer) == nil && about.checkPayload(layer.Content) == nil {
				return i, one
			}
		}
	}
	return -1, nil
}
