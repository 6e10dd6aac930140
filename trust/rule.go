package trust

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/distribution/reference"

	mcfgv1alpha1 "github.com/layerwright/layerwright/api/machineconfiguration/v1alpha1"
	"github.com/layerwright/layerwright/internal/fault"
	"github.com/layerwright/layerwright/trust/sign"
)

// Rule is who is trusted for images of one repository, and what they have to have.
type Rule struct {
	// Whose says where the keys come from, as people write it.
	Whose string
	// Trusted are those of whom one has to have signed the image, and one its provenance.
	Trusted sign.Trusted
	Demands
}

// Verdict is why an image is trusted.
type Verdict struct {
	// KeyID identifies the key that has signed it, and Whose says where that comes from.
	KeyID, Whose string
}

// RepositoryOf is the repository that an image is in, as the policy compares them: with its
// registry.
func RepositoryOf(image string) (string, error) {
	parsed, err := reference.ParseNormalizedNamed(image)
	if err != nil {
		return "", fmt.Errorf("reading the name of image %q: %w", image, err)
	}
	return parsed.Name(), nil
}

// Verify makes sure that an image, which has to be named by its digest, meets the rule. One that
// does not is Terminal, with the reason NotSigned where no signature is trusted and NotTrusted
// where its provenance does not; what can't be found out now is Transient.
func (r Rule) Verify(ctx context.Context, images sign.Registry, pinned string, now time.Time) (Verdict, error) {
	repository, _, _ := strings.Cut(pinned, "@")
	policy := sign.Policy{r.Trusted.In(repository)}
	verified, err := policy.Verify(ctx, images, pinned)
	if fault.IsTerminal(err) && fault.Reason(err) == mcfgv1alpha1.ReasonNotSigned {
		return Verdict{}, fault.NewTerminal(mcfgv1alpha1.ReasonNotSigned, fmt.Errorf("%w; %s accepts only %s", err, r.Whose, r.signers()))
	}
	if err != nil {
		return Verdict{}, err
	}
	if r.Provenance {
		if err := r.verifyProvenance(ctx, policy, images, pinned, now); err != nil {
			return Verdict{}, err
		}
	}
	return Verdict{KeyID: verified.KeyID, Whose: r.Whose}, nil
}

func (r Rule) verifyProvenance(ctx context.Context, policy sign.Policy, images sign.Registry, pinned string, now time.Time) error {
	predicates, err := policy.VerifyAttestation(ctx, images, pinned, sign.PredicateProvenance)
	if err == nil {
		err = r.Meet(predicates, now)
	} else if fault.Reason(err) != mcfgv1alpha1.ReasonNotAttested {
		return err
	}
	if err != nil {
		return fault.NewTerminal(mcfgv1alpha1.ReasonNotTrusted, fmt.Errorf("%q is signed but not trusted by %s: %w", pinned, r.Whose, err))
	}
	return nil
}

// signers are those who are trusted, as messages have them: keys in short, since there may be
// several.
func (r Rule) signers() string {
	const enough = 16
	var out []string
	for _, key := range r.Trusted.Keys {
		out = append(out, "the key "+key.ID()[:enough])
	}
	for _, identity := range r.Trusted.Identities {
		out = append(out, identity.String())
	}
	return strings.Join(out, ", ")
}
