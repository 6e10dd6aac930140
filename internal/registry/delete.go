package registry

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"

	"github.com/layerwright/layerwright/internal/registry/failure"
)

// Outcome is how a deletion ended. All of them are final: asking again would give the same.
type Outcome string

// Outcomes.
const (
	// Deleted means that the registry did it.
	Deleted Outcome = "Deleted"
	// Gone means that there was nothing to delete.
	Gone Outcome = "Gone"
	// Denied means that the account may not delete. Many may only push: what is left is for the
	// registry's administrator.
	Denied Outcome = "Denied"
	// Unsupported means that the registry does not delete, or not by tag.
	Unsupported Outcome = "Unsupported"
)

// Deletion is how a deletion ended, and what the registry said.
type Deletion struct {
	Outcome Outcome
	// Detail is the registry's answer, for people; empty where it did it.
	Detail string
}

// DeleteTag removes a tag and leaves the image that it stood for to its other tags. What is not
// there, may not be deleted or can't be is no error but an outcome.
func (c *Client) DeleteTag(ctx context.Context, repository, tag string) (Deletion, error) {
	repo, err := c.repository(repository)
	if err != nil {
		return Deletion{}, err
	}
	ref, err := c.tag(repo, tag)
	if err != nil {
		return Deletion{}, err
	}
	return c.delete(ctx, "deleting tag", ref)
}

// DeleteManifest removes an image, by digest, and with it all of its tags. It has the outcomes of
// DeleteTag.
func (c *Client) DeleteManifest(ctx context.Context, image string) (Deletion, error) {
	ref, err := c.pinned(image)
	if err != nil {
		return Deletion{}, err
	}
	return c.delete(ctx, "deleting image", ref)
}

func (c *Client) delete(ctx context.Context, doing string, ref name.Reference) (Deletion, error) {
	// A 500 may be Quay's way to say that the image is gone; what else it is, the caller tries
	// again.
	options := append(c.options(ctx, ref.Context()), remote.WithRetryStatusCodes(passingCodes()...))
	err := remote.Delete(ref, options...)
	if err == nil {
		return Deletion{Outcome: Deleted}, nil
	}
	var answer *transport.Error
	if errors.As(err, &answer) {
		if outcome, final := outcomeOf(answer); final {
			return Deletion{Outcome: outcome, Detail: failure.Describe(answer)}, nil
		}
	}
	return Deletion{}, c.writing(doing, ref, ref.Context()).Fail(err)
}

// outcomeOf tells which answers end a deletion.
func outcomeOf(answer *transport.Error) (Outcome, bool) {
	if isGoneFromQuay(answer) {
		return Gone, true
	}
	switch failure.KindOfAnswer(answer) {
	case failure.NotFound:
		return Gone, true
	case failure.Denied:
		return Denied, true
	case failure.Unsupported, failure.Immutable, failure.ReadOnly:
		return Unsupported, true
	case failure.Lost: // "DIGEST_INVALID" is what registries say that take no tag here
		return Unsupported, answer.StatusCode == http.StatusBadRequest
	case failure.Other, failure.TooLarge:
		return Unsupported, answer.StatusCode == http.StatusBadRequest
	}
	return "", false
}

// isGoneFromQuay reports whether Quay's 500 means that the image was deleted or has expired, and is
// not collected yet.
func isGoneFromQuay(answer *transport.Error) bool {
	return answer.StatusCode == http.StatusInternalServerError && slices.ContainsFunc(answer.Errors, func(d transport.Diagnostic) bool {
		return d.Code == transport.UnknownErrorCode && (strings.Contains(d.Message, "deleted") || strings.Contains(d.Message, "expired"))
	})
}
