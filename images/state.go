package images

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	mcfgv1alpha1 "github.com/layerwright/layerwright/api/machineconfiguration/v1alpha1"
	"github.com/layerwright/layerwright/images/sbom"
	"github.com/layerwright/layerwright/internal/fault"
	"github.com/layerwright/layerwright/internal/registry"
	"github.com/layerwright/layerwright/internal/registry/credentials"
	"github.com/layerwright/layerwright/osimage/packages"
	"github.com/layerwright/layerwright/trust/sign"
)

// Attester attaches signed statements to images; *sign.Signer is one.
type Attester interface {
	// Attest attaches statements. What the key has stated already, of the same type, stays as it
	// is, and is enough unless Statement.Says wants more.
	Attest(ctx context.Context, images sign.Registry, pinned string, statements ...sign.Statement) ([]sign.Attestation, error)
	// Attested are the types of the statements that an image has by the key of now. Their referrers
	// that are gone are attached again.
	Attested(ctx context.Context, images sign.Registry, pinned string) (map[string]bool, error)
	// Statements are what was stated about an image, with the key of now or another trusted
	// one. Where there is nothing, the error is Terminal.
	Statements(ctx context.Context, images sign.Registry, pinned, predicateType string) ([]json.RawMessage, error)
}

// SBOM lists what an image has beyond its base image.
type SBOM interface {
	// Make makes the list, as SPDX in JSON. It can be repeated. Errors that are no registry's and
	// none of package databases may pass.
	Make(ctx context.Context, about sbom.Subject) ([]byte, error)
}

// Making is a statement that an image is to have, and how it is made.
type Making struct {
	// Name is what people call it, and PredicateType what programs do.
	Name, PredicateType string
	// Make makes the predicate.
	Make func(context.Context) ([]byte, error)
	// Says is that of sign.Statement.
	Says func(predicate json.RawMessage) bool
	// Keep reports whether nothing is made, and what is there stays.
	Keep bool
}

// Stated are the statements that an image has.
type Stated struct {
	Made []mcfgv1alpha1.ImageAttestation
	// Missing says why it could not get others.
	Missing []string
	// Added is how many were attached now.
	Added int
}

// State makes the statements that an image lacks, and attaches them. One that can't be made keeps
// no other from being attached.
func State(ctx context.Context, attester Attester, push *registry.Client, pinned string, wanted ...Making) (Stated, error) {
	var out Stated
	there, err := attester.Attested(ctx, push, pinned)
	if err != nil {
		return out, err
	}
	tag, err := push.AttachmentTag(pinned, sign.Attestations)
	if err != nil {
		return out, err
	}
	var statements []sign.Statement
	var failures []error
	for _, m := range wanted {
		isThere := there[m.PredicateType] && m.Says == nil // else it may be of the build before
		if m.Keep && !isThere {
			continue
		}
		if !isThere {
			s, err := m.statement(ctx, attester, push, pinned)
			var never *permanentError
			switch {
			case errors.As(err, &never):
				out.Missing = append(out.Missing, fmt.Sprintf("it has no %s: %s", m.Name, fault.Message(never.err)))
				continue
			case err != nil:
				failures = append(failures, err)
				continue
			}
			statements = append(statements, s)
		}
		out.Made = append(out.Made, mcfgv1alpha1.ImageAttestation{PredicateType: m.PredicateType, Reference: tag})
	}
	if len(statements) > 0 {
		attached, err := attester.Attest(ctx, push, pinned, statements...)
		failures = append(failures, err)
		for _, a := range attached {
			out.Added += a.Added
		}
	}
	return out, fault.Join(failures...)
}

// permanentError means that a statement can never be made.
type permanentError struct{ err error }

// Error is why.
func (e *permanentError) Error() string { return e.err.Error() }

// Unwrap is why.
func (e *permanentError) Unwrap() error { return e.err }

// statement is what a trusted key has stated before, such as the one before the key was rotated;
// else what is made.
func (m *Making) statement(ctx context.Context, attester Attester, push *registry.Client, pinned string) (sign.Statement, error) {
	s := sign.Statement{PredicateType: m.PredicateType, Says: m.Says}
	before, err := attester.Statements(ctx, push, pinned, s.PredicateType)
	if err != nil && fault.Reason(err) != mcfgv1alpha1.ReasonNotAttested {
		return s, err
	}
	for _, s.Predicate = range before {
		if s.Says == nil || s.Says(s.Predicate) {
			return s, nil
		}
	}
	if s.Predicate, err = m.Make(ctx); err != nil {
		return s, err
	}
	if err := s.Check(); err != nil {
		return s, &permanentError{err}
	}
	return s, nil
}

// MakeSBOM lists what an image has beyond its base image, both by digest.
func MakeSBOM(ctx context.Context, by SBOM, credentials credentials.Credentials, pinned, base string, created time.Time) ([]byte, error) { //nolint:revive // each is used once, and belongs to the call
	about, err := subjectOf(ctx, credentials, pinned, base, created)
	if err != nil {
		return nil, err
	}
	return makeSBOM(ctx, by, about)
}

func makeSBOM(ctx context.Context, by SBOM, about sbom.Subject) ([]byte, error) {
	document, err := by.Make(ctx, about)
	var broken *packages.BrokenError
	var large *packages.TooLargeError
	var tooMany *sbom.TooLargeError
	never := errors.As(err, &broken) || errors.As(err, &large) || errors.As(err, &tooMany)
	if err == nil {
		s := sign.Statement{PredicateType: sign.PredicateSPDX, Predicate: document}
		err = s.Check()
		never = err != nil
	}
	if never {
		return nil, &permanentError{err}
	}
	return document, err
}

// subjectOf is an image with the one that it was made from, of each platform.
func subjectOf(ctx context.Context, credentials credentials.Credentials, pinned, base string, created time.Time) (sbom.Subject, error) {
	about := sbom.Subject{Image: pinned, Created: created}
	if credentials.Pull == nil {
		return about, fmt.Errorf("reading the base image of %q: the pull secret of its MachineOSConfig, or the pool's mirrors, can't be used", pinned)
	}
	resolved, err := credentials.Push.Resolve(ctx, pinned)
	if err != nil {
		return about, err
	}
	for _, platform := range resolved.EachPlatform() {
		one := sbom.Platform{Platform: platform}
		if one.Image, err = credentials.Push.Image(ctx, pinned, platform); err != nil {
			return about, err
		}
		if one.Digest, err = one.Image.Digest(); err != nil {
			return about, fmt.Errorf("reading image %q: %w", pinned, err)
		}
		if platform.OS == "" {
			config, err := one.Image.ConfigFile()
			if err != nil {
				return about, fmt.Errorf("reading image %q: %w", pinned, err)
			}
			one.Platform = v1.Platform{OS: config.OS, Architecture: config.Architecture, Variant: config.Variant}
		}
		one.Base, err = credentials.Pull.Image(ctx, base, one.Platform)
		if registry.IsNotFound(err) {
			return about, &permanentError{fmt.Errorf("reading its base image: %w", err)}
		}
		if err != nil {
			return about, err
		}
		about.Platforms = append(about.Platforms, one)
	}
	return about, nil
}
