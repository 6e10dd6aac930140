package sign

import (
	"context"
	"errors"
	"fmt"

	mcfgv1alpha1 "github.com/layerwright/layerwright/api/machineconfiguration/v1alpha1"
	"github.com/layerwright/layerwright/internal/fault"
)

// Trust says whose signatures are trusted in a repository.
type Trust struct {
	// Repository is its name with the registry's host, such as registry.example.com/os/worker. It
	// means this repository alone: neither those below it nor those whose names begin alike.
	Repository string
	// Keys are those of which one has to have signed, or one of the identities.
	Keys []*PublicKey
	// Identities are those that sign without a key.
	Identities []*Identity
}

// Trusted are those whose signatures are trusted. Of the cluster's own, the one that signs now is
// the first.
type Trusted struct {
	Keys       []*PublicKey
	Identities []*Identity
}

// Signing is the one of them that signs now.
func (t Trusted) Signing() Trusted {
	if len(t.Keys) > 0 {
		return Trusted{Keys: t.Keys[:1]}
	}
	return Trusted{Identities: t.Identities[:min(1, len(t.Identities))]}
}

// In is the trust in them in a repository.
func (t Trusted) In(repository string) Trust {
	return Trust{Repository: repository, Keys: t.Keys, Identities: t.Identities}
}

func (t Trust) authorities() []authority {
	var out []authority
	for _, key := range t.Keys {
		out = append(out, key)
	}
	for _, identity := range t.Identities {
		out = append(out, identity)
	}
	return out
}

// Policy is whose signatures are trusted where. What no Trust is about is trusted by no one.
type Policy []Trust

// Verified is an image whose signatures are trusted.
type Verified struct {
	// KeyID identifies the key, or the identity, that has signed the image.
	KeyID string
}

// Verify makes sure that an image, which has to be named by its digest, is signed by the policy:
// itself, and all that an index lists, as nodes verify the one that they pull. What can't be found
// out now, since the registry does not answer, is Transient; an image that is not signed as it has
// to be is Terminal with the reason NotSigned.
func (p Policy) Verify(ctx context.Context, images Registry, pinned string) (Verified, error) {
	about, err := newSubject(pinned)
	if err != nil {
		return Verified{}, fault.NewTerminal(mcfgv1alpha1.ReasonNotSigned, err)
	}
	by, err := p.authoritiesFor(about.repository)
	if err != nil {
		return Verified{}, err
	}
	if len(by) == 0 {
		return Verified{}, rejected(pinned, fmt.Errorf("no key is trusted for the repository %q", about.repository))
	}
	manifests, err := images.Manifests(ctx, pinned)
	if err != nil {
		return Verified{}, err
	}
	var signer authority
	for _, image := range manifests {
		if signer, err = verifyOne(ctx, images, by, image); err != nil {
			return Verified{}, err
		}
	}
	return Verified{KeyID: signer.ID()}, nil
}

// authoritiesFor are those whose signatures are trusted in a repository.
func (p Policy) authoritiesFor(repository string) ([]authority, error) {
	var out []authority
	for _, trust := range p {
		name, err := normalized(trust.Repository)
		if err != nil {
			return nil, err
		}
		if name == repository {
			out = append(out, trust.authorities()...)
		}
	}
	return out, nil
}

func verifyOne(ctx context.Context, images Registry, by []authority, image string) (authority, error) {
	about, err := newSubject(image)
	if err != nil {
		return nil, err
	}
	there, err := images.Attachments(ctx, image, Signatures)
	if err != nil {
		return nil, err
	}
	if len(there) == 0 {
		return nil, rejected(image, errors.New("it has no signature"))
	}
	if damaged := broken(there); len(damaged) > 0 { // nodes read all of them before they look at one
		return nil, rejected(image, fmt.Errorf("nodes refuse it because one of its signatures can't be read: %w; sign it again", damaged[0].Broken))
	}
	if _, one := signedBy(ctx, there, about, by); one != nil {
		return one, nil
	}
	return nil, rejected(image, whyNot(ctx, there, about, by))
}

// whyNot says what is wrong with the signatures that are there: the best of them, which someone
// trusted has made, or else the newest that has a certificate, or that there is none.
func whyNot(ctx context.Context, there []signatureLayer, about subject, by []authority) error {
	var certified error
	for _, layer := range there {
		for _, one := range by {
			err := one.verifySignature(ctx, layer)
			if err == nil {
				return fmt.Errorf("a trusted key has signed something else: %w", about.checkPayload(layer.Content))
			}
			if identity, is := one.(*Identity); is && certified == nil && !errors.Is(err, errNoCertificate) {
				certified = fmt.Errorf("none of its signatures is by %s: %w", identity, err)
			}
		}
	}
	if certified != nil {
		return certified
	}
	return errors.New("none of its signatures is by a trusted key")
}

func rejected(image string, why error) error {
	return fault.NewTerminal(mcfgv1alpha1.ReasonNotSigned, fmt.Errorf("%q is not trusted: %w", image, why))
}
