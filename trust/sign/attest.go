package sign

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	ssldsse "github.com/secure-systems-lab/go-securesystemslib/dsse"
	"github.com/sigstore/cosign/v2/pkg/cosign"
	"github.com/sigstore/cosign/v2/pkg/oci/static"
	"github.com/sigstore/cosign/v2/pkg/types"
	"github.com/sigstore/sigstore/pkg/signature"
	"github.com/sigstore/sigstore/pkg/signature/dsse"
	"github.com/sigstore/sigstore/pkg/signature/options"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	mcfgv1alpha1 "github.com/layerwright/layerwright/api/machineconfiguration/v1alpha1"
	"github.com/layerwright/layerwright/internal/fault"
	"github.com/layerwright/layerwright/internal/registry"
)

// Types of predicates, which are what statements say.
const (
	// PredicateProvenance is how an image was made: SLSA provenance, version 1.
	PredicateProvenance = "https://slsa.dev/provenance/v1"
	// PredicateSPDX is what is in an image: an SBOM in SPDX, as JSON.
	PredicateSPDX = "https://spdx.dev/Document"
)

// MaxPredicate is how large a predicate may be, in bytes. An SBOM with 5,000 packages has three
// quarters of that. Whoever may push can attach as much, and it is in memory several times when it
// is verified.
const MaxPredicate = 10 << 20

// Attestations are the signed statements that cosign attaches to images: each an in-toto statement
// in a DSSE envelope.
var Attestations = registry.AttachmentKind{
	Suffix:       "att",
	MediaType:    types.DssePayloadType,
	ArtifactType: types.IntotoPayloadType,
	MaxSize:      16 << 20, // MaxPredicate in base64, and what is around it
}

const (
	// predicateAnnotation is where the layer of an envelope says what it is about. No one has
	// signed that.
	predicateAnnotation = "predicateType"
	// statementType is what statements say they are, and statementTypeBefore what those of cosign 2
	// do.
	statementType       = "https://in-toto.io/Statement/v1"
	statementTypeBefore = "https://in-toto.io/Statement/v0.1"
)

// Statement is something to be said about an image.
type Statement struct {
	// PredicateType says what kind of thing it is, as a URI.
	PredicateType string
	// Predicate is what is said, as a JSON object.
	Predicate json.RawMessage
	// Says reports whether a predicate of the same type, which the key has stated about the image
	// before, says what has to be said; nil takes any for it.
	Says func(predicate json.RawMessage) bool
}

// Check makes sure that a statement can be attached. The error is terminal, and a
// registry.TooLargeError where it is too large.
func (s *Statement) Check() error {
	if size := int64(len(s.Predicate)); size > MaxPredicate {
		return fault.NewTerminal(mcfgv1.ReasonInvalid, fmt.Errorf("stating %s: %w", s.PredicateType, &registry.TooLargeError{Size: size, Limit: MaxPredicate}))
	}
	if !json.Valid(s.Predicate) || s.PredicateType == "" {
		return fault.NewTerminal(mcfgv1.ReasonInvalid, fmt.Errorf("stating %q: it is no JSON, or has no type", s.PredicateType))
	}
	return nil
}

// Attestation is a statement that lies in a registry, signed.
type Attestation struct {
	// PredicateType says what kind of statement it is.
	PredicateType string
	// Reference is the tag that has the statements about the image.
	Reference string
	// Added is to how many manifests it was attached now: the image and each that an index lists; 0
	// where all of them had it.
	Added int
}

// Attest attaches statements about an image, which has to be named by its digest. One statement is
// about the image and all that an index lists, and is attached to each of them, to the image itself
// last. What the key has stated already, of the same type and about the same digest, is left as it
// is; nothing is added to it, unless Says asks for that. A statement that only some of them have is
// taken over for the others.
func (s *Signer) Attest(ctx context.Context, images Registry, pinned string, statements ...Statement) ([]Attestation, error) {
	for i := range statements {
		if err := statements[i].Check(); err != nil {
			return nil, fmt.Errorf("attesting %q: %w", pinned, err)
		}
	}
	a, err := s.attesting(ctx, images, pinned)
	if err != nil {
		return nil, err
	}
	tag, err := images.AttachmentTag(pinned, Attestations)
	if err != nil {
		return nil, err
	}
	var out []Attestation
	for i := range statements {
		added, err := a.attach(ctx, &statements[i])
		if err != nil {
			return out, fmt.Errorf("attesting %q: %w", pinned, err)
		}
		out = append(out, Attestation{PredicateType: statements[i].PredicateType, Reference: tag, Added: added})
	}
	return out, nil
}

// Attested are the types of the statements that an image has by the key: it, and all that an index
// lists. Of those, referrers that are gone are attached again, as they were.
func (s *Signer) Attested(ctx context.Context, images Registry, pinned string) (map[string]bool, error) {
	a, err := s.attesting(ctx, images, pinned)
	if err != nil {
		return nil, err
	}
	count := map[string]int{}
	for _, about := range a.subjects {
		there, err := images.Attachments(ctx, about.image, Attestations)
		if err != nil {
			return nil, err
		}
		seen := map[string]bool{}
		var ours []registry.Attachment
		for _, layer := range there {
			if said := opened(ctx, layer, a.key.authority()); said != nil && said.isAbout(about.digest) && !seen[said.PredicateType] {
				seen[said.PredicateType] = true
				count[said.PredicateType]++
				ours = append(ours, layer)
			}
		}
		if _, err := images.Refer(ctx, about.image, Attestations, len(there)-len(broken(there)), ours...); err != nil {
			return nil, fmt.Errorf("attesting %q: %w", about.image, err)
		}
	}
	out := map[string]bool{}
	for predicateType, n := range count {
		out[predicateType] = n == len(a.subjects)
	}
	return out, nil
}

// Statements are the predicates of one type about an image that this cluster has signed, with the
// key of now or another one that it trusts; the newest first. Errors are those of
// Policy.VerifyAttestation, and of the keys.
func (s *Signer) Statements(ctx context.Context, images Registry, pinned, predicateType string) ([]json.RawMessage, error) {
	trusted, err := s.keys.Trusted(ctx)
	if err != nil {
		return nil, err
	}
	repository, _, _ := strings.Cut(pinned, "@")
	return Policy{trusted.In(repository)}.VerifyAttestation(ctx, images, pinned, predicateType)
}

// attesting is what one image is attested with.
type attesting struct {
	images   Registry
	key      *Key
	subjects []attested
}

// attested is one manifest of the image.
type attested struct {
	subject
	image string
}

func (s *Signer) attesting(ctx context.Context, images Registry, pinned string) (*attesting, error) {
	key, err := s.keys.Key(ctx)
	if err != nil {
		return nil, err
	}
	manifests, err := images.Manifests(ctx, pinned)
	if err != nil {
		return nil, err
	}
	a := &attesting{images: images, key: key}
	for _, image := range manifests {
		about, err := newSubject(image)
		if err != nil {
			return nil, err
		}
		a.subjects = append(a.subjects, attested{subject: about, image: image})
	}
	return a, nil
}

// attach attaches one statement to the manifests that have none of its type.
func (a *attesting) attach(ctx context.Context, s *Statement) (int, error) {
	kind := Attestations
	kind.Only = map[string]string{predicateAnnotation: s.PredicateType}
	var missing []string
	damaged := map[string][]registry.Attachment{}
	var ours *registry.Attachment // one that is about all of them
	for _, about := range a.subjects {
		there, err := a.images.Attachments(ctx, about.image, kind)
		if err != nil {
			return 0, err
		}
		has := false
		for i := range there {
			said := opened(ctx, there[i], a.key.authority())
			if said == nil || said.PredicateType != s.PredicateType || !said.isAbout(about.digest) || s.Says != nil && !s.Says(said.Predicate) {
				continue
			}
			has = true
			if !slices.ContainsFunc(a.subjects, func(other attested) bool { return !said.isAbout(other.digest) }) {
				ours = &there[i]
				break
			}
		}
		if !has {
			missing = append(missing, about.image)
			damaged[about.image] = broken(there)
		}
	}
	if len(missing) > 0 && ours == nil {
		made, err := a.seal(ctx, s)
		if err != nil {
			return 0, err
		}
		ours = &made
	}
	for i, image := range missing {
		if _, err := a.images.Attach(ctx, image, Attestations, *ours, damaged[image]...); err != nil {
			return i, err
		}
	}
	return len(missing), nil
}

// seal makes the statement about all manifests, and signs it.
func (a *attesting) seal(ctx context.Context, s *Statement) (registry.Attachment, error) {
	said := statement{Type: statementType, PredicateType: s.PredicateType, Predicate: s.Predicate}
	for _, about := range a.subjects {
		algorithm, hex, _ := strings.Cut(about.digest, ":")
		said.Subject = append(said.Subject, resource{Name: about.repository, Digest: map[string]string{algorithm: hex}})
	}
	payload, err := json.Marshal(said)
	if err != nil {
		return registry.Attachment{}, fmt.Errorf("writing the statement: %w", err)
	}
	sealed, err := a.key.seal(ctx, payload)
	if err != nil {
		return registry.Attachment{}, err
	}
	sealed.Annotations[predicateAnnotation] = s.PredicateType
	return sealed, nil
}

// seal signs a statement, as the layer that cosign attaches.
func (k *Key) seal(ctx context.Context, payload []byte) (registry.Attachment, error) {
	if k.identity != nil {
		return k.keyless.seal(ctx, k.identity, payload)
	}
	ctx, cancel := context.WithTimeout(ctx, ServiceTimeout)
	defer cancel()
	return seal(ctx, k.signer, payload)
}

func seal(ctx context.Context, with signature.Signer, payload []byte) (registry.Attachment, error) {
	content, err := dsse.WrapSigner(with, types.IntotoPayloadType).SignMessage(bytes.NewReader(payload), options.WithContext(ctx))
	// cosign expects the annotation of signatures here too, empty.
	return registry.Attachment{Content: content, Annotations: map[string]string{static.SignatureAnnotationKey: ""}}, err
}

// statement is in-toto's.
type statement struct {
	Type          string          `json:"_type"`
	Subject       []resource      `json:"subject"`
	PredicateType string          `json:"predicateType"`
	Predicate     json.RawMessage `json:"predicate"`
}

type resource struct {
	Name   string            `json:"name,omitempty"`
	Digest map[string]string `json:"digest"`
}

// isAbout reports whether an image is among those that a statement is about.
func (s *statement) isAbout(digest string) bool {
	algorithm, hex, _ := strings.Cut(digest, ":")
	return hex != "" && slices.ContainsFunc(s.Subject, func(r resource) bool { return r.Digest[algorithm] == hex })
}

// about names what a statement is about, for people.
func (s *statement) about() string {
	var names []string
	for _, r := range s.Subject {
		names = append(names, r.Name+"@sha256:"+r.Digest["sha256"])
	}
	return strings.Join(names, ", ")
}

// opened is what one of those has stated in an attachment; nil where none of them has.
func opened(ctx context.Context, layer registry.Attachment, by ...authority) *statement {
	for _, one := range by {
		if said, err := one.verifyStatement(ctx, layer); err == nil {
			return said
		}
	}
	return nil
}

// verifyStatement returns what is stated in a layer with the key, or why that is not valid.
func (k *PublicKey) verifyStatement(ctx context.Context, layer registry.Attachment) (*statement, error) {
	if err := checkEnvelope(layer.Content); err != nil {
		return nil, err
	}
	sealed, err := static.NewAttestation(layer.Content)
	if err != nil {
		return nil, err
	}
	if _, err := cosign.VerifyBlobAttestation(ctx, sealed, v1.Hash{}, k.handedIn()); err != nil {
		return nil, errNotBy
	}
	return stated(layer.Content)
}

// verifyStatement returns what is stated in a layer by the identity, or why that is not valid.
func (i *Identity) verifyStatement(ctx context.Context, layer registry.Attachment) (*statement, error) {
	if err := checkEnvelope(layer.Content); err != nil {
		return nil, err
	}
	if err := i.verify(ctx, layer, envelopeRecord, cosign.VerifyBlobAttestation, ""); err != nil {
		return nil, err
	}
	return stated(layer.Content)
}

// maxAroundPayload is how many bytes an envelope may have beside its payload, which are signatures.
// Whoever may push writes them, and each of three bytes would take a hundred of memory and be
// verified.
const maxAroundPayload = 64 << 10

// checkEnvelope returns why an envelope is not to be read by cosign, nil if it may.
func checkEnvelope(content []byte) error {
	var envelope struct {
		Payload json.RawMessage `json:"payload"`
	}
	if json.Unmarshal(content, &envelope) != nil {
		return errors.New("it is no envelope of a statement")
	}
	if len(content)-len(envelope.Payload) > maxAroundPayload {
		return fmt.Errorf("its signatures have more than %d bytes", maxAroundPayload)
	}
	return nil
}

// stated is what a verified envelope says.
func stated(content []byte) (*statement, error) {
	var envelope ssldsse.Envelope
	if err := json.Unmarshal(content, &envelope); err != nil {
		return nil, err
	}
	payload, err := envelope.DecodeB64Payload()
	if err != nil {
		return nil, err
	}
	said := &statement{}
	if json.Unmarshal(payload, said) != nil || said.Type != statementType && said.Type != statementTypeBefore {
		return nil, errors.New("it is no statement")
	}
	return said, nil
}

// VerifyAttestation is what trusted keys have stated about an image, which has to be named by its
// digest: the predicates of one type, the newest first. A statement is for the digest that it
// names, whatever repository it was made for. What can't be found out now, since the registry does
// not answer, is Transient; where no statement is trusted, the error is Terminal with the reason
// NotAttested.
func (p Policy) VerifyAttestation(ctx context.Context, images Registry, pinned, predicateType string) ([]json.RawMessage, error) {
	about, err := newSubject(pinned)
	if err != nil {
		return nil, fault.NewTerminal(mcfgv1alpha1.ReasonNotAttested, err)
	}
	by, err := p.authoritiesFor(about.repository)
	if err != nil {
		return nil, err
	}
	if len(by) == 0 {
		return nil, notAttested(pinned, predicateType, fmt.Errorf("no key is trusted for the repository %q", about.repository))
	}
	kind := Attestations
	kind.Only = map[string]string{predicateAnnotation: predicateType}
	there, err := images.Attachments(ctx, pinned, kind)
	if err != nil {
		return nil, err
	}
	why := errors.New("it has none")
	if len(there) > 0 {
		why = errors.New("none that is attached is by a trusted key")
	}
	var out []json.RawMessage
	for _, layer := range there {
		switch said := opened(ctx, layer, by...); {
		case layer.Broken != nil:
			why = layer.Broken
		case said == nil || said.PredicateType != predicateType:
		case !said.isAbout(about.digest):
			why = fmt.Errorf("the one that is attached is by a trusted key, and about another image: %s", said.about())
		default:
			out = append(out, said.Predicate)
		}
	}
	if len(out) == 0 {
		return nil, notAttested(pinned, predicateType, why)
	}
	return out, nil
}

func notAttested(image, predicateType string, why error) error {
	return fault.NewTerminal(mcfgv1alpha1.ReasonNotAttested, fmt.Errorf("%q has no trusted statement %s: %w", image, predicateType, why))
}
