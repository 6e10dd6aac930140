package verdict

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/images"
	"github.com/layerwright/layerwright/internal/fault"
	"github.com/layerwright/layerwright/trust"
	"github.com/layerwright/layerwright/trust/sign"
	"github.com/layerwright/layerwright/trust/signaturepolicy"
)

// Source is who is trusted for images of one repository.
type Source struct {
	// Whose says where that comes from.
	Whose string
	// Rules have to be met, each of them.
	Rules []trust.Rule
	// Refusal is why no image can be trusted; empty where one can.
	Refusal string
}

// FromKeys trusts the public keys of a text.
func FromKeys(name string, text []byte) (Source, error) {
	keys, err := sign.ParsePublicKeys(text)
	if err == nil && len(keys) == 0 {
		err = errors.New("it has no public key in PEM")
	}
	if err != nil {
		return Source{}, fmt.Errorf("reading %q: %w", name, err)
	}
	whose := "the key of " + name
	return Source{Whose: whose, Rules: []trust.Rule{{Whose: whose, Trusted: sign.Trusted{Keys: keys}}}}, nil
}

// FromPolicy trusts those whom a trust policy names for a repository.
func FromPolicy(name string, text []byte, repository string) (Source, error) {
	policy, err := trust.Parse(text)
	if err != nil {
		return Source{}, fmt.Errorf("reading the trust policy %q: %w", name, err)
	}
	rule, has := policy.For(repository)
	if !has {
		return Source{Whose: name, Refusal: fmt.Sprintf("the trust policy %s names no signer for the repository %q; "+
			"images of a pool's own repository are signed by the cluster: use --pool or --key for those", name, repository)}, nil
	}
	return Source{Whose: name + ": " + rule.Whose, Rules: []trust.Rule{rule}}, nil
}

// FromNodes trusts those whom the nodes of a pool trust with an image, by the signature policy of
// the rendered MachineConfig that they have or get.
func FromNodes(pool string, rendered *mcfgv1.MachineConfig, pinned string) (Source, error) {
	repository, _, _ := strings.Cut(pinned, "@")
	s := Source{Whose: fmt.Sprintf("the signature policy of the nodes of pool %s, in MachineConfig %s", pool, rendered.Name)}
	files, err := signaturepolicy.FilesOf(rendered)
	if err != nil {
		return s, err
	}
	demand, err := signaturepolicy.DemandOf(files, pinned)
	switch {
	case err != nil:
		return s, fmt.Errorf("MachineConfig %q: %w", rendered.Name, err)
	case demand.Rejects:
		s.Refusal = fmt.Sprintf("nodes of pool %s take no image of the repository %q, whoever has signed it (%s of MachineConfig %s)",
			pool, repository, signaturepolicy.PolicyPath, rendered.Name)
	case demand.AcceptsAnything:
		s.Refusal = fmt.Sprintf("nodes of pool %s take any image of the repository %q, signed or not, so that there is nothing to verify it by; "+
			"--enforce-signatures of the controller changes that, and --key verifies the image now", pool, repository)
	case !demand.Looks:
		s.Refusal = fmt.Sprintf("nodes of pool %s want a signature and do not look for it: no file of %s in MachineConfig %s has use-sigstore-attachments for %q",
			pool, signaturepolicy.RegistriesDir, rendered.Name, repository)
	}
	for _, signed := range demand.Signed {
		trusted, err := trustedOf(signed)
		if err != nil {
			return s, fmt.Errorf("MachineConfig %q: %s: %w", rendered.Name, signaturepolicy.PolicyPath, err)
		}
		s.Rules = append(s.Rules, trust.Rule{Whose: "the nodes of pool " + pool, Trusted: trusted})
	}
	return s, nil
}

func trustedOf(r signaturepolicy.Repository) (sign.Trusted, error) {
	keys, err := sign.ParsePublicKeys(bytes.Join(r.Keys, []byte("\n")))
	if err != nil || r.Identity == nil {
		return sign.Trusted{Keys: keys}, err
	}
	identity, err := sign.NewIdentity(sign.IdentityOptions{
		Subject: r.Identity.Email, Issuer: r.Identity.Issuer, Roots: r.Identity.Roots, LogKeys: bytes.Join(r.Identity.LogKeys, []byte("\n")),
	})
	if err != nil {
		return sign.Trusted{}, err
	}
	return sign.Trusted{Keys: keys, Identities: []*sign.Identity{identity}}, nil
}

// Statement is a signed statement about an image, or that there is none which is trusted.
type Statement struct {
	Name          string `json:"name"`
	PredicateType string `json:"predicateType"`
	Trusted       bool   `json:"trusted"`
	// Reason is why it is not.
	Reason string `json:"reason,omitempty"`
}

// Verdict is whether an image is trusted.
type Verdict struct {
	Image   string `json:"image"`
	Trusted bool   `json:"trusted"`
	// By is whose trust it was judged by, Reason why it is not trusted, and KeyID identifies the
	// key, or the identity, that has signed it.
	By     string `json:"by"`
	Reason string `json:"reason,omitempty"`
	KeyID  string `json:"keyID,omitempty"`
	// Statements are those that Layerwright makes about its images. That one is missing is no
	// reason not to trust the image, unless the trust policy asks for it.
	Statements []Statement `json:"statements,omitempty"`
}

// Judge verifies an image, which has to be named by its digest. The error is what can't be found
// out now.
func Judge(ctx context.Context, from sign.Registry, pinned string, s Source, now time.Time) (*Verdict, error) {
	v := &Verdict{Image: pinned, By: s.Whose, Reason: s.Refusal}
	if s.Refusal != "" {
		return v, nil
	}
	repository, _, _ := strings.Cut(pinned, "@")
	policy := sign.Policy{}
	for _, rule := range s.Rules {
		verdict, err := rule.Verify(ctx, from, pinned, now)
		if images.IsRejection(err) {
			v.Reason = fault.Message(err)
			return v, nil
		}
		if err != nil {
			return nil, err
		}
		v.KeyID = verdict.KeyID
		policy = append(policy, rule.Trusted.In(repository))
	}
	v.Trusted = true
	for _, of := range []struct{ name, predicateType string }{{"provenance", sign.PredicateProvenance}, {"SBOM", sign.PredicateSPDX}} {
		statement := Statement{Name: of.name, PredicateType: of.predicateType, Trusted: true}
		if _, err := policy.VerifyAttestation(ctx, from, pinned, of.predicateType); err != nil {
			statement.Trusted, statement.Reason = false, fault.Message(err)
		}
		v.Statements = append(v.Statements, statement)
	}
	return v, nil
}
