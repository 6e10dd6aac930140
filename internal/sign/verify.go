package sign

import (
	"context"
	"errors"
	"fmt"

	mcfgv1alpha1 "github.com/layerwright/layerwright/api/machineconfiguration/v1alpha1"
	"github.com/layerwright/layerwright/internal/fault"
)

// Trust says whose signatures count in a repository.
type Trust struct {
	// Repository is its name with the registry's host, such as registry.example.com/os/worker. It means this repository alone: neither those
	// below it nor those whose names begin alike.
	Repository string
	// Keys are those of which one has to have signed.
	Keys []*PublicKey
}

// Policy is whose signatures count where. What no Trust is about is trusted by nobody.
type Policy []Trust

// Verified is an image whose signatures count.
type Verified struct {
	// KeyID identifies the key that has signed the image.
	KeyID string
}

// Verify makes sure that an image, which has to be named by its digest, is signed by the policy: itself, and all that an index lists, as nodes
// verify the one that they pull. What can't be found out now, since the registry does not answer, is Transient; an image that is not signed as it
// has to be is Terminal with the reason NotSigned.
func (p Policy) Verify(ctx context.Context, images Registry, pinned string) (Verified, error) {
	about, err := newSubject(pinned)
	if err != nil {
		return Verified{}, fault.NewTerminal(mcfgv1alpha1.ReasonNotSigned, err)
	}
	keys, err := p.keysFor(about.repository)
	if err != nil {
		return Verified{}, err
	}
	if len(keys) == 0 {
		return Verified{}, rejected(pinned, fmt.Errorf("no key is trusted for the repository %q", about.repository))
	}
	manifests, err := images.Manifests(ctx, pinned)
	if err != nil {
		return Verified{}, err
	}
	var by *PublicKey
	for _, image := range manifests {
		if by, err = verifyOne(ctx, images, keys, image); err != nil {
			return Verified{}, err
		}
	}
	return Verified{KeyID: by.ID()}, nil
}

// keysFor are the keys that count in a repository.
func (p Policy) keysFor(repository string) ([]*PublicKey, error) {
	var keys []*PublicKey
	for _, trust := range p {
		name, err := normalized(trust.Repository)
		if err != nil {
			return nil, err
		}
		if name == repository {
			keys = append(keys, trust.Keys...)
		}
	}
	return keys, nil
}

func verifyOne(ctx context.Context, images Registry, keys []*PublicKey, image string) (*PublicKey, error) {
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
	if _, by := signedBy(there, about, keys); by != nil {
		return by, nil
	}
	return nil, rejected(image, whyNot(there, about, keys))
}

// whyNot says what is wrong with the signatures that are there: the best of them, which a trusted key has made, or that there is none.
func whyNot(there []signatureLayer, about subject, keys []*PublicKey) error {
	for _, a := range there {
		for _, key := range keys {
			if signed := decoded(a); signed != nil && key.verifies(a.Content, signed) {
				return fmt.Errorf("a trusted key has signed something else: %w", about.isIn(a.Content))
			}
		}
	}
	return errors.New("none of its signatures is by a trusted key")
}

func rejected(image string, why error) error {
	return fault.NewTerminal(mcfgv1alpha1.ReasonNotSigned, fmt.Errorf("%q is not to be trusted: %w", image, why))
}
