package registry

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"syscall"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"

	"github.com/layerwright/layerwright/internal/names"
	"github.com/layerwright/layerwright/internal/registry/failure"
)

// CanPush finds out whether the credentials may write to a repository, by beginning an upload and
// cancelling it: registries give tokens to everyone, and refuse only then. Nothing stays behind,
// where the registry can cancel. Denied is Terminal with the reason PushDenied.
func (c *Client) CanPush(ctx context.Context, repository string) error {
	repo, err := c.repository(repository)
	if err != nil {
		return err
	}
	call := c.writing("checking access to repository", repo, repo)
	client, err := c.loggedIn(ctx, repo, transport.PushScope)
	if err != nil {
		return call.Fail(err)
	}
	begin := url.URL{Scheme: repo.Scheme(), Host: repo.RegistryStr(), Path: fmt.Sprintf("/v2/%s/blobs/uploads/", repo.RepositoryStr())}
	response, err := send(ctx, client, http.MethodPost, begin.String())
	if err != nil {
		return call.Fail(err)
	}
	defer response.Body.Close() //nolint:errcheck // its body says nothing
	if err := transport.CheckError(response, http.StatusAccepted, http.StatusCreated); err != nil {
		return call.Fail(err)
	}
	cancelUpload(ctx, client, response)
	return nil
}

// loggedIn is a client that sends the credentials to the repository's registry and to no other
// host.
func (c *Client) loggedIn(ctx context.Context, repo name.Repository, scope string) (*http.Client, error) {
	login, err := authn.Resolve(ctx, c.keychain, repo)
	if err != nil {
		return nil, err
	}
	tries := transport.NewRetry(c.asking(repo), transport.WithRetryBackoff(c.backoff), transport.WithRetryPredicate(isTransient),
		transport.WithRetryStatusCodes(append(passingCodes(), http.StatusInternalServerError)...))
	rt, err := transport.NewWithContext(ctx, repo.Registry, login, transport.NewUserAgent(tries, c.userAgent), []string{repo.Scope(scope)})
	if err != nil {
		return nil, err
	}
	return &http.Client{Transport: rt, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}, nil
}

// passingCodes are the answers that are asked for again, without 500: what that means depends on
// the question.
func passingCodes() []int {
	return []int{
		http.StatusRequestTimeout, http.StatusTooManyRequests,
		http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout,
	}
}

// isTransient reports whether a failure is tried again: the answers above, and connections that
// broke.
func isTransient(err error) bool {
	var answer *transport.Error
	return errors.As(err, &answer) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
		errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

func send(ctx context.Context, client *http.Client, method, address string) (*http.Response, error) {
	request, err := http.NewRequestWithContext(ctx, method, address, http.NoBody)
	if err != nil {
		return nil, err
	}
	return client.Do(request)
}

// cancelUpload is a courtesy: registries clear abandoned uploads in time, and not all can cancel.
// An upload that was moved to another host is left alone.
func cancelUpload(ctx context.Context, client *http.Client, begun *http.Response) {
	location, err := begun.Location()
	if err != nil || location.Host != begun.Request.URL.Host {
		return
	}
	response, err := send(ctx, client, http.MethodDelete, location.String())
	if err != nil {
		return
	}
	_, _ = io.Copy(io.Discard, io.LimitReader(response.Body, 1<<10)) // so that the connection can be used again
	_ = response.Body.Close()
}

// Tag gives a tag to an image that the repository has; image is its name by digest.
func (c *Client) Tag(ctx context.Context, image, tag string) error {
	ref, err := c.pinned(image)
	if err != nil {
		return err
	}
	to, err := c.tag(ref.Context(), tag)
	if err != nil {
		return err
	}
	desc, err := remote.Get(ref, c.options(ctx, ref.Context())...)
	if err != nil {
		return c.reading("reading image", ref, ref.Context()).Fail(err)
	}
	return c.writing("tagging image", to, to.Context()).Fail(remote.Tag(to, desc, c.options(ctx, to.Context())...))
}

// TagNewest gives an image the tag under which Newest finds it. Where the registry's tags are
// immutable, that is the next one.
func (c *Client) TagNewest(ctx context.Context, image, tag string) error {
	for number := 1; ; number++ {
		err := c.Tag(ctx, image, names.NextTag(tag, number))
		if failure.IsImmutable(err) && number < names.MaxTags {
			continue
		}
		if err != nil || number == names.MaxTags {
			return err
		}
		repository, _, _ := strings.Cut(image, "@")
		// The tags may have been immutable once.
		if _, found, err := c.Exists(ctx, repository, names.NextTag(tag, number+1)); !found {
			return err
		}
	}
}
